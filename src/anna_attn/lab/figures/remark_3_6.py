"""Remark 3.6: how fast collisions, and so weights, fall with distance, per hash family."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from anna_attn.lab.figures import style
from anna_attn.lsh import CrossPolytope, Family, HashTables, Hyperplane

DISTANCES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8)
CAPTION = (
    "One hash per table. The remark credits hyperplanes with weights proportional to "
    "exp(-d^2 ln m / (4 - d^2)). That is the (leading term of the) law of cross-polytope hashing, "
    "dashed in both panels; hyperplanes follow 1 - angle / pi, which is far flatter. The remark's "
    "formula leaves out lower-order terms, so at finite m the cross-polytope's own curve, solid, "
    "lies below it. Points: measured, with two standard errors over tables."
)


def remark_formula(distance: Tensor, dim: int) -> Tensor:
    """exp(-d^2 ln m / (4 - d^2)), as Remark 3.6 states it for unit vectors at distance d < 2."""
    squared = distance**2
    return torch.exp(-squared * math.log(dim) / (4 - squared))


def pairs_at(distances: Tensor, num_pairs: int, dim: int, generator: torch.Generator):
    """Unit vectors x (P, D) and, for each distance, y (K, P, D) at exactly that distance from x."""
    x = torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    x = torch.nn.functional.normalize(x, dim=-1)
    other = torch.randn(num_pairs, dim, generator=generator, dtype=torch.float64)
    other = other - (other * x).sum(dim=-1, keepdim=True) * x
    other = torch.nn.functional.normalize(other, dim=-1)
    angle = 2 * torch.asin(distances / 2)[:, None, None]
    return x, torch.cos(angle) * x + torch.sin(angle) * other


def run(
    *,
    dim: int = 64,
    num_pairs: int = 200,
    num_tables: int = 400,
    distances: tuple[float, ...] = DISTANCES,
    seed: int = 0,
) -> dict:
    """Measure collision rates and ANNA weights at given distances, for both angular families.

    Each x is a query whose keys are one y per distance, so its weights are
    w_j = c_j / sum_j c_j with c_j the tables in which x and y_j collide.

    Args:
        dim: m.
        num_pairs: queries.
        num_tables: independent tables (Gaussian maps), one hash each.
        distances: between unit vectors, in (0, 2).
        seed: of vectors and tables.
    Returns: {"figure", "dim", ..., "families": [{"name", "points": [{"distance", "measured",
        "standard_error", "predicted", "remark", "weight", "predicted_weight"}]}]}, JSON-able.
        "predicted" is the family's own collision probability, "remark" the remark's formula.
    Source: Liu et al. 2025 (arXiv:2509.09001), Remark 3.6; Andoni et al. 2015.
    """
    if not distances or min(distances) <= 0 or max(distances) >= 2:
        raise ValueError(f"distances is {distances}; accepted: at least one, all in (0, 2)")
    steps = torch.tensor(distances, dtype=torch.float64)
    x, y = pairs_at(steps, num_pairs, dim, torch.Generator().manual_seed(seed))
    families = {
        "hyperplane": Hyperplane(dim, rotation="gaussian"),
        "cross-polytope": CrossPolytope(dim, rotation="gaussian"),
    }
    return {
        "figure": "remark_3_6",
        "dim": dim,
        "num_pairs": num_pairs,
        "num_tables": num_tables,
        "seed": seed,
        "families": [
            {"name": name, "points": _points(family, x, y, steps, num_tables, seed)}
            for name, family in families.items()
        ],
    }


def _points(
    family: Family, x: Tensor, y: Tensor, distances: Tensor, num_tables: int, seed: int
) -> list[dict]:
    tables = HashTables(family, num_tables, hashes_per_table=1, seed=seed)
    own = tables(x[None, None])[0, 0]
    collides = torch.stack([tables(rows[None, None])[0, 0] == own for rows in y]).double()
    per_table = collides.mean(dim=2)  # (K, L): tables are independent of each other, pairs are not
    counts = collides.sum(dim=1)  # (K, P)
    # At large distances a query may collide with nothing; its weights are then 0.
    weights = (counts / counts.sum(dim=0).clamp(min=1)).mean(dim=1)
    angle = 2 * torch.asin(distances / 2)
    predicted = family.collision_probability(angle, 1)
    columns = {
        "distance": distances,
        "measured": per_table.mean(dim=1),
        "standard_error": per_table.std(dim=1) / num_tables**0.5,
        "predicted": predicted,
        "remark": remark_formula(distances, x.shape[-1]),
        "weight": weights,
        "predicted_weight": predicted / predicted.sum(),
    }
    values = {name: column.tolist() for name, column in columns.items()}
    return [dict(zip(values, point, strict=True)) for point in zip(*values.values(), strict=True)]


def plot(results: dict, path: Path | str) -> Path:
    """Draw measured collision rates against each family's own law and the remark's formula."""
    dim = results["dim"]
    with style.drawing():
        figure = style.new_figure(9.6, 3.9)
        axes_row = figure.subplots(1, 2, sharey=True)
        fine = torch.linspace(0.01, 1.9, 100, dtype=torch.float64)
        angle = 2 * torch.asin(fine / 2)
        families: tuple[Family, ...] = (Hyperplane(dim), CrossPolytope(dim, rotation="gaussian"))
        laws = ("own law: 1 - angle / π", "own law (quadrature)")
        for index, panel in enumerate(results["families"]):
            axes, look = axes_row[index], style.look(index)
            points = panel["points"]
            own = families[index].collision_probability(angle, 1)
            axes.plot(fine, own, color=look["color"], label=laws[index])
            formula = remark_formula(fine, dim)
            axes.plot(fine, formula, "--", color=style.INK, label="formula of Remark 3.6")
            axes.errorbar(
                [point["distance"] for point in points],
                [point["measured"] for point in points],
                yerr=[2 * point["standard_error"] for point in points],
                ls="none",
                label="measured",
                **look,
            )
            axes.set(yscale="log", ylim=(1e-3, 1.4), title=f"{panel['name']}, m = {dim}")
            axes.set_xlabel("distance between unit vectors")
            axes.legend(loc="lower left")
        axes_row[0].set_ylabel("collision probability of one hash")
        return style.save(figure, path)


def table(results: dict) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the numbers behind the figure."""
    columns = ["family", "distance", "collisions, measured", "± (1 s.e.)", "own law"]
    columns += ["formula of Remark 3.6", "weight, measured", "weight, own law"]
    keys = ("measured", "standard_error", "predicted", "remark", "weight", "predicted_weight")
    rows = []
    for panel in results["families"]:
        for point in panel["points"]:
            numbers = [f"{point[key]:.4f}" for key in keys]
            rows.append([panel["name"], f"{point['distance']:g}", *numbers])
    return columns, rows
