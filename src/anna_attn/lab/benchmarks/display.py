"""Benchmark results as tables in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from anna_attn.lab.benchmarks.attention import linearity

BUSY = 0.5

HEADINGS = (
    "N",
    "order",
    "method",
    "median ms",
    "min-max ms",
    "ns/token",
    "x SDPA",
    "error: softmax",
    "error: expected",
)


def cells(row: dict) -> list[str]:
    """One row of `attention.run` as text, in the order of HEADINGS."""
    where = [f"{row['num_tokens']:,}", "causal" if row["is_causal"] else "full", row["method"]]
    if "skipped" in row:
        return [*where, "not run", *[""] * (len(HEADINGS) - 4)]
    speedup = ""
    if "speedup" in row:
        speedup = f"{row['speedup']:.2f} ({row['speedup_low']:.2f}-{row['speedup_high']:.2f})"
    expected = f"{row['error_expected']:.2e}" if "error_expected" in row else ""
    return [
        *where,
        f"{1e3 * row['median_s']:.2f}",
        f"{1e3 * row['min_s']:.2f}-{1e3 * row['max_s']:.2f}",
        f"{row['ns_per_token']:.0f}",
        speedup,
        f"{row['error_softmax']:.2e}",
        expected,
    ]


def title(results: dict) -> str:
    """What was timed, in one line."""
    fields = results["benchmark"]
    return (
        f"{fields['num_heads']} heads of {fields['head_dim']}, float32, batch 1, "
        f"{fields['family']} L = {fields['num_tables']}, Z = {fields['hashes_per_table']}, "
        f"{results['threads']} threads, {fields['repeats']} repeats in turn"
    )


def warning(results: dict) -> str | None:
    """A sentence if the machine was busy before the run, else None."""
    load = results["load_per_core"]
    if load is None or load < BUSY:
        return None
    return f"The machine was busy before this run (load {load:.1f} per core): times are unreliable."


def skipped(results: dict) -> list[tuple[str, str]]:
    """What was left out, and why, for each measurement."""
    left_out = []
    for row in results["rows"]:
        if "skipped" in row:
            order = "causal" if row["is_causal"] else "full"
            what = f"{row['method']} ({order}, N = {row['num_tokens']:,})"
            left_out.append((what, row["skipped"]))
    return left_out


def print_results(results: dict, console: Console) -> None:
    """Print times with errors, what was not run and why, and the cost per token."""
    table = Table(title=title(results), title_justify="left", caption_justify="left")
    table.caption = (
        "x SDPA: SDPA's time over this one's (range: from the extremes). Errors: relative, against "
        f"exact softmax attention (scale {results['softmax_scale']:.3g}) and against the expected "
        "collision kernel."
    )
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number in (1, 2) else "right")
    for row in results["rows"]:
        table.add_row(*cells(row))
    console.print(table)
    if (busy := warning(results)) is not None:
        console.print(busy)
    for what, why in skipped(results):
        console.print(f"not run: {what}: {why}")
    lines = linearity(results)
    if len({line["num_tokens"] for line in lines}) > 1:
        console.print(_linearity_table(lines))


def _linearity_table(lines: list[dict]) -> Table:
    table = Table(title="cost per token; ratio to the first size", title_justify="left")
    for heading in ("method", "order", "N", "ns/token", "ratio"):
        table.add_column(heading, justify="left" if heading in ("method", "order") else "right")
    for line in lines:
        order = "causal" if line["is_causal"] else "full"
        numbers = [f"{line['num_tokens']:,}", f"{line['ns_per_token']:.0f}", f"{line['ratio']:.2f}"]
        table.add_row(line["method"], order, *numbers)
    return table
