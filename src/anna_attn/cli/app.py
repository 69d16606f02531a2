"""The command `anna`: the app, and the one place where an error becomes a line and an exit code.

Commands stay thin: they read options and call the room that does the work. Rooms are imported
inside the commands, so that `anna --help` answers at once and works without the extra `lab`.
"""

from __future__ import annotations

import json
import platform
import signal
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from anna_attn import __version__

from .mpc import mpc

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
        "Long commands may be stopped with Ctrl-C. Started again, they go on where they stopped, "
        "unless their help says that they cannot.",
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
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
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
            how = "; the same command goes on where it stopped"
            if interrupt.args:  # A command that says what it means for it.
                how = f"; {interrupt.args[0]}"
            typer.echo(f"anna: interrupted{how}", err=True)
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


OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
Seed = Annotated[int, typer.Option(help="Of weights, data and hash functions.")]


@app.command(name="reproduce")
def reproduce_paper(
    full: Annotated[
        bool,
        typer.Option("--full", help="Three seeds, all z, 2-hop and 4-hop, larger tests: an hour."),
    ] = False,
    out: OutFolder = Path("report"),
) -> None:
    """Run the paper's experiments and write report/index.html.

    Trains Match2 and induction heads both ways, the paper's and ours, draws Figures 1a and 1b, and
    checks Theorem 3.4, Remark 3.6 and the time against the length. Minutes without --full. Models
    and finished parts are kept in OUT/work: interrupted and started again, it goes on.
    """
    from anna_attn.lab import experiments
    from anna_attn.lab.reproduce import reproduce

    plan = experiments.FULL if full else experiments.QUICK
    command = f"anna reproduce{' --full' if full else ''} --out {out}"
    page = reproduce(plan, out, console=Console(), command=command)
    typer.echo(f"report: {page}")


@app.command(name="train")
def train_model(
    task: Annotated[str, typer.Argument(help="match2, induction_heads, 2_hop or 4_hop.")],
    method: Annotated[
        str, typer.Option(help="anna: directly on ANNA (ours). softmax: the paper's surrogate.")
    ] = "anna",
    hashes_per_table: Annotated[
        int | None, typer.Option("-z", "--hashes-per-table", help="match2 with anna: 1 to 4.")
    ] = None,
    seed: Seed = 0,
    steps_scale: Annotated[float, typer.Option(help="Factor on the recipe's steps.")] = 1.0,
    out: OutFolder = Path("runs/model"),
) -> None:
    """Train one model; started again with the same OUT, it goes on.

    OUT/main holds the model trained for any hash tables, OUT/fixed_tables the one that was then
    trained with its own. metrics.jsonl beside each has the losses.
    """
    from anna_attn.lab.commands import train_task

    checkpoint = train_task(
        task,
        method,
        out,
        seed=seed,
        hashes_per_table=hashes_per_table,
        steps_scale=steps_scale,
        console=Console(),
    )
    typer.echo(f"checkpoint: {checkpoint}")


@app.command(name="distill")
def distill_model(
    checkpoint: Annotated[Path, typer.Argument(help="A model trained with --method softmax.")],
    out: Annotated[Path, typer.Argument(help="File for the model with hash tables.")],
    family: Annotated[str, typer.Option(help="cross_polytope or hyperplane.")] = "cross_polytope",
    num_tables: Annotated[int, typer.Option("-l", "--num-tables", help="The paper's l.")] = 32,
    hashes_per_table: Annotated[
        int, typer.Option("-z", "--hashes-per-table", help="The paper's z.")
    ] = 2,
    seed: Annotated[int, typer.Option(help="Of the hash functions.")] = 0,
) -> None:
    """Turn a softmax model into an ANNA model by hashing its queries and keys."""
    from anna_attn.lab.commands import distill_checkpoint

    path = distill_checkpoint(
        checkpoint,
        out,
        family=family,
        num_tables=num_tables,
        hashes_per_table=hashes_per_table,
        seed=seed,
    )
    typer.echo(f"checkpoint: {path}")


