"""Time against sequence length, softmax and ANNA, with the error beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anna_attn.lab.benchmarks import attention
from anna_attn.lab.benchmarks.display import HEADINGS, cells, skipped, warning
from anna_attn.lab.figures import style

_LABELS = {
    "sdpa": "softmax (SDPA)",
    "torch": "ANNA, Algorithm 1 (torch)",
    "torch_one_table": "ANNA, Algorithm 2 (torch)",
}


def run(
    benchmark: attention.AttentionBenchmark,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict:
    """Time and errors, as `benchmarks.attention.run`, under "figure": "scaling"."""
    return {"figure": "scaling", **attention.run(benchmark, progress=progress)}


def plot(results: dict, path: Path | str) -> Path:
    """Draw time (above) and relative error (below) against N, full and causal side by side."""
    orders = sorted({row["is_causal"] for row in results["rows"]})
    with style.drawing():
        figure = style.new_figure(4.6 * len(orders) + 0.4, 6.0)
        grid = figure.subplots(2, len(orders), sharex=True, sharey="row", squeeze=False)
        for column, is_causal in enumerate(orders):
            rows = [r for r in results["rows"] if r["is_causal"] == is_causal]
            rows = [r for r in rows if "skipped" not in r]
            _draw_times(grid[0][column], rows, "causal" if is_causal else "full")
            _draw_errors(grid[1][column], rows, results["softmax_scale"])
        grid[0][0].set_ylabel("time of one call (ms)")
        grid[1][0].set_ylabel("relative error")
        return style.save(figure, path)


def _methods(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _draw_times(axes, rows: list[dict], order: str) -> None:
    for index, method in enumerate(_methods(rows)):
        mine = [row for row in rows if row["method"] == method]
        sizes = [row["num_tokens"] for row in mine]
        look = style.look(index)
        axes.plot(
            sizes, [1e3 * r["median_s"] for r in mine], label=_LABELS.get(method, method), **look
        )
        low, high = [1e3 * r["min_s"] for r in mine], [1e3 * r["max_s"] for r in mine]
        axes.fill_between(sizes, low, high, color=look["color"], alpha=0.18, lw=0)
    axes.set(xscale="log", yscale="log", title=f"{order} attention")
    axes.legend(loc="upper left")


def _draw_errors(axes, rows: list[dict], softmax_scale: float) -> None:
    # One ANNA method stands for all: they return the same numbers up to rounding.
    method = next((m for m in _methods(rows) if m != attention.SDPA), None)
    mine = [row for row in rows if row["method"] == method]
    sizes = [row["num_tokens"] for row in mine]
    series = {
        "error_softmax": f"ANNA against exact softmax, scale {softmax_scale:.3g}",
        "error_expected": "ANNA against its expected kernel",
    }
    for index, (name, label) in enumerate(series.items(), start=3):
        axes.plot(sizes, [row[name] for row in mine], label=label, **style.look(index))
    axes.set(xscale="log", xlabel="sequence length N (tokens)")
    _tick_sizes(axes, rows)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best")


def _tick_sizes(axes, rows: list[dict]) -> None:
    """Mark the measured sizes themselves, with k for 1,024, rather than powers of ten."""
    sizes = sorted({row["num_tokens"] for row in rows})
    labels = [f"{size // 1024}k" if size % 1024 == 0 else str(size) for size in sizes]
    axes.set_xticks(sizes, labels)
    axes.set_xticks([], minor=True)


def table(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the numbers behind the figure; what was not run is said."""
    return list(HEADINGS), [cells(row) for row in results["rows"]]


def notes(results: dict) -> list[str]:
    """Sentences for what was left out and why, and whether the machine was busy."""
    busy = warning(results)
    left_out = [f"{what} was not run: {why}." for what, why in skipped(results)]
    return ([] if busy is None else [busy]) + left_out
