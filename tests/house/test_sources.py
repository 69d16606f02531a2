"""Rules of the house that no linter knows."""

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "anna_attn"
FILES = sorted(SOURCES.rglob("*.py"))
DRAWERS = {"utils", "util", "misc", "common", "helpers", "helper"}
GLOBAL_RANDOMNESS = {
    "torch.manual_seed",
    "torch.seed",
    "torch.set_rng_state",
    "np.random.seed",
    "numpy.random.seed",
    "random.seed",
}


def test_there_are_sources_to_check():
    assert SOURCES / "lsh" / "tables.py" in FILES


def test_the_files_that_the_architecture_names_exist():
    page = (SOURCES.parents[1] / "docs" / "architecture.md").read_text()
    block = page.split("## Files")[1].split("## Planned rooms")[0]
    named = set(re.findall(r"^ +(\w+\.py) ", block, re.MULTILINE))
    assert len(named) > 20
    assert named - {path.name for path in FILES} == set()


def test_no_file_is_a_drawer():
    assert [path for path in FILES if {path.stem, path.parent.name} & DRAWERS] == []


def is_re_export(statement):
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, ast.Assign):
        names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
        return names <= {"__all__", "__version__"}
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.name == "__init__.py"],
    ids=lambda path: path.parent.name,
)
def test_a_package_file_only_re_exports(path):
    statements = ast.parse(path.read_text()).body
    assert [ast.unparse(s) for s in statements if not is_re_export(s)] == []


def test_no_source_draws_from_the_global_random_state():
    offences = [
        f"{path.relative_to(SOURCES)}:{node.lineno} {ast.unparse(node.func)}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in GLOBAL_RANDOMNESS
    ]
    assert offences == []


def catches_everything(node):
    if not isinstance(node, ast.ExceptHandler):
        return False
    return node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}


def hides_the_error(handler):
    return not any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def test_no_source_swallows_every_error():
    offences = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if catches_everything(node) and hides_the_error(node)
    ]
    assert offences == []
