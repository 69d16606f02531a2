"""Families as specifications: ranges of codes, scale, zero rows, probabilities, dictionaries."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anna_attn.lsh import (
    CrossPolytope,
    Euclidean,
    Exact,
    Family,
    HashTables,
    Hyperplane,
    family_from_dict,
    family_to_dict,
)

ANGULAR = [
    Hyperplane(5),
    Hyperplane(16),
    Hyperplane(24, "gaussian"),
    CrossPolytope(5),
    CrossPolytope(16),
    CrossPolytope(6, "gaussian"),
]
FAMILIES = [*ANGULAR, Euclidean(7, 2.0), Exact(3)]


def rows(family, seed=0, count=200):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 1, count, family.dim, generator=generator)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_is_a_family(family):
    assert isinstance(family, Family)
    assert family.measure in ("angle", "distance", "equality")
    with pytest.raises(AttributeError):
        family.dim = 3


@pytest.mark.parametrize("family", ANGULAR, ids=str)
@pytest.mark.parametrize("hashes", [1, 3])
def test_codes_lie_in_range_and_use_it(family, hashes):
    tables = HashTables(family, 16, hashes)
    codes = tables(rows(family, count=2000))
    assert tables.num_buckets == family.num_values**hashes
    assert codes.dtype == torch.int64
    assert codes.min() >= 0
    assert codes.max() < tables.num_buckets
    # Over the tables, each hash takes every value.
    digits = [codes // family.num_values**z % family.num_values for z in range(hashes)]
    for digit in digits:
        assert len(torch.unique(digit)) == family.num_values


@pytest.mark.parametrize("family", [Euclidean(7, 2.0), Exact(3), Hyperplane(8), CrossPolytope(64)])
def test_unbounded_or_too_wide_codes_say_so(family):
    tables = HashTables(family, 2, 63)
    assert tables.num_buckets is None
    codes = tables(rows(family))
    assert codes.unique().numel() > 100
    assert torch.equal(tables(rows(family)), codes)


def test_62_bits_still_have_a_range():
    assert HashTables(Hyperplane(8), 1, 62).num_buckets == 2**62
    codes = HashTables(Hyperplane(8), 1, 62)(rows(Hyperplane(8)))
    assert codes.min() >= 0


@pytest.mark.parametrize("family", ANGULAR, ids=str)
@pytest.mark.parametrize("power", [-1000, -140, -3, 5, 120, 899, 1000, 1020])
def test_scale_invariance_is_bitwise_for_powers_of_two(family, power):
    tables = HashTables(family, 4, 3)
    x = rows(family).double()
    # Entries of a thousandth to 2: at 2^1020 all but overflowing, some beyond 2^900 and some not.
    x = x.clamp(-2, 2).sign() * x.abs().clamp(min=1e-3, max=2)
    assert torch.equal(tables(x * 2.0**power), tables(x))


@pytest.mark.parametrize("family", ANGULAR, ids=str)
@settings(max_examples=20, deadline=None)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 2**31))
def test_scale_invariance_for_any_positive_factor(family, scale, seed):
    # Entries on a coarse grid times any factor: the sums that vanish are as many as can be.
    generator = torch.Generator().manual_seed(seed)
    grid = torch.randint(-1, 2, (1, 1, 50, family.dim), generator=generator).double()
    tables = HashTables(family, 4, 3)
    assert torch.equal(tables(grid * scale), tables(grid))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_zero_rows_have_a_code_whatever_their_sign(family):
    tables = HashTables(family, 5, 3)
    zero = torch.zeros(1, 1, 2, family.dim)
    zero[0, 0, 1] = -0.0
    codes = tables(zero)
    assert torch.equal(codes[..., 0], codes[..., 1])
    if isinstance(family, Hyperplane):
        assert (codes == 2**3 - 1).all()
    if isinstance(family, CrossPolytope):
        assert (codes == 0).all()


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_half_precision_rows_hash_as_their_values(family):
    tables = HashTables(family, 5, 3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = rows(family).to(dtype)
        assert torch.equal(tables(x), tables(x.double()))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_dictionary_round_trip_through_json(family):
    fields = json.loads(json.dumps(family_to_dict(family)))
    assert family_from_dict(fields) == family


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_probability_types_ends_and_powers(family):
    apart = {"angle": math.pi, "distance": 1e9, "equality": 1.0}[family.measure]
    assert family.collision_probability(0.0) == pytest.approx(1.0, abs=1e-6)
    assert family.collision_probability(apart) == pytest.approx(0.0, abs=1e-6)
    grid = torch.linspace(0.0, min(apart, 6.0), 50, dtype=torch.float64)
    for hashes in (1, 4):
        curve = family.collision_probability(grid, hashes)
        assert curve.shape == grid.shape
        assert curve.dtype == torch.float64
        assert (curve.diff() <= 1e-12).all()
        middle = family.collision_probability(float(grid[20]), hashes)
        assert isinstance(middle, float)
        assert middle == pytest.approx(float(curve[20]), abs=1e-9)


@pytest.mark.parametrize("family", [*ANGULAR, Euclidean(7, 2.0)], ids=str)
@pytest.mark.parametrize("hashes", [1, 4, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probability_has_a_finite_gradient_everywhere(family, hashes, dtype):
    end = math.pi if family.measure == "angle" else 20.0
    separation = torch.linspace(0.0, end, 101, dtype=dtype).requires_grad_()
    family.collision_probability(separation, hashes).sum().backward()
    assert torch.isfinite(separation.grad).all()
    assert (separation.grad <= 1e-5).all()
    assert (separation.grad < -1e-3).any()


def test_hyperplane_gradient_is_the_derivative():
    angle = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for family in (Hyperplane(16), Hyperplane(16, "gaussian")):
        assert torch.autograd.gradcheck(lambda x, f=family: f.collision_probability(x, 4), (angle,))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hyperplane(0), "dim must be a positive int, got 0"),
        (lambda: Exact(2.5), "dim must be a positive int, got 2.5"),
        (lambda: CrossPolytope(True), "dim must be a positive int, got True"),
        (lambda: Hyperplane(4, "random"), "'hadamard' or 'gaussian', got 'random'"),
        (lambda: CrossPolytope(4, ""), "'hadamard' or 'gaussian', got ''"),
        (lambda: Euclidean(4, 0.0), "width must be positive and finite, got 0.0"),
        (lambda: Euclidean(4, math.inf), "width must be positive and finite, got inf"),
        (lambda: family_from_dict({"name": "minhash", "dim": 3}), "'minhash'"),
        (lambda: family_from_dict({"dim": 3}), "None"),
        (lambda: family_from_dict({"name": "exact", "dim": 3, "width": 1.0}), "does not take"),
        (lambda: family_from_dict({"name": "euclidean", "dim": 3}), "does not take"),
        (lambda: Hyperplane(4).rho(0.0, 2.0), "radius must be positive, got 0.0"),
        (lambda: Hyperplane(4).rho(0.5, 1.0), "approx_factor must exceed 1, got 1.0"),
        (lambda: Hyperplane(4).rho(1.5, 2.0), r"lie in \[0, 2\], got 3.0"),
        (lambda: Hyperplane(4).rho(1e-17, 2.0), "radius=1e-17 is too small"),
        (lambda: Exact(4).rho(0.5, 2.0), "radius 0 only, got radius=0.5"),
    ],
)
def test_bad_input_is_quoted(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_only_families_become_dictionaries():
    with pytest.raises(TypeError, match="got str"):
        family_to_dict("hyperplane")
