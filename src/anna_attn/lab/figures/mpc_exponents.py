"""Machines that ANNA and softmax attention need, against Theorem 4.2's exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from anna_attn.lab.figures import style
from anna_attn.lab.figures.mpc_cases import AnnaCase, Case, SoftmaxCase
from anna_attn.mpc import InProcess

CAPTION = (
    "Machines of the two protocols, tables counted, with the exponents fitted to all points and "
    "the formulas' in brackets. Filled points were run and compared with all pairs, word for word; "
    "at hollow ones the protocol was built but not run. Left: Theorem 4.2's "
    "N^(1 + ε - ε' + 3 rho), with N^ε words a token, N^ε' words a machine and N^(3 rho) tables. "
    "Right: a square of blocks for all pairs of tokens. It needs N^2 machines where a block does "
    "not grow, as in the simulation of standard transformers, and N^(2 (1 + ε + δ - ε')) where "
    "blocks fill N^ε' words at fan-in N^δ: the fair comparison at equal memory, which ANNA wins "
    "while 3 rho < 1 + ε + 2 δ - ε'."
)

DEFAULT_CASES: tuple[Case, ...] = (
    AnnaCase(eps=0.25, memory=0.75, tables=0.0),
    AnnaCase(eps=0.25, memory=0.75, tables=0.25),
    AnnaCase(eps=0.25, memory=0.75, tables=0.5),
    AnnaCase(eps=0.25, memory=0.625, tables=0.0),
    SoftmaxCase(eps=0.0, memory=None),
    SoftmaxCase(eps=0.25, memory=0.75),
)
SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
FULL_WORDS = 1 << 28
QUICK_WORDS = 1 << 22
TITLES = {"anna": "ANNA attention", "softmax": "softmax attention"}


def run(
    *,
    cases: Sequence[Case] = DEFAULT_CASES,
    sizes: Sequence[int] = SIZES,
    max_words: int = QUICK_WORDS,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict:
    """Count machines over N, fit exponents, and run what is small enough.

    Args:
        cases: protocols with their exponents.
        sizes: N, at least two; the fits take all of them.
        max_words: a protocol is run where its machines have at most so many words together, and
            only built elsewhere: the machines, words and rounds are those of the protocol anyway.
        seed: of the inputs.
        progress: told after each (case, N).
    Returns: {"figure", "seed", "max_words", "cases": [{"name", "setting", "machines_exponent",
        "machines_formula", "memory_exponent", "memory_formula", "points": [{"num_tokens",
        "tokens_per_machine", "machines", "local_memory", "rounds", "wrong_words",
        "peak_memory_words", "peak_message_words"}]}]}, JSON-able. Exponents are slopes of least
        squares in log N; the last three of a point are None where it was only built.
    Cost: a run takes some tens of bytes of memory per word of all machines, and its answer O(N^2 L)
        comparisons.
    Source: Liu et al. 2025 (arXiv:2509.09001), Theorem 4.2 with 3 rho for its 3 / c^2, and the N^2
        of the text after it.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"sizes is {tuple(sizes)}; accepted: at least two that differ")
    panels, done = [], 0
    for case in cases:
        points = []
        for num_tokens in sizes:
            points.append(_point(case, num_tokens, max_words, seed))
            done += 1
            if progress is not None:
                what = f"{case.name}, {case.setting}, N = {num_tokens}"
                progress(what, done, len(cases) * len(sizes))
        panels.append(
            {
                "name": case.name,
                "setting": case.setting,
                "machines_exponent": _slope(points, "machines"),
                "machines_formula": case.machines_exponent,
                "memory_exponent": _slope(points, "local_memory"),
                "memory_formula": case.memory_exponent,
                "points": points,
            }
        )
    return {"figure": "mpc_exponents", "seed": seed, "max_words": max_words, "cases": panels}


def _point(case: Case, num_tokens: int, max_words: int, seed: int) -> dict:
    protocol = case.protocol(num_tokens)
    point = {
        "num_tokens": num_tokens,
        "tokens_per_machine": case.tokens_per_machine(num_tokens),
        "machines": protocol.num_machines,
        "local_memory": protocol.local_memory,
        "rounds": protocol.num_rounds,
        "wrong_words": None,
        "peak_memory_words": None,
        "peak_message_words": None,
    }
    if protocol.num_machines * protocol.local_memory > max_words:
        return point
    words = case.words(num_tokens, seed)
    result = InProcess().run(protocol, words)
    return {
        **point,
        "wrong_words": int(np.count_nonzero(result.output != case.answer(num_tokens, words))),
        "peak_memory_words": result.trace.peak_memory_words,
        "peak_message_words": result.trace.peak_message_words,
    }


def _slope(points: list[dict], name: str) -> float:
    """Of log `name` against log N."""
    sizes = np.log([point["num_tokens"] for point in points])
    return float(np.polyfit(sizes, np.log([point[name] for point in points]), 1)[0])


def plot(results: dict, path: Path | str) -> Path:
    """Draw machines against N, ANNA and softmax side by side."""
    names = list(dict.fromkeys(panel["name"] for panel in results["cases"]))
    with style.drawing():
        figure = style.new_figure(5.0 * len(names) + 0.4, 4.6)
        axes_row = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(axes_row, names, strict=True):
            panels = [panel for panel in results["cases"] if panel["name"] == name]
            for index, panel in enumerate(panels):
                _draw(axes, panel, index)
            sizes = sorted({point["num_tokens"] for panel in panels for point in panel["points"]})
            axes.set(xscale="log", yscale="log", title=TITLES[name], xlabel="number of tokens N")
            labels = [f"{size // 1024}k" if size % 1024 == 0 else str(size) for size in sizes]
            axes.set_xticks(sizes, labels)
            axes.set_xticks([], minor=True)
            # Room for the legend above the curves.
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.08))
        axes_row[0].set_ylabel("machines")
        return style.save(figure, path)


def _draw(axes, panel: dict, index: int) -> None:
    look, points = style.look(index), panel["points"]
    label = f"{panel['setting']}: N^{panel['machines_exponent']:.2f}"
    label += f" (N^{panel['machines_formula']:g})"
    sizes = [point["num_tokens"] for point in points]
    axes.plot(sizes, [point["machines"] for point in points], label=label, **look)
    built = [point for point in points if point["wrong_words"] is None]
    axes.plot(
        [point["num_tokens"] for point in built],
        [point["machines"] for point in built],
        ls="none",
        markerfacecolor="white",
        **look,
    )


def table(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the numbers behind the figure."""
    columns = [
        "attention",
        "setting",
        "N",
        "tokens a machine",
        "machines",
        "local memory",
        "rounds",
    ]
    columns += ["most words kept", "most words moved", "wrong words"]
    rows = []
    for panel in results["cases"]:
        for point in panel["points"]:
            counts = ("num_tokens", "tokens_per_machine", "machines", "local_memory", "rounds")
            used = ("peak_memory_words", "peak_message_words", "wrong_words")
            rows.append(
                [
                    panel["name"],
                    panel["setting"],
                    *(f"{point[name]:,}" for name in counts),
                    *("not run" if point[name] is None else f"{point[name]:,}" for name in used),
                ]
            )
    return columns, rows


def fits(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of fitted exponents beside the formulas'."""
    columns = ["attention", "setting", "machines", "formula", "local memory", "formula"]
    rows = []
    for panel in results["cases"]:
        names = ("machines_exponent", "machines_formula", "memory_exponent", "memory_formula")
        rows.append([panel["name"], panel["setting"], *(f"{panel[name]:.3f}" for name in names)])
    return columns, rows
