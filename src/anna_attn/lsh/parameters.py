"""Theorem 3.4: how many tables and hashes make Algorithm 1 an ANNA mechanism, with constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .families import Exact, Family

RHO_LIMIT = 1.0 / 3.0

LARGEST_N = 2**63 - 1
SMALLEST_FAILURE = 1e-200
"""The bounds are formed in float64, which holds n^2 / failure up to here."""


@dataclass(frozen=True)
class TheoremParameters:
    """Parameters under which Algorithm 1 satisfies Definition 3.3, and the bound that says so.

    Attributes:
        n, radius, approx_factor: what was asked for.
        near_probability, far_probability: p1 at `radius`, p2 at approx_factor * radius.
        rho: log(1/p1) / log(1/p2).
        num_tables, hashes_per_table: L and Z.
        failure_probability: n^2 (1 - p1^Z)^L + L n^2 p2^Z, a bound on eta by the union over pairs.
    """

    n: int
    radius: float
    approx_factor: float
    near_probability: float
    far_probability: float
    rho: float
    num_tables: int
    hashes_per_table: int
    failure_probability: float


def theorem_3_4(
    n: int, radius: float, approx_factor: float, family: Family, failure: float | None = None
) -> TheoremParameters:
    """Choose L and Z for n keys and queries so that Algorithm 1 is an ANNA mechanism.

    Two events break Definition 3.3: some pair within `radius` shares no bucket (at most
    n^2 (1 - p1^Z)^L), or some pair beyond approx_factor * radius shares one (at most L n^2 p2^Z).
    The smallest Z and L that keep each below half of `failure` are found as a fixed point; they
    grow as Z = Theta(log_{1/p2} n) and L = Theta(n^{3 rho} log n) at the theorem's
    failure = n^{-(1 - 3 rho)}. The constant behind Z is close to 3, not 1: with
    Z = log_{1/p2} n alone about L n far pairs collide. Tables are taken as independent: use
    Gaussian maps where the guarantee matters.

    Args:
        n: number of keys and of queries, 2 to 2^63 - 1.
        radius: r, a Euclidean distance (between unit vectors for the angular families).
        approx_factor: c > 1.
        family: gives p1 and p2.
        failure: bound on eta, in [1e-200, 1); the theorem's n^{-(1 - 3 rho)} by default.
    Raises: ValueError for rho >= 1/3, naming an approx_factor that would do, and for bad numbers;
        TypeError for what is no number or no family.
    Source: Liu et al. 2025, Theorem 3.4, with explicit constants of ours.
    """
    if not isinstance(family, Family):
        raise TypeError(f"family must be a hash family, got {type(family).__name__}")
    if not isinstance(n, int) or isinstance(n, bool) or not 2 <= n <= LARGEST_N:
        raise ValueError(f"n must be an int from 2 to 2^63 - 1, got {n!r}")
    for name, number in (("radius", radius), ("approx_factor", approx_factor)):
        _check_number(name, number)
    if isinstance(family, Exact):
        family.rho(radius, approx_factor)
        return TheoremParameters(n, radius, approx_factor, 1.0, 0.0, 0.0, 1, 1, 0.0)
    rho = family.rho(radius, approx_factor)
    if rho >= RHO_LIMIT:
        raise ValueError(_refusal(rho, radius, approx_factor, family))
    near = family.probability_at_distance(radius)
    far = family.probability_at_distance(approx_factor * radius)
    eta = n ** -(1.0 - 3.0 * rho) if failure is None else failure
    _check_number("failure", eta)
    if not SMALLEST_FAILURE <= eta < 1.0:
        raise ValueError(f"failure must lie in [{SMALLEST_FAILURE:g}, 1), got {failure!r}")
    tables, hashes = _fixed_point(n, near, far, eta)
    meet = near**hashes
    no_bucket = 0.0 if meet >= 1.0 else math.exp(tables * math.log1p(-meet))
    bound = n * n * (no_bucket + tables * far**hashes)
    return TheoremParameters(n, radius, approx_factor, near, far, rho, tables, hashes, bound)


def _check_number(name: str, number: float) -> None:
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise TypeError(f"{name} must be a number, got {number!r}")


def _fixed_point(n: int, near: float, far: float, eta: float) -> tuple[int, int]:
    """Smallest Z with L n^2 p2^Z <= eta / 2 and L with n^2 (1 - p1^Z)^L <= eta / 2.

    Each needs the other; both maps are increasing, so iterating from L = 1 reaches the smallest
    solution. It exists for every rho < 1: a larger Z costs L a factor p1^-1 but buys p2 < p1.
    """
    pairs = 2.0 * n * n / eta
    tables = 1
    while True:
        hashes = 1 if far <= 0.0 else max(1, math.ceil(math.log(tables * pairs) / -math.log(far)))
        meet = near**hashes
        needed = 1 if meet >= 1.0 else math.ceil(math.log(pairs) / -math.log1p(-meet))
        if needed <= tables:
            return tables, hashes
        tables = needed


def _refusal(rho: float, radius: float, approx_factor: float, family: Family) -> str:
    message = (
        f"Theorem 3.4 needs rho < 1/3, but {family} has rho = {rho:.3f} at radius={radius:g}, "
        f"approx_factor={approx_factor:g}"
    )
    # Just inside the sphere's diameter, which rounding may not cross.
    largest = 2.0 / radius * (1 - 1e-15) if family.measure == "angle" else approx_factor * 64
    if largest > approx_factor and family.rho(radius, largest) < RHO_LIMIT:
        low, high = approx_factor, largest
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if family.rho(radius, middle) < RHO_LIMIT else (middle, high)
        return f"{message}; approx_factor >= {_round_up(high, largest)} would do"
    return f"{message}; no approx_factor reaches it at this radius, take a smaller radius"


def _round_up(number: float, limit: float) -> str:
    """Shortest decimal of at least two places in [number, limit]."""
    for places in range(2, 16):
        rounded = math.ceil(number * 10**places) / 10**places
        if rounded <= limit:
            return f"{rounded:.{places}f}"
    return repr(limit)
