"""`anna reproduce`: run a plan's jobs, draw the figures, write the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from anna_attn.lab import atomic, experiments, provenance, report, verdict
from anna_attn.lab.benchmarks import AttentionBenchmark, linearity
from anna_attn.lab.experiments import Plan
from anna_attn.lab.figures import figure_1a, figure_1b, remark_3_6, scaling, theorem_3_4
from anna_attn.lab.jobs import cached, run_jobs
from anna_attn.lab.lock import exclusive
from anna_attn.lab.report import Picture, Report, Section, Table
from anna_attn.lab.tasks import get_task

WORK = "work"
FIGURES = "figures"


def reproduce(plan: Plan, out: Path, *, console: Console, command: str) -> Path:
    """Run everything a plan asks for and write the report.

    Args:
        plan: `experiments.QUICK` or `experiments.FULL`.
        out: gets index.html and results.json; models and kept results below out/work.
        command: shown beside every figure.
    Returns: the path of index.html.
    Raises: OSError if `out` cannot be written or another run is writing there; the errors of
        training.
    """
    check_writable(out)
    work = out / WORK
    work.mkdir(exist_ok=True)
    with exclusive(work):
        return _reproduce(plan, out, work, console, command)


def _reproduce(plan: Plan, out: Path, work: Path, console: Console, command: str) -> Path:
    for name in ("match2", "induction_heads"):
        console.print(get_task(name).describe())
    results = run_jobs(experiments.jobs(plan), work, console=console)
    results["scaling"] = _scaling(plan, work, console)
    page = report.write(_report(plan, results, out, command), out)
    console.print(verdict.console_table(results))
    return page


def check_writable(folder: Path) -> None:
    """Make the folder and try it before hours are spent.

    Raises: OSError naming the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / ".writable", "").unlink()


def _scaling(plan: Plan, work: Path, console: Console) -> dict[str, Any]:
    """Timed alone, after everything else, on all cores."""
    benchmark = AttentionBenchmark(
        sizes=plan.scaling_sizes, repeats=plan.scaling_repeats, max_call_s=8.0
    )
    settings = {**asdict(benchmark), "threads_used": torch.get_num_threads()}
    with console.status("timing attention against SDPA"):
        return cached("scaling", settings, work, lambda: scaling.run(benchmark))


def _report(plan: Plan, results: dict[str, Any], out: Path, command: str) -> Report:
    made = provenance.collect(command, plan.seeds)
    figures = out / FIGURES
    figures.mkdir(exist_ok=True)

    def picture(name: str, plot: Callable[[dict, Path], Path], caption: str) -> Picture:
        return Picture(plot(results[name], figures / f"{name}.svg"), caption)

    def section(name: str, title: str, text: list[str], pictures, tables) -> Section:
        return Section(name, title, text, pictures, tables, made)

    sections = [
        section(
            "figure_1a",
            "Figure 1a: Match2",
            verdict.match2_text(results["figure_1a"]),
            [picture("figure_1a", figure_1a.plot, "Share of wrong tokens against hash tables.")],
            [_numbers(figure_1a.table(results["figure_1a"]))],
        ),
        section(
            "figure_1b",
            "Figure 1b: induction heads",
            verdict.induction_text(results["figure_1b"]),
            [picture("figure_1b", figure_1b.plot, "Share of wrong tokens by tables per layer.")],
            [_numbers(figure_1b.table(results["figure_1b"]))],
        ),
        section(
            "hops",
            "Induction heads and k-hop on fresh sequences",
            verdict.HOPS_TEXT,
            [],
            [verdict.hops_table(results["hops"])],
        ),
        section(
            "theorem_3_4",
            "Theorem 3.4: Algorithm 1 is an ANNA mechanism",
            [],
            [picture("theorem_3_4", theorem_3_4.plot, theorem_3_4.CAPTION)],
            [_numbers(theorem_3_4.table(results["theorem_3_4"]))],
        ),
        section(
            "remark_3_6",
            "Remark 3.6: weights fall with distance",
            [],
            [picture("remark_3_6", remark_3_6.plot, remark_3_6.CAPTION)],
            [_numbers(remark_3_6.table(results["remark_3_6"]))],
        ),
        section(
            "scaling",
            "Time against context length",
            scaling.notes(results["scaling"]),
            [picture("scaling", scaling.plot, "Time of one call and its error, full and causal.")],
            [_numbers(scaling.table(results["scaling"])), _linearity(results["scaling"])],
        ),
    ]
    return Report(
        title=f"anna-attn: {plan.name} reproduction",
        summary=verdict.summary(plan.name),
        sections=sections,
        provenance=made,
        results=results,
        headlines=verdict.headlines(results),
    )


def _numbers(table: tuple[list[str], list[list[str]]]) -> Table:
    columns, rows = table
    return Table(columns, rows, "every point of the figure", folded=True)


def _linearity(results: dict[str, Any]) -> Table:
    lines = linearity(results)
    columns = list(lines[0]) if lines else []
    rows = [[_cell(line[column]) for column in columns] for line in lines]
    return Table(columns, rows, "time per token at growing lengths", folded=True)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
