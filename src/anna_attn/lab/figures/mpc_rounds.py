"""How the rounds of the protocols grow: not with N, with log N, with log k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from anna_attn.lab.figures import style
from anna_attn.lab.mpc_runs.command import CASES
from anna_attn.mpc import InProcess

CONSTANT = ("prefix-sum", "induction-heads", "match2", "sort", "three-sum", "anna-attention")
"""Protocols whose rounds do not grow with N at fixed eps."""

OPTIONS: dict[str, dict[str, int | str | bool]] = {
    "match2": {"modulus": 1000},
    "anna-attention": {"tables": 1, "value_dim": 1},
}
"""Where the default would grow with N itself, or a token would outgrow its machine."""

LARGEST = {"three-sum": 1 << 13, "anna-attention": 1 << 14}
"""N up to which these are run; their answers take time in N^2, or their machines memory."""

SIZES = tuple(1 << d for d in range(8, 17))
HOPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GRAPHS = ("cycle", "random", "star")

CAPTION = (
    "Rounds that runs took, every output checked against the sequential answer; eps = 1/2. Left: "
    "at fixed eps the rounds do not grow with N; those of sorting 32-bit words fall, because a "
    "digit has more bits where machines have more words. Middle: the phases of connectivity, mean "
    "and range of seeds; half of the names of a cycle are left after each. Right: rounds of k-hop "
    "over N = 4,096 against k."
)


def run(
    *,
    sizes: Sequence[int] = SIZES,
    hops: Sequence[int] = HOPS,
    seeds: Sequence[int] = (0, 1, 2),
    progress: Callable[[str, int, int], None] | None = None,
) -> dict:
    """Run everything and count rounds.

    Args:
        sizes: N, at least two.
        hops: k, at least two.
        seeds: of graphs and of orders; other protocols have the rounds of their sizes.
        progress: told after each run.
    Returns: {"figure", "eps", "seeds", "constant": [{"name", "sizes", "rounds", "slope"}],
        "connectivity": [{"graph", "sizes", "phases", "rounds", "slope"}], "k_hop": {"hops",
        "rounds", "slope"}}, JSON-able. Slopes are of least squares in log2 of N or k; phases and
        rounds of connectivity have a list for each N.
    Raises: ValueError for fewer than two sizes or hops; RuntimeError where an output is wrong.
    """
    for name, given in (("sizes", sizes), ("hops", hops)):
        if len(set(given)) < 2:
            raise ValueError(f"{name} is {tuple(given)}; accepted: at least two that differ")
    total = len(CONSTANT) + len(GRAPHS) + 1
    done = 0

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(what, done, total)

    constant = []
    for name in CONSTANT:
        own = [n for n in sizes if n <= LARGEST.get(name, n)]
        rounds = [_rounds(name, n, OPTIONS.get(name, {}), 0)[0] for n in own]
        constant.append({"name": name, "sizes": own, "rounds": rounds, "slope": slope(own, rounds)})
        advance(name)
    graphs = []
    for graph in GRAPHS:
        runs = [[_rounds("connectivity", n, {"graph": graph}, s) for s in seeds] for n in sizes]
        phases = [[phases for _, phases in of_size] for of_size in runs]
        graphs.append(
            {
                "graph": graph,
                "sizes": list(sizes),
                "phases": phases,
                "rounds": [[rounds for rounds, _ in of_size] for of_size in runs],
                "slope": slope(sizes, [float(np.mean(of_size)) for of_size in phases]),
            }
        )
        advance(f"connectivity, {graph}")
    rounds = [_rounds("k-hop", 4096, {"hops": k}, 0)[0] for k in hops]
    advance("k-hop")
    return {
        "figure": "mpc_rounds",
        "eps": 0.5,
        "seeds": list(seeds),
        "constant": constant,
        "connectivity": graphs,
        "k_hop": {"hops": list(hops), "rounds": rounds, "slope": slope(hops, rounds)},
    }


def slope(sizes: Sequence[int], counts: Sequence[float]) -> float:
    """Of counts against log2 of sizes, by least squares."""
    return float(np.polyfit(np.log2(sizes), counts, 1)[0]) if len(sizes) > 1 else 0.0


def _rounds(name: str, n: int, options: dict, seed: int) -> tuple[int, int]:
    """Rounds and phases of a run whose output is right.

    Raises: RuntimeError where it is not.
    """
    problem = CASES[name].problem(None, n, 0.5, options, seed)
    result = InProcess().run(problem.protocol, problem.words)
    wrong = problem.wrong(result.output)
    if wrong != "":
        raise RuntimeError(f"{name}, N = {n}: the output is wrong or not checked: {wrong}")
    phases = sum(step.name.endswith(": decide") for step in result.trace.steps)
    return result.trace.num_rounds, phases


def plot(results: dict, path: Path | str) -> Path:
    """Draw the three panels side by side."""
    with style.drawing():
        figure = style.new_figure(12.4, 4.4)
        left, middle, right = figure.subplots(1, 3)
        for index, panel in enumerate(results["constant"]):
            label = f"{panel['name']} ({panel['slope']:+.1f} a doubling)"
            left.plot(panel["sizes"], panel["rounds"], label=label, **style.look(index))
        left.set(xscale="log", title="rounds at fixed eps", xlabel="N", ylabel="rounds", ylim=0)
        for index, panel in enumerate(results["connectivity"]):
            means = [float(np.mean(of_size)) for of_size in panel["phases"]]
            spread = [
                [mean - min(one) for mean, one in zip(means, panel["phases"], strict=True)],
                [max(one) - mean for mean, one in zip(means, panel["phases"], strict=True)],
            ]
            label = f"{panel['graph']} ({panel['slope']:+.2f} a doubling)"
            middle.errorbar(panel["sizes"], means, spread, label=label, **style.look(index))
        middle.set(xscale="log", title="phases of connectivity", xlabel="vertices", ylim=0)
        hops = results["k_hop"]
        label = f"k-hop ({hops['slope']:+.1f} a doubling)"
        right.plot(hops["hops"], hops["rounds"], label=label, **style.look(0))
        right.set(xscale="log", title="rounds of k-hop", xlabel="k", ylim=0)
        for axes in (left, middle):
            axes.set_xscale("log", base=2)
        right.set_xscale("log", base=2)
        for axes in (left, middle, right):
            axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16))
        return style.save(figure, path)