@app.command(name="eval")
def evaluate_model(
    task: Annotated[str, typer.Argument(help="match2, induction_heads, 2_hop or 4_hop.")],
    checkpoint: Annotated[Path, typer.Argument(help="Written by train or distill.")],
    family: Annotated[str | None, typer.Option(help="Other tables than the model's.")] = None,
    num_tables: Annotated[
        int | None, typer.Option("-l", "--num-tables", help="The paper's l.")
    ] = None,
    hashes_per_table: Annotated[
        int | None, typer.Option("-z", "--hashes-per-table", help="The paper's z.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(help="Fresh hash draws; 0 = the saved tables. Default: 10."),
    ] = None,
    sequences: Annotated[int, typer.Option(help="Test sequences.")] = 512,
    length: Annotated[int | None, typer.Option(help="Another length than the task's.")] = None,
    beta: Annotated[float | None, typer.Option(help="Softmax at this temperature instead.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the share of wrong tokens on test sequences, which no training has seen."""
    from anna_attn.lab.commands import evaluate_checkpoint

    found = evaluate_checkpoint(
        task,
        checkpoint,
        family=family,
        num_tables=num_tables,
        hashes_per_table=hashes_per_table,
        draws=draws,
        num_sequences=sequences,
        length=length,
        beta=beta,
    )
    if json_output:
        typer.echo(json.dumps(found))
        return
    typer.echo(
        f"{found['task']}, N = {found['length']}, {found['mechanism']}: "
        f"{found['mean']:.4%} wrong ± {found['std']:.4%} over {len(found['errors'])} draws "
        f"of {found['num_tokens']} tokens"
    )


app.add_typer(mpc, name="mpc")

bench = typer.Typer(help="Time ANNA against softmax attention.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command(name="attention")
def bench_attention(
    sizes: Annotated[
        str, typer.Option(help="Numbers of tokens, separated by commas.")
    ] = "1024,4096,16384,65536,262144",
    threads: Annotated[str, typer.Option(help="Numbers of threads, separated by commas.")] = "1,2",
    heads: Annotated[int, typer.Option(help="H.")] = 8,
    head_dim: Annotated[int, typer.Option(help="D.")] = 64,
    num_tables: Annotated[int, typer.Option("-l", "--num-tables", help="L.")] = 16,
    hashes_per_table: Annotated[int, typer.Option("-z", "--hashes-per-table", help="Z.")] = 8,
    repeats: Annotated[int, typer.Option(help="Timed calls of each, in turn.")] = 3,
    max_call_s: Annotated[float, typer.Option(help="Leave out what would take longer.")] = 20.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time full and causal attention against torch's SDPA in one run, with the error beside it.

    Ten minutes with the sizes and threads given here. It cannot resume.
    """
    from anna_attn.lab.benchmarks import AttentionBenchmark, print_results, run

    results = []
    # Progress goes to stderr, so that stdout holds tables or JSON alone.
    status = Console(stderr=True).status("starting")
    for count in _numbers("threads", threads):
        benchmark = AttentionBenchmark(
            sizes=_numbers("sizes", sizes),
            num_heads=heads,
            head_dim=head_dim,
            num_tables=num_tables,
            hashes_per_table=hashes_per_table,
            repeats=repeats,
            max_call_s=max_call_s,
            threads=count,
        )

        def progress(what: str, done: int, total: int, count: int = count) -> None:
            status.update(f"{count} threads: {what} done, {done} of {total}")

        with status:
            results.append(run(benchmark, progress=progress))
        if not json_output:
            print_results(results[-1], _wide_console())
    if json_output:
        typer.echo(json.dumps(results))


def _wide_console() -> Console:
    """A console that does not cut a table short where no terminal says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise ValueError(f"{name} is {text!r}; accepted: positive integers separated by commas")
    return numbers


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise KeyboardInterrupt


def _stop_as_by_ctrl_c() -> None:
    """A request to end, or a terminal that goes away, stops the workers as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):  # the second is unknown on Windows
        number = getattr(signal, name, None)
        # What the parent set to be ignored (nohup) stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def main() -> None:
    """Run the command line; the entry point of the command `anna`."""
    _stop_as_by_ctrl_c()
    app(prog_name="anna")
