"""What `anna mpc` does, apart from reading its options."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from anna_attn.lab import atomic
from anna_attn.mpc import Hostile, InProcess, RayEngine, Trace

from .attention_cases import ATTENTION_CASES
from .cases import WORD_CASES, Case, Options, Problem
from .reading import read_words

CASES: dict[str, Case] = {case.name: case for case in (*WORD_CASES, *ATTENTION_CASES)}
ENGINES = ("in-process", "hostile", "ray")
PLOT_ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Request:
    """Options of `anna mpc run`; see its help."""

    name: str
    n: int
    eps: float
    seed: int
    input_file: Path | None
    engine: str
    address: str | None
    check: bool
    check_locality: bool
    steps: bool
    output: Path | None
    trace: Path | None
    plot: Path | None
    options: Options


def print_cases(console: Console) -> None:
    """A table of all protocols."""
    # Cut short nowhere: a table in a pipe is as wide as it has to be.
    if not console.is_terminal:
        console = Console(width=180)
    table = Table("protocol", "gives", "rounds", "options with their defaults", box=None)
    for case in CASES.values():
        options = [f"--{name.replace('_', '-')} {value}" for name, value in case.options.items()]
        table.add_row(case.name, case.summary, case.rounds, "  ".join(options))
    console.print(table)


def run_case(request: Request, console: Console) -> None:
    """Run, report, check.

    Raises: ValueError for what cannot be used; RuntimeError for an output that is wrong; the
        violations of the model.
    """
    problem = _problem(request)
    engine = _engine(request)
    for path in (request.output, request.trace, request.plot):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{path}: there is no folder {path.parent}")
    if request.plot is not None and request.plot.suffix not in PLOT_ENDINGS:
        raise ValueError(f"{request.plot}: a plot ends in {', '.join(PLOT_ENDINGS)}")
    start = time.perf_counter()
    with _bar(console) as bar:
        task = bar.add_task(request.name, total=len(problem.protocol.steps), step="")
        result = engine.run(
            problem.protocol,
            problem.words,
            progress=lambda done, total, step: bar.update(task, completed=done, step=step),
        )
    seconds = time.perf_counter() - start
    output = problem.shown(result.output)
    _report(request, problem, result.trace, seconds, console)
    shown = ", ".join(str(word) for word in output[:12].tolist())
    more = ", ..." if len(output) > 12 else ""
    console.print(f"output: {shown}{more}", highlight=False, soft_wrap=True)
    _save(request, output, result.trace)
    if request.check:
        _check(request, problem, result.output, console)


def _problem(request: Request) -> Problem:
    case = CASES.get(request.name)
    if case is None:
        raise ValueError(f"no protocol {request.name!r}; accepted: {', '.join(CASES)}")
    if request.n < 0:
        raise ValueError(f"--n must be at least 0, got {request.n}")
    words = None if request.input_file is None else read_words(request.input_file)
    n = request.n if words is None else len(words)
    return case.problem(words, n, request.eps, request.options, request.seed)


def _engine(request: Request) -> InProcess | Hostile | RayEngine:
    if request.address is not None and request.engine != "ray":
        raise ValueError(f"--address is for --engine ray, got --engine {request.engine}")
    if request.engine == "in-process":
        return InProcess(check_locality=request.check_locality, seed=request.seed)
    if request.engine == "hostile":
        return Hostile(seed=request.seed)
    if request.engine == "ray":
        return RayEngine(
            check_locality=request.check_locality, seed=request.seed, address=request.address
        )
    raise ValueError(f"no engine {request.engine!r}; accepted: {', '.join(ENGINES)}")


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[step]}"),
        console=Console(stderr=True),
        transient=True,
        disable=not console.is_terminal,
    )


def _report(
    request: Request, problem: Problem, trace: Trace, seconds: float, console: Console
) -> None:
    if request.steps:
        print(trace.table())
    console.print(
        f"{request.name}: {problem.protocol.num_words:,} words on {trace.num_machines:,} machines "
        f"of {trace.local_memory:,} words of {trace.word_bits} bits, eps = {request.eps:g}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"rounds {trace.num_rounds} (at most {problem.protocol.num_rounds}), "
        f"most words kept {trace.peak_memory_words:,}, moved {trace.peak_message_words:,}, "
        f"messages {trace.num_messages:,}, {seconds:.2f} s on {request.engine}",
        highlight=False,
        soft_wrap=True,
    )


def _save(request: Request, output: np.ndarray, trace: Trace) -> None:
    if request.output is not None:
        if request.output.suffix == ".npy":
            np.save(request.output, output)
        else:
            lines = "".join(f"{word}\n" for word in output.tolist())
            atomic.write_text(request.output, lines)
    if request.trace is not None:
        atomic.write_json(request.trace, trace.to_dict())
    if request.plot is not None:
        trace.plot(request.plot)


def _check(request: Request, problem: Problem, output: np.ndarray, console: Console) -> None:
    wrong = problem.wrong(output)
    if wrong is None:
        console.print("not checked: the sequential answer would take too long at this size")
    elif wrong:
        raise RuntimeError(f"{request.name} differs from the sequential answer: {wrong}")
    else:
        console.print("checked: right, by the sequential answer")
