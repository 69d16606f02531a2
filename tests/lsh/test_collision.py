"""Measured collision rates against each family's own formula, and rho.

Every rate is a count of n independent pairs, so it lies within 4.5 standard deviations of its
expectation, 4.5 sqrt(p (1 - p) / n), but once in 150,000; seeds are fixed. Where the formula is a
second-order correction, its documented accuracy is added: 4e-3 for 16 rotated coordinates, 1e-3 for
64. Pairs at an angle are uniformly random, so a rotation by a fixed orthogonal matrix (Hadamard
rounds at a power of two) is a uniformly random one to them. Gaussian maps are no rotations: each
set of them has an expectation of its own, so many sets meet few pairs each.
"""

from __future__ import annotations

import math

import pytest
import torch

from anna_attn.lsh import CrossPolytope, Euclidean, Exact, HashTables, Hyperplane

ANGLES = [0.3, 0.8, 1.3, 2.0]
SIGMAS = 4.5
ACCURACY = {16: 4e-3, 64: 1e-3}


def pairs_at_angle(angle, heads, count, dim, seed):
    """(1, heads, count, dim) twice, each pair uniform among those at this angle."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, heads, count, dim, generator=generator, dtype=torch.float64)
    y = torch.randn(1, heads, count, dim, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    y = y - (x * y).sum(-1, keepdim=True) * x
    y = y / y.norm(dim=-1, keepdim=True)
    return x, math.cos(angle) * x + math.sin(angle) * y


def measured_rate(family, hashes, x, y, seed=11):
    tables = HashTables(family, 1, hashes, num_heads=x.shape[1], seed=seed)
    return (tables(x) == tables(y)).double().mean().item(), x[..., 0].numel()


def bound(probability, count, accuracy=0.0):
    # A thousandth of a count keeps the bound off 0 where the formula says 0 or 1 exactly.
    return SIGMAS * math.sqrt(max(probability * (1 - probability), 1e-9) / count) + accuracy


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("dim", [16, 64])
@pytest.mark.parametrize("hashes", [1, 4, 20])
def test_hyperplane_hadamard(angle, dim, hashes):
    family = Hyperplane(dim)
    x, y = pairs_at_angle(angle, 2, 20_000, dim, seed=1)
    rate, count = measured_rate(family, hashes, x, y)
    expected = family.collision_probability(angle, hashes)
    accuracy = 0.0 if hashes == 1 else ACCURACY[dim]
    assert abs(rate - expected) <= bound(expected, count, accuracy)


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("hashes", [1, 8])
def test_hyperplane_gaussian(angle, hashes):
    family = Hyperplane(24, "gaussian")
    x, y = pairs_at_angle(angle, 1500, 20, 24, seed=2)
    rate, count = measured_rate(family, hashes, x, y)
    expected = (1 - angle / math.pi) ** hashes
    assert family.collision_probability(angle, hashes) == pytest.approx(expected)
    assert abs(rate - expected) <= bound(expected, count)


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("dim", [16, 64])
@pytest.mark.parametrize("hashes", [1, 2])
def test_cross_polytope_hadamard(angle, dim, hashes):
    """Two hashes of a table share two of their three rounds: 40 draws average that out."""
    family = CrossPolytope(dim)
    x, y = pairs_at_angle(angle, 40, 800, dim, seed=3)
    rate, count = measured_rate(family, hashes, x, y)
    expected = family.collision_probability(angle, hashes)
    assert abs(rate - expected) <= bound(expected, count, ACCURACY[dim])


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize(("dim", "hashes"), [(6, 2), (16, 1)])
def test_cross_polytope_gaussian(angle, dim, hashes):
    family = CrossPolytope(dim, "gaussian")
    x, y = pairs_at_angle(angle, 1000, 20, dim, seed=4)
    rate, count = measured_rate(family, hashes, x, y)
    expected = family.collision_probability(angle, hashes)
    # Quadrature and interpolation between 513 angles add 1e-4.
    assert abs(rate - expected) <= bound(expected, count, 1e-4)


@pytest.mark.parametrize("distance", [0.3, 1.5, 6.0])
@pytest.mark.parametrize("hashes", [1, 3])
def test_euclidean(distance, hashes):
    family = Euclidean(12, 2.0)
    x, y = pairs_at_angle(math.pi / 2, 1500, 20, 12, seed=5)
    # y is now a uniform direction; x a point of its own, far from the origin.
    rate, count = measured_rate(family, hashes, 30 * x, 30 * x + distance * y)
    expected = family.collision_probability(distance, hashes)
    assert abs(rate - expected) <= bound(expected, count)


@pytest.mark.parametrize("dim", [1, 9])
def test_exact(dim):
    family = Exact(dim)
    x = torch.randn(1, 4, 20_000, dim, generator=torch.Generator().manual_seed(6)).double()
    assert measured_rate(family, 1, x, x.clone())[0] == family.collision_probability(0.0)
    # The smallest change there is, in one coordinate.
    y = x.clone()
    y[..., -1] = torch.nextafter(y[..., -1], torch.tensor(math.inf, dtype=torch.float64))
    assert measured_rate(family, 1, x, y)[0] == family.collision_probability(1e-16)


@pytest.mark.parametrize(
    ("family", "hashes", "angle"),
    [
        (Hyperplane(16), 8, 0.8),
        (Hyperplane(16), 20, 0.15),
        (CrossPolytope(16), 1, 0.8),
        (CrossPolytope(64), 1, 1.3),
    ],
    ids=str,
)
def test_the_correction_for_rotations_is_needed(family, hashes, angle):
    """The same pairs refuse the formula of independent Gaussian rows."""
    x, y = pairs_at_angle(angle, 2, 60_000, family.dim, seed=7)
    rate, count = measured_rate(family, hashes, x, y)
    own = family.collision_probability(angle, hashes)
    gaussian = type(family)(family.dim, "gaussian").collision_probability(angle, hashes)
    assert rate < gaussian - bound(gaussian, count)
    assert abs(rate - own) < abs(rate - gaussian) / 2


@pytest.mark.parametrize("family", [Hyperplane(24), CrossPolytope(48)], ids=str)
def test_padded_rotations_come_close(family):
    """Zero padding confines pairs to a subspace, so several draws are averaged instead.

    Between draws the rate varies beyond the binomial; 1e-2 is that spread, measured generously.
    """
    x, y = pairs_at_angle(0.8, 40, 500, family.dim, seed=8)
    rate, count = measured_rate(family, 2, x, y)
    expected = family.collision_probability(0.8, 2)
    assert abs(rate - expected) <= bound(expected, count, 1e-2)


def test_rho_of_hyperplanes_in_closed_form():
    # Chord 2 sin(angle / 2): radius 1 is 60 degrees, sqrt(3) is 120.
    assert Hyperplane(8).rho(1.0, math.sqrt(3)) == pytest.approx(math.log(2 / 3) / math.log(1 / 3))


def test_rho_of_exact_match_is_zero():
    assert Exact(8).rho(0.0, 5.0) == 0.0


@pytest.mark.parametrize(("factor", "best"), [(3.0, 0.287), (2.0, 0.449)])
def test_rho_of_euclidean_at_the_best_width(factor, best):
    """Plain Gaussian hashing stays above 1 / c^2 and, at the best width, below 1 / c."""
    rhos = [Euclidean(8, width / 20).rho(1.0, factor) for width in range(10, 400)]
    assert min(rhos) == pytest.approx(best, abs=1e-3)
    assert 1 / factor**2 < min(rhos) < 1 / factor
    # Only ratios of lengths matter.
    assert Euclidean(8, 10.0).rho(2.5, factor) == pytest.approx(Euclidean(8, 4.0).rho(1.0, factor))


def test_rho_of_cross_polytopes_tends_to_the_known_exponent():
    """(1 / c^2) (4 - c^2 r^2) / (4 - r^2) as the dimension grows (Andoni et al. 2015)."""
    radius, factor = 0.7, 1.8
    limit = (4 - (factor * radius) ** 2) / (4 - radius**2) / factor**2
    rhos = [CrossPolytope(dim, "gaussian").rho(radius, factor) for dim in (6, 16, 64)]
    gaps = [rho - limit for rho in rhos]
    assert all(gap > 0 for gap in gaps)
    assert gaps == sorted(gaps, reverse=True)
    assert rhos[-1] < Hyperplane(64).rho(radius, factor)


@pytest.mark.parametrize("family", [Hyperplane(16), CrossPolytope(16), Euclidean(16, 4.0)], ids=str)
def test_rho_falls_with_the_factor(family):
    rhos = [family.rho(0.3, factor) for factor in (1.2, 2.0, 3.0, 5.0)]
    assert rhos == sorted(rhos, reverse=True)
    assert 0 < rhos[-1] < rhos[0] < 1


def test_far_points_never_promise_that_nothing_collides():
    """A corrected probability of 0 would make rho 0 and Theorem 3.4's failure bound void."""
    angles = torch.linspace(0.0, 2.6, 300, dtype=torch.float64)
    for dim in (8, 16, 64):
        curve = CrossPolytope(dim).collision_probability(angles)
        plain = CrossPolytope(max(dim, 16), "gaussian").collision_probability(angles)
        assert (curve > 0).all()
        assert (curve <= plain + 1e-12).all()
