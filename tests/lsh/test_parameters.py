"""Theorem 3.4's parameters: the bound they promise, and what is said where there are none."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anna_attn.lsh import CrossPolytope, Euclidean, Exact, Hyperplane, theorem_3_4

CASES = [
    (Hyperplane(64, "gaussian"), 0.1, 10.0),
    (Hyperplane(64), 0.2, 5.5),
    (CrossPolytope(16, "gaussian"), 0.1, 10.0),
    (CrossPolytope(16), 0.2, 5.5),
    (Euclidean(32, 8.0), 1.0, 6.0),
    (Euclidean(8, 5.1), 1.0, 3.0),
]


def bounds(family, n, radius, factor, tables, hashes):
    """The two halves of the union bound: near pairs apart, far pairs together."""
    near = family.probability_at_distance(radius) ** hashes
    far = family.probability_at_distance(factor * radius) ** hashes
    return n * n * (1 - near) ** tables, n * n * tables * far


@pytest.mark.parametrize(("family", "radius", "factor"), CASES, ids=str)
@pytest.mark.parametrize("n", [2, 64, 1024, 100_000])
def test_the_promised_bound_holds_by_its_formula(family, radius, factor, n):
    found = theorem_3_4(n, radius, factor, family)
    promised = n ** -(1 - 3 * found.rho)
    apart, together = bounds(family, n, radius, factor, found.num_tables, found.hashes_per_table)
    assert apart <= promised / 2 * (1 + 1e-9)
    assert together <= promised / 2 * (1 + 1e-9)
    assert found.failure_probability == pytest.approx(apart + together)
    assert (found.n, found.radius, found.approx_factor) == (n, radius, factor)
    assert found.near_probability == family.probability_at_distance(radius)
    assert found.far_probability == family.probability_at_distance(radius * factor)
    assert found.rho == pytest.approx(
        math.log(found.near_probability) / math.log(found.far_probability)
    )


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(CASES),
    n=st.integers(2, 10**6),
    failure=st.floats(1e-9, 0.9),
)
def test_nothing_smaller_keeps_the_bound(case, n, failure):
    family, radius, factor = case
    found = theorem_3_4(n, radius, factor, family, failure=failure)
    tables, hashes = found.num_tables, found.hashes_per_table
    apart, together = bounds(family, n, radius, factor, tables, hashes)
    assert max(apart, together) <= failure / 2 * (1 + 1e-6)
    if tables > 1:
        assert bounds(family, n, radius, factor, tables - 1, hashes)[0] > failure / 2 * (1 - 1e-6)
    if hashes > 1:
        # One hash fewer: even the fewest tables that still find near pairs meet too many far ones.
        near = family.probability_at_distance(radius) ** (hashes - 1)
        needed = math.ceil(math.log(2 * n * n / failure) / -math.log1p(-near)) if near < 1 else 1
        together = bounds(family, n, radius, factor, needed, hashes - 1)[1]
        assert together > failure / 2 * (1 - 1e-6)


def test_tables_grow_as_the_theorem_says():
    """L = Theta(n^{3 rho} log n): from n to n^2 the quotient moves by a constant at most."""
    family, radius, factor = Hyperplane(64, "gaussian"), 0.2, 5.5
    quotients, hashes = [], []
    for n in (10**3, 10**6, 10**9):
        found = theorem_3_4(n, radius, factor, family)
        quotients.append(found.num_tables / (n ** (3 * found.rho) * math.log(n)))
        hashes.append(found.hashes_per_table / math.log(n))
    assert max(quotients) / min(quotients) < 2
    assert max(hashes) / min(hashes) < 1.3
    # The constant behind Z is about 3, not 1.
    unit = 1 / -math.log(family.probability_at_distance(radius * factor))
    assert 2.5 < hashes[-1] / unit < 3.5


def test_exact_match_needs_one_table_and_never_fails():
    found = theorem_3_4(1000, 0.0, 5.0, Exact(8))
    assert (found.num_tables, found.hashes_per_table) == (1, 1)
    assert (found.rho, found.failure_probability) == (0.0, 0.0)


@pytest.mark.parametrize(
    "family",
    [
        Hyperplane(16),
        Hyperplane(16, "gaussian"),
        CrossPolytope(16),
        CrossPolytope(6, "gaussian"),
        Euclidean(8, 1.0),
        Euclidean(8, 5.1),
    ],
    ids=str,
)
@pytest.mark.parametrize("radius", [0.01, 0.7, 1.0, 1.37, 1.7, 1.9, 1.99])
@pytest.mark.parametrize("factor", [1.001, 1.004])
def test_a_refusal_names_a_factor_that_does(family, radius, factor):
    with pytest.raises(ValueError, match=r"rho < 1/3, but .* has rho = ") as refusal:
        theorem_3_4(100, radius, factor, family)
    message = str(refusal.value)
    assert f"radius={radius:g}, approx_factor={factor:g}" in message
    named = re.search(r"approx_factor >= ([\d.]+) would do$", message)
    assert named, message
    found = theorem_3_4(100, radius, float(named[1]), family)
    assert found.rho < 1 / 3
    # And not a needlessly large one: a hundredth less would not, where two decimals were enough.
    if len(named[1].split(".")[1]) == 2:
        assert family.rho(radius, float(named[1]) - 0.011) >= 1 / 3


def test_a_refusal_says_where_no_factor_does():
    # So far apart that even opposite points do not collide rarely enough.
    with pytest.raises(ValueError, match="no approx_factor reaches it at this radius"):
        theorem_3_4(100, 2.0 - 1e-12, 1.0 + 1e-13, Hyperplane(16))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, 0.1, 10.0, Hyperplane(8)), r"n must be an int from 2 to 2\^63 - 1, got 1"),
        ((2.5, 0.1, 10.0, Hyperplane(8)), "got 2.5"),
        ((100, 0.0, 10.0, Hyperplane(8)), "radius must be positive, got 0.0"),
        ((100, 0.1, 1.0, Hyperplane(8)), "approx_factor must exceed 1, got 1.0"),
        ((100, 0.5, 10.0, Hyperplane(8)), r"\[0, 2\], got 5.0"),
        ((100, 1e-17, 10.0, Hyperplane(8)), "radius=1e-17 is too small"),
        ((100, 1e-9, 10.0, Euclidean(8, 1.0)), "radius=1e-09 is too small"),
        ((100, 0.5, 10.0, Exact(8)), "radius 0 only, got radius=0.5"),
        ((100, 0.1, 10.0, Hyperplane(8), 0.0), r"failure must lie in \[1e-200, 1\), got 0.0"),
        ((100, 0.1, 10.0, Hyperplane(8), 1.5), "got 1.5"),
        ((100, 0.1, 19.0, Hyperplane(8), 1e-320), "got 1e-320"),
        ((10**200, 0.1, 19.0, Hyperplane(8)), "got 1000"),
        ((True, 0.1, 19.0, Hyperplane(8)), "got True"),
    ],
)
def test_bad_input_is_quoted(arguments, words):
    with pytest.raises(ValueError, match=words):
        theorem_3_4(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((100, "0.1", 19.0, Hyperplane(8)), "radius must be a number, got '0.1'"),
        ((100, 0.1, None, Hyperplane(8)), "approx_factor must be a number, got None"),
        ((100, 0.1, 19.0, Hyperplane(8), "low"), "failure must be a number, got 'low'"),
        ((100, 0.1, 19.0, "hyperplane"), "family must be a hash family, got str"),
    ],
)
def test_what_is_no_number_is_refused(arguments, words):
    with pytest.raises(TypeError, match=words):
        theorem_3_4(*arguments)


def test_the_ends_of_what_is_accepted():
    far = theorem_3_4(2**63 - 1, 0.1, 19.0, Hyperplane(8), 1e-200)
    assert 0.0 < far.failure_probability <= 1e-200
