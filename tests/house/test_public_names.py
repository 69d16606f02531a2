"""Every room says what is public, and every public name says what it is."""

import importlib
import inspect
import re

import pytest

# The lab exports nothing at its top: its parts are imported by file, as the commands need them.
ROOMS = [
    *["lsh", "attention", "nn", "training", "lab.tasks", "lab.benchmarks"],
    *["mpc", "mpc.engines", "mpc.primitives", "mpc.protocols"],
]


def public_callables(room):
    module = importlib.import_module(f"anna_attn.{room}")
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield name, thing


def has_own_docstring(name, thing):
    doc = thing.__doc__ or ""
    # A dataclass without a docstring gets its signature as one.
    return bool(doc.strip()) and not doc.startswith(f"{name}(")


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room):
    silent = [name for name, thing in public_callables(room) if not has_own_docstring(name, thing)]
    assert silent == []


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_are_listed_once(room):
    names = importlib.import_module(f"anna_attn.{room}").__all__
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("room", [*ROOMS, "lab"])
def test_every_room_says_what_it_is(room):
    assert (importlib.import_module(f"anna_attn.{room}").__doc__ or "").strip()


def documented_arguments(doc):
    """Names at the head of each entry of the section `Args:`; one entry may name several."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n|\n)+)", inspect.cleandoc(doc) + "\n", re.MULTILINE)
    if section is None:
        return []
    entries = re.findall(r"^ {4}(\S.*)$", section[1], re.MULTILINE)
    heads = [re.sub(r"\s*\(.*?\)\s*$", "", entry.split(":")[0]) for entry in entries]
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]


def functions_and_methods(room):
    for name, thing in public_callables(room):
        yield name, thing
        if inspect.isclass(thing):
            for method_name, method in vars(thing).items():
                if inspect.isfunction(method) and not method_name.startswith("_"):
                    yield f"{name}.{method_name}", method


def test_entries_that_name_several_arguments_are_read():
    doc = (
        "Add.\n\nArgs:\n    a, b: left\n        and right: both\n    c (int): more\n\nReturns: sum"
    )
    assert documented_arguments(doc) == ["a", "b", "c"]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_list_only_arguments_that_exist(room):
    wrong = [
        f"{name}: {argument}"
        for name, thing in functions_and_methods(room)
        for argument in documented_arguments(thing.__doc__ or "")
        if argument not in inspect.signature(thing).parameters
    ]
    assert wrong == []
