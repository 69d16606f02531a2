"""Check attention weights against the paper's Definition 3.3."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DefinitionReport:
    """How many rows of a weight matrix hold Definition 3.3, clause by clause.

    Attributes:
        rows: queries checked.
        distributions: rows without a negative weight that sum to one, null key included.
        supported: rows without weight on a key farther than approx_factor * radius.
        massive: rows that give every key within the radius its least weight.
        all_clauses: rows that hold all three.
        empty: rows whose whole weight lies on the null key.
    """

    rows: int
    distributions: int
    supported: int
    massive: int
    all_clauses: int
    empty: int

    @property
    def holds(self) -> bool:
        """Whether every row holds every clause."""
        return self.all_clauses == self.rows


def check_definition_3_3(
    weights: Tensor,
    query: Tensor,
    key: Tensor,
    radius: float,
    approx_factor: float,
    num_tables: int,
    *,
    tolerance: float = 1e-6,
) -> DefinitionReport:
    """Check explicit weights against Definition 3.3, row by row.

    With r = radius, c = approx_factor, l = num_tables and N(q, t) the keys within distance t of q,
    a row w of query q holds the definition when
      1. w_j >= 0 and sum_j w_j = 1,
      2. w_j > 0 only for keys in N(q, c r),
      3. w_j >= 1 / ((|N(q, c r)| - 1) l + 1) for every key in N(q, r).
    The definition allows all of it to fail with probability eta over the hash functions; one call
    judges one draw, so that share has to be counted over draws.

    Two repairs, without which no operator could hold it:
      * Where N(q, c r) is empty, clauses 1 and 2 contradict each other. A null key takes weight 1
        in exactly the rows where no key has any, so a row of zeros counts as a distribution. It is
        no neighbour, and a row of zeros with a key within r still fails clause 3.
      * |N| counts keys with their multiplicity, as an indexed family. Read as a set, n equal keys
        are one neighbour and each would be owed weight 1.

    Args:
        weights: (..., Tq, Tk), real keys only, of any float dtype.
        query: (..., Tq, D).
        key: (..., Tk, D).
        radius: r >= 0, Euclidean.
        approx_factor: c >= 1.
        num_tables: l >= 1.
        tolerance: for rounding: absolute on clause 1's sum, relative on clause 3's bound and on the
            distance c r. Clause 2 wants exact zeros.

    Returns: the counts of rows; `.holds` for all of them.

    Cost: O(Tq Tk D) time, O(Tq Tk) memory, in float64.

    Raises:
        ValueError: shapes that disagree, or a parameter outside its range.

    Source: Definition 3.3; the repairs are ours.
    """
    _check(weights, query, key, radius, approx_factor, num_tables, tolerance)
    weights = weights.detach().to(torch.float64)
    # Distances by differences: the matrix-product form loses half the digits of small ones.
    distance = torch.cdist(
        query.detach().to(torch.float64),
        key.detach().to(torch.float64),
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    in_reach = distance <= approx_factor * radius * (1 + tolerance)
    least = 1.0 / ((in_reach.sum(-1, keepdim=True) - 1).clamp(min=0) * num_tables + 1)
    empty = (weights == 0).all(-1)
    # Every clause is phrased to be false for NaN.
    distribution = (weights >= 0).all(-1) & ((weights.sum(-1) - 1).abs() <= tolerance) | empty
    supported = (in_reach | (weights == 0)).all(-1)
    massive = ((distance > radius) | (weights >= least * (1 - tolerance))).all(-1)
    return DefinitionReport(
        rows=empty.numel(),
        distributions=int(distribution.sum()),
        supported=int(supported.sum()),
        massive=int(massive.sum()),
        all_clauses=int((distribution & supported & massive).sum()),
        empty=int(empty.sum()),
    )


def _check(
    weights: Tensor,
    query: Tensor,
    key: Tensor,
    radius: float,
    approx_factor: float,
    num_tables: int,
    tolerance: float,
) -> None:
    shapes = f"{tuple(weights.shape)}, {tuple(query.shape)}, {tuple(key.shape)}"
    if (
        min(weights.dim(), query.dim(), key.dim()) < 2
        or weights.shape != (*query.shape[:-1], key.shape[-2])
        or query.shape[:-2] != key.shape[:-2]
        or query.shape[-1] != key.shape[-1]
    ):
        raise ValueError(
            "weights (..., Tq, Tk), query (..., Tq, D) and key (..., Tk, D) must agree, "
            f"got {shapes}"
        )
    if not 0.0 <= radius < float("inf"):
        raise ValueError(f"radius must be non-negative and finite, got {radius!r}")
    if not 1.0 <= approx_factor < float("inf"):
        raise ValueError(f"approx_factor must be at least 1 and finite, got {approx_factor!r}")
    if num_tables < 1:
        raise ValueError(f"num_tables must be at least 1, got {num_tables!r}")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must lie in [0, 1), got {tolerance!r}")
