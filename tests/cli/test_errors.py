"""Foreseeable errors of a command are one line on stderr and an exit code; bugs keep a trace."""

import errno

import pytest
import typer
from typer.testing import CliRunner

from anna_attn import __version__
from anna_attn.cli import OneLineErrors, app
from anna_attn.training import CheckpointError, NonFiniteError


def run_a_command_that_raises(error, *options):
    failing = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)

    @failing.callback()
    def options_of_the_app(debug: bool = False) -> None:
        """Take the same flag as the real app."""

    @failing.command()
    def fail() -> None:
        """Raise what the test asks for."""
        raise error

    return CliRunner().invoke(failing, [*options, "fail"])


REFUSED = [
    (ValueError("task must be one of match2, got 'x'"), "task must be one of match2, got 'x'"),
    (TypeError("steps must be an int,\n   got str"), "steps must be an int, got str"),
    (PermissionError(errno.EACCES, "Permission denied", "/out"), "/out: Permission denied"),
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    (ModuleNotFoundError("install 'anna-attn[lab]'"), "install 'anna-attn[lab]'"),
    (CheckpointError("model.json is not a checkpoint"), "model.json is not a checkpoint"),
    (typer.BadParameter("'x' is not a task"), "Invalid value: 'x' is not a task"),
]
FAILED = [
    (NonFiniteError("the loss is NaN at step 7"), "the loss is NaN at step 7"),
    (RuntimeError("out of memory"), "out of memory"),
    (MemoryError(), "MemoryError"),
]


def check_one_line(result, line):
    assert result.stderr == f"anna: {line}\n"
    assert result.stdout == ""


@pytest.mark.parametrize(("error", "line"), REFUSED, ids=lambda part: type(part).__name__)
def test_input_that_cannot_be_used_exits_with_2(error, line):
    result = run_a_command_that_raises(error)
    check_one_line(result, line)
    assert result.exit_code == 2


@pytest.mark.parametrize(("error", "line"), FAILED, ids=lambda part: type(part).__name__)
def test_work_that_fails_exits_with_1(error, line):
    result = run_a_command_that_raises(error)
    check_one_line(result, line)
    assert result.exit_code == 1


def test_an_interrupt_says_that_the_command_resumes():
    result = run_a_command_that_raises(KeyboardInterrupt())
    check_one_line(result, "interrupted; the same command goes on where it stopped")
    assert result.exit_code == 130


@pytest.mark.parametrize("options", [("--debug",), ()])
def test_a_mistake_in_the_program_keeps_its_traceback(options):
    error = KeyError("no such entry")
    assert run_a_command_that_raises(error, *options).exception is error


def test_debug_keeps_the_traceback():
    error = ValueError("bad task")
    assert run_a_command_that_raises(error, "--debug").exception is error


def test_a_wished_exit_code_passes_through():
    result = run_a_command_that_raises(typer.Exit(5))
    assert result.exit_code == 5
    assert result.stderr == ""


def test_version_is_that_of_the_package():
    assert CliRunner().invoke(app, ["--version"]).stdout == f"anna-attn {__version__}\n"


def test_version_command_names_torch():
    lines = CliRunner().invoke(app, ["version"]).stdout.splitlines()
    assert lines[0] == f"anna-attn {__version__}"
    assert any(line.startswith("torch ") for line in lines)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_names_every_command(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    names = {command.name for command in app.registered_commands}
    assert names
    assert [name for name in names if name not in result.stdout] == []


def test_an_unknown_command_is_refused_without_a_traceback():
    result = CliRunner().invoke(app, ["atend"])
    assert result.exit_code == 2
    assert "atend" in result.stderr
    assert "Traceback" not in result.stderr
