"""Figure 1a: Match2 error against the number of hash tables, one line per z."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anna_attn.lab.figures import style
from anna_attn.lab.figures.sweep import Evaluations, Method, Progress, measure, panel_title
from anna_attn.lab.tasks import label_balance


def run(
    methods: Sequence[Method],
    on: Evaluations,
    tables_list: Sequence[int],
    *,
    progress: Progress | None = None,
) -> dict:
    """Measure each method at each (number of tables, z).

    Args:
        methods: one panel each.
        on: task, sequences and hash draws (test split).
        tables_list: numbers of tables, the x axis.
        progress: told after each point.
    Returns: {"figure", "evaluations", "constant_error", "methods": [{"label", "family_name",
        "num_runs", "baselines", "points": [as `sweep.measure`]}]}, JSON-able.
    Cost: runs x draws forward passes per point over all sequences.
    Source: Liu et al. 2025 (arXiv:2509.09001), Figure 1a; the spread is ours.
    """
    batches = on.batches("test")
    total = sum(len(method.z_list) * len(tables_list) for method in methods)
    done, panels = 0, []
    for method in methods:
        points = []
        for z in method.z_list:
            for num_tables in tables_list:
                points.append(measure(method, z, num_tables, on, batches))
                done += 1
                if progress is not None:
                    progress(f"{method.label}: z = {z}, {num_tables} tables", done, total)
        panels.append(
            {
                "label": method.label,
                "family_name": method.family_name,
                "num_runs": len(method.runs),
                "baselines": dict(method.baselines),
                "points": points,
            }
        )
    return {
        "figure": "figure_1a",
        "evaluations": on.to_dict(),
        "num_tokens": sum(int(batch.mask.sum()) for batch in batches),
        "constant_error": 1 - max(label_balance(on.task)),
        "methods": panels,
    }


def plot(results: dict, path: Path | str) -> Path:
    """Draw one panel per method: error against tables, one line per z, spread as bands.

    The error axis is logarithmic down to one wrong token per draw and linear below, so that zero
    has a place.
    """
    panels = results["methods"]
    # One wrong token in one draw, to the power of ten below it.
    smallest = 10.0 ** -len(str(results["num_tokens"]))
    with style.drawing():
        figure = style.new_figure(4.6 * len(panels) + 0.4, 3.9)
        axes_row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(axes_row, panels, strict=True):
            _draw_panel(axes, panel)
            axes.axhline(results["constant_error"], color=style.INK, ls=":", lw=1)
            axes.text(
                0.98,
                results["constant_error"] * 1.15,
                "always the most frequent answer",
                transform=axes.get_yaxis_transform(),
                ha="right",
                va="bottom",
                fontsize=8,
            )
            axes.set_yscale("symlog", linthresh=smallest, linscale=0.4)
            axes.set_ylim(-0.3 * smallest, 1.0)
        axes_row[0].set_ylabel("share of wrong tokens")
        return style.save(figure, path)


def _draw_panel(axes, panel: dict) -> None:
    for index, z in enumerate(sorted({point["z"] for point in panel["points"]})):
        points = sorted(
            (point for point in panel["points"] if point["z"] == z), key=lambda p: p["num_tables"]
        )
        tables = [point["num_tables"] for point in points]
        mean = [point["mean"] for point in points]
        low = [max(0.0, point["mean"] - point["std"]) for point in points]
        high = [point["mean"] + point["std"] for point in points]
        look = style.look(index)
        axes.plot(tables, mean, label=f"z = {z}", **look)
        axes.fill_between(tables, low, high, color=look["color"], alpha=0.18, lw=0)
    for number, (label, error) in enumerate(panel["baselines"].items()):
        axes.axhline(error, color=style.INK, ls=("--", "-.")[number % 2], lw=1.1, label=label)
    axes.set_xscale("log", base=2)
    tables = sorted({point["num_tables"] for point in panel["points"]})
    axes.set_xticks(tables, [str(count) for count in tables])
    axes.set_xlabel("hash tables")
    axes.set_title(panel_title(panel))
    axes.legend(loc="best")


def table(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the numbers behind the figure."""
    columns = ["method", "z", "tables", "mean error", "std", "lowest", "highest", "values"]
    rows = []
    for panel in results["methods"]:
        for point in panel["points"]:
            numbers = [f"{100 * point[key]:.3f}%" for key in ("mean", "std", "low", "high")]
            values = str(sum(len(run_errors) for run_errors in point["errors"]))
            where = [panel["label"], str(point["z"]), str(point["num_tables"])]
            rows.append([*where, *numbers, values])
    return columns, rows
