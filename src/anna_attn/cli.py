"""The command `anna`: the app, and the one place where an error becomes a line and an exit code.

Commands stay thin: they read options and call the room that does the work. Rooms are imported
inside the commands, so that `anna --help` answers at once and works without the extra `lab`.
"""

from __future__ import annotations

import platform
from importlib.metadata import version as distribution_version
from typing import Annotated

import typer
from typer.core import TyperGroup

from anna_attn import __version__

EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

_FORESEEABLE = (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)

# One string per paragraph: the help formatter keeps every line break inside a paragraph.
_HELP = "\n\n".join(
    (
        "Attention by hash tables: run the paper's experiments, train, measure.",
        "A key goes into one bucket of each hash table, and a bucket keeps only a sum of values "
        "and a count. A query averages the buckets it falls into. That is [bold]ANNA[/bold] "
        "(approximate nearest neighbour attention): its time grows with the number of tokens, not "
        "with their square.",
        "Long commands may be stopped with Ctrl-C. Started again, they go on where they stopped.",
        "An error is one line on stderr. Exit code [bold]2[/bold]: something you gave cannot be "
        "used (an argument, a file, a missing extra). Exit code [bold]1[/bold]: the work itself "
        "failed. [bold]anna --debug COMMAND[/bold] shows the traceback.",
    )
)


def _exit_code(error: Exception) -> int:
    """EXIT_REFUSED for what the caller can mend in what they gave, EXIT_FAILED for the rest."""
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return EXIT_REFUSED
    # Imported only once something has failed: it brings torch with it.
    from anna_attn.training import CheckpointError

    return EXIT_REFUSED if isinstance(error, CheckpointError) else EXIT_FAILED


def _one_line(error: Exception) -> str:
    """The message of an error on one line; the name of its type where it carries no message."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


class OneLineErrors(TyperGroup):
    """A command group whose foreseeable errors end as one line on stderr, not as a traceback.

    Foreseeable are bad input, files, checkpoints, a missing extra, and a run that fails. Anything
    else, say a KeyError, is a mistake in this program and keeps its traceback. With `--debug` the
    foreseeable ones keep theirs too.
    """

    def invoke(self, ctx: typer.Context) -> object:
        """Run the command; turn a foreseeable error into a line and an exit code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            # RuntimeErrors and an OSError by type, but they are how typer itself ends a command.
            raise
        except typer.BadParameter as error:
            typer.echo(f"anna: {error.format_message()}", err=True)
            raise typer.Exit(EXIT_REFUSED) from error
        except KeyboardInterrupt as interrupt:
            typer.echo("anna: interrupted; the same command goes on where it stopped", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from interrupt
        except _FORESEEABLE as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"anna: {_one_line(error)}", err=True)
            raise typer.Exit(_exit_code(error)) from error


app = typer.Typer(
    name="anna",
    cls=OneLineErrors,
    help=_HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anna-attn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="On an error, show the traceback as well.")
    ] = False,
) -> None:
    # `version` is done by its callback and `debug` is read by OneLineErrors; nothing is left to do.
    del version, debug


@app.command(name="version")
def show_version() -> None:
    """Print the versions that matter for a bug report."""
    for name in ("anna-attn", "torch", "numpy"):
        typer.echo(f"{name} {distribution_version(name)}")
    typer.echo(f"python {platform.python_version()} on {platform.platform()}")


def main() -> None:
    """Run the command line; the entry point of the command `anna`."""
    app(prog_name="anna")


if __name__ == "__main__":
    main()
