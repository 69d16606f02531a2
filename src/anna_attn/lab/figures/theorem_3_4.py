"""Theorem 3.4: with its parameters, how often does Definition 3.3 hold on planted neighbours?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from anna_attn.attention import attention_weights, check_definition_3_3
from anna_attn.lab.figures import style
from anna_attn.lsh import (
    Euclidean,
    Family,
    HashTables,
    Hyperplane,
    TheoremParameters,
    family_to_dict,
    theorem_3_4,
)

try:
    from scipy.stats import beta
except ImportError as error:
    raise ImportError(
        "the intervals of this figure need scipy; install it with: pip install 'anna-attn[lab]'"
    ) from error

CAPTION = (
    "Share of hash seeds for which Algorithm 1 satisfies Definition 3.3 on the same planted data, "
    "with Clopper-Pearson 95% intervals, against the promised 1 - eta (a union bound over all "
    "pairs, so measured shares lie well above it). The control uses an eighth of the tables: that "
    "it fails shows that the checker can."
)
CONTROL_FRACTION = 8


@dataclass(frozen=True)
class Case:
    """One family with the radius and approximation factor it is asked to serve."""

    family: Family
    radius: float
    approx_factor: float

    @property
    def label(self) -> str:
        """For panels and tables."""
        fields = family_to_dict(self.family)
        return f"{fields['name']}, r = {self.radius:g}, c = {self.approx_factor:g}"


DEFAULT_CASES = (
    Case(Hyperplane(32, rotation="gaussian"), radius=0.2, approx_factor=6.0),
    Case(Euclidean(32, width=8.0), radius=1.0, approx_factor=8.0),
)
QUICK_SIZES = (64, 256)
FULL_SIZES = (64, 128, 256, 512, 1024)


def planted(case: Case, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries and keys in which both clauses of Definition 3.3 are at their hardest.

    Key j < n/2 lies just within r of query j; key n/2 + j lies just beyond c r of query j. All
    else is random: unit vectors for the angular families, well apart for the Euclidean one.

    Returns: query, key (n, D) float64.
    """
    generator = torch.Generator().manual_seed(seed)
    dim = case.family.dim
    draw = torch.randn(2, n, dim, generator=generator, dtype=torch.float64)
    on_sphere = case.family.measure == "angle"
    far = case.radius * case.approx_factor
    # Random points of norm far * 2 are about 2 sqrt 2 far apart, beyond the reach of the check.
    query = torch.nn.functional.normalize(draw[0], dim=-1) * (1.0 if on_sphere else 2 * far)
    near_count = (n + 1) // 2
    # Margins keep each pair on its side of the boundary under rounding, and beyond the checker's
    # relative tolerance of 1e-6 on c r.
    distance = torch.full((n, 1), case.radius * (1 - 1e-6), dtype=torch.float64)
    distance[near_count:] = far * (1 + 1e-3)
    base = torch.cat([query[:near_count], query[: n - near_count]])
    if not on_sphere:
        return query, base + distance * torch.nn.functional.normalize(draw[1], dim=-1)
    tangent = draw[1] - (draw[1] * base).sum(dim=-1, keepdim=True) * base
    angle = 2 * torch.asin(distance / 2)
    tangent = torch.nn.functional.normalize(tangent, dim=-1)
    return query, torch.cos(angle) * base + torch.sin(angle) * tangent


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact binomial interval of Clopper and Pearson (1934) for a success probability."""
    tail = (1 - confidence) / 2
    low, high = 0.0, 1.0
    if successes > 0:
        low = float(beta.ppf(tail, successes, trials - successes + 1))
    if successes < trials:
        high = float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


def run(
    *,
    cases: Sequence[Case] = DEFAULT_CASES,
    sizes: Sequence[int] = QUICK_SIZES,
    num_seeds: int = 40,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict:
    """Draw tables with Theorem 3.4's parameters and check Definition 3.3, over many seeds.

    Args:
        cases: families with r and c.
        sizes: numbers of tokens n.
        num_seeds: independent draws of all tables, on the same data.
        seed: of the data and the first draw.
        progress: told after each (case, n).
    Returns: {"figure", "num_seeds", "cases": [{"label", "points": [{"n", "rho", "num_tables",
        "hashes_per_table", "promised", "holds", "low", "high", "control_tables",
        "control_holds", "control_low", "control_high", "work", "work_law"}]}]}, JSON-able; "holds"
        is a share. "work" = n L Z hashes, "work_law" = n^{1 + 3 rho}.
    Cost: O(num_seeds L n^2) per point: the check is dense.
    Source: Liu et al. 2025 (arXiv:2509.09001), Theorem 3.4 and Definition 3.3 with the null key.
    """
    panels, done = [], 0
    for case in cases:
        points = []
        for n in sizes:
            points.append(_point(case, n, num_seeds, seed))
            done += 1
            if progress is not None:
                progress(f"{case.label}, n = {n}", done, len(cases) * len(sizes))
        panels.append({"label": case.label, "points": points})
    return {"figure": "theorem_3_4", "num_seeds": num_seeds, "seed": seed, "cases": panels}


def _point(case: Case, n: int, num_seeds: int, seed: int) -> dict:
    parameters = theorem_3_4(n, case.radius, case.approx_factor, case.family)
    fewer = replace(parameters, num_tables=max(1, parameters.num_tables // CONTROL_FRACTION))
    query, key = planted(case, n, seed)
    seeds = range(seed, seed + num_seeds)
    holds = sum(_holds(case, parameters, query, key, s) for s in seeds)
    control = sum(_holds(case, fewer, query, key, s) for s in seeds)
    low, high = clopper_pearson(holds, num_seeds)
    control_low, control_high = clopper_pearson(control, num_seeds)
    return {
        "n": n,
        "rho": parameters.rho,
        "num_tables": parameters.num_tables,
        "hashes_per_table": parameters.hashes_per_table,
        "promised": 1 - parameters.failure_probability,
        "holds": holds / num_seeds,
        "low": low,
        "high": high,
        "control_tables": fewer.num_tables,
        "control_holds": control / num_seeds,
        "control_low": control_low,
        "control_high": control_high,
        "work": n * parameters.num_tables * parameters.hashes_per_table,
        "work_law": n ** (1 + 3 * parameters.rho),
    }


def _holds(
    case: Case, parameters: TheoremParameters, query: Tensor, key: Tensor, seed: int
) -> bool:
    tables = HashTables(case.family, parameters.num_tables, parameters.hashes_per_table, seed=seed)
    weights = attention_weights(tables(query[None, None]), tables(key[None, None]))[0, 0]
    report = check_definition_3_3(
        weights, query, key, case.radius, case.approx_factor, parameters.num_tables
    )
    return report.holds


def plot(results: dict, path: Path | str) -> Path:
    """Draw measured against promised shares, one panel per case."""
    panels = results["cases"]
    with style.drawing():
        figure = style.new_figure(4.6 * len(panels) + 0.4, 3.7)
        axes_row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(axes_row, panels, strict=True):
            points = panel["points"]
            sizes = [point["n"] for point in points]
            promised = [point["promised"] for point in points]
            axes.plot(sizes, promised, "--", color=style.INK, label="promised, 1 - η")
            _draw_shares(axes, points, "", "measured, Theorem 3.4's tables", 0)
            label = f"measured, 1/{CONTROL_FRACTION} of the tables (control)"
            _draw_shares(axes, points, "control_", label, 1)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set(ylim=(-0.03, 1.05), title=panel["label"])
            axes.set_xlabel("number of tokens N")
            axes.legend(loc="center right")
        axes_row[0].set_ylabel("share of seeds")
        return style.save(figure, path)


def _draw_shares(axes, points: list[dict], prefix: str, label: str, index: int) -> None:
    shares = [point[f"{prefix}holds"] for point in points]
    below = [point[f"{prefix}holds"] - point[f"{prefix}low"] for point in points]
    above = [point[f"{prefix}high"] - point[f"{prefix}holds"] for point in points]
    sizes = [point["n"] for point in points]
    axes.errorbar(sizes, shares, yerr=[below, above], label=label, **style.look(index))


def table(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the numbers behind the figure."""
    columns = ["case", "N", "rho", "tables", "hashes per table", "promised", "measured", "95%"]
    columns += ["control tables", "control", "hashes computed", "N^(1 + 3 rho)"]
    rows = []
    for panel in results["cases"]:
        for point in panel["points"]:
            rows.append(
                [
                    panel["label"],
                    f"{point['n']:,}",
                    f"{point['rho']:.3f}",
                    f"{point['num_tables']:,}",
                    str(point["hashes_per_table"]),
                    f"{point['promised']:.4f}",
                    f"{point['holds']:.4f}",
                    f"{point['low']:.4f}-{point['high']:.4f}",
                    f"{point['control_tables']:,}",
                    f"{point['control_holds']:.4f}",
                    f"{point['work']:,}",
                    f"{point['work_law']:,.0f}",
                ]
            )
    return columns, rows
