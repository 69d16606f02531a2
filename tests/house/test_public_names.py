"""Every room says what is public, and every public name says what it is."""

import importlib
import inspect

import pytest

ROOMS = ["lsh", "attention", "nn", "training", "lab"]


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


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is(room):
    assert (importlib.import_module(f"anna_attn.{room}").__doc__ or "").strip()
