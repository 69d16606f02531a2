"""Theorem 3.4 on planted data: its tables give weights that hold Definition 3.3, draw after draw.

The promise is that a draw of the hash functions fails with probability at most eta. Over D draws
the failures are then at most binomial(D, eta): the test fails where more were seen than such a
binomial reaches with probability 1e-4. Seeds are fixed.
"""

from __future__ import annotations

import math

import pytest
import torch

from anna_attn.attention.definition import check_definition_3_3
from anna_attn.attention.reference import attention_weights
from anna_attn.lsh import CrossPolytope, Euclidean, HashTables, Hyperplane, theorem_3_4

ANGULAR = (0.1, 10.0)
DISTANCE = (1.0, 8.0)


def planted(family, n, seed):
    """n queries and n keys in at most 64 clusters; all else beyond c r.

    A cluster's queries share one point and its keys lie just within r of it. One key is twice in
    its cluster, and every eighth query is moved away from everything.
    """
    radius, factor = ANGULAR if family.measure == "angle" else DISTANCE
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    num_clusters = min(64, n // 4)
    if family.measure == "angle":
        basis = far_apart(num_clusters, family.dim, factor * radius + 2 * radius, generator)
    else:
        basis = torch.randn(num_clusters, family.dim, **draw) * 4 * factor * radius
    query = basis.repeat(n // num_clusters, 1)
    step = torch.randn(n, family.dim, **draw)
    if family.measure == "angle":
        step = step - (step * query).sum(-1, keepdim=True) * query
        step = step / step.norm(dim=-1, keepdim=True)
        angle = 2 * math.asin(radius * 0.999 / 2)
        key = math.cos(angle) * query + math.sin(angle) * step
    else:
        key = query + step / step.norm(dim=-1, keepdim=True) * radius * 0.999
    key[num_clusters] = key[0]
    query[7::8] = -query[7::8] if family.measure == "angle" else query[7::8] + 1e4
    assert_planted(query, key, radius, factor)
    return query[None, None], key[None, None]


def far_apart(count, dim, distance, generator):
    """Unit vectors at pairwise distances beyond `distance`, also to the others' opposites."""
    kept = torch.zeros(0, dim, dtype=torch.float64)
    while len(kept) < count:
        x = torch.randn(4 * count, dim, generator=generator, dtype=torch.float64)
        for row in x / x.norm(dim=-1, keepdim=True):
            if len(kept) < count and ((kept @ row).abs() < 1 - distance**2 / 2).all():
                kept = torch.cat([kept, row[None]])
    return kept


def assert_planted(query, key, radius, factor):
    distance = torch.cdist(query, key)
    near, far = distance <= radius, distance > factor * radius
    assert (near | far).all()
    assert near.sum() >= 2 * len(query)
    assert (~near.any(1)).sum() == len(query) // 8


def allowed_failures(draws, eta):
    """Smallest k with P(binomial(draws, eta) > k) <= 1e-4."""
    left, term, k = 1.0, (1 - eta) ** draws, 0
    while left - term > 1e-4:
        left -= term
        term *= (draws - k) / (k + 1) * eta / (1 - eta)
        k += 1
    return k


def failures(family, n, draws):
    radius, factor = ANGULAR if family.measure == "angle" else DISTANCE
    parameters = theorem_3_4(n, radius, factor, family)
    tables = HashTables(family, parameters.num_tables, parameters.hashes_per_table)
    failed = 0
    for seed in range(draws):
        query, key = planted(family, n, seed)
        tables.redraw(seed)
        weights = attention_weights(tables(query), tables(key))
        report = check_definition_3_3(weights, query, key, radius, factor, parameters.num_tables)
        failed += not report.holds
        # Lone queries attend the null key: all but those a far key meets by chance.
        assert report.empty >= n // 8 - (not report.holds) * n
    return failed, allowed_failures(draws, parameters.failure_probability)


@pytest.mark.parametrize(
    "family",
    [Hyperplane(64, "gaussian"), CrossPolytope(16, "gaussian"), Euclidean(24, 6.0), Hyperplane(64)],
    ids=str,
)
def test_the_promised_share_of_draws_holds(family):
    failed, allowed = failures(family, 64, 40)
    assert failed <= allowed


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [Hyperplane(128, "gaussian"), CrossPolytope(64, "gaussian"), Euclidean(24, 6.0)],
    ids=str,
)
def test_the_promised_share_of_draws_holds_at_1024(family):
    failed, allowed = failures(family, 1024, 20)
    assert failed <= allowed


def test_too_few_tables_break_the_promise():
    """The checker is not blind: with a tenth of the tables, near pairs go unmet in most draws."""
    family, n = Hyperplane(64, "gaussian"), 64
    radius, factor = ANGULAR
    parameters = theorem_3_4(n, radius, factor, family)
    few = parameters.num_tables // 10
    tables = HashTables(family, few, parameters.hashes_per_table)
    held = 0
    for seed in range(10):
        query, key = planted(family, n, seed)
        tables.redraw(seed)
        weights = attention_weights(tables(query), tables(key))
        report = check_definition_3_3(weights, query, key, radius, factor, few)
        held += report.holds
        assert report.distributions == n
    assert held == 0


def test_too_few_hashes_break_the_promise():
    """Nor to the support: with a fifth of the hashes, far keys get weight in every draw."""
    family, n = Hyperplane(64, "gaussian"), 64
    radius, factor = ANGULAR
    parameters = theorem_3_4(n, radius, factor, family)
    tables = HashTables(family, parameters.num_tables, parameters.hashes_per_table // 5)
    query, key = planted(family, n, 0)
    weights = attention_weights(tables(query), tables(key))
    report = check_definition_3_3(weights, query, key, radius, factor, parameters.num_tables)
    assert report.supported < n
    assert report.distributions == n


@pytest.mark.parametrize("corruption", ["swap", "shift", "drop", "far"])
def test_corrupted_weights_are_refused(corruption):
    family, n = Hyperplane(64, "gaussian"), 64
    radius, factor = ANGULAR
    parameters = theorem_3_4(n, radius, factor, family)
    tables = HashTables(family, parameters.num_tables, parameters.hashes_per_table, seed=1)
    query, key = planted(family, n, 1)
    weights = attention_weights(tables(query), tables(key))
    arguments = (query, key, radius, factor, parameters.num_tables)
    clean = check_definition_3_3(weights, *arguments)
    assert clean.holds
    row = int((weights[0, 0] > 0).any(-1).nonzero()[0])
    target = weights[0, 0, row]
    if corruption == "swap":
        target.copy_(target.roll(1))
    elif corruption == "shift":
        target.mul_(1.001)
    elif corruption == "drop":
        target[target.argmax()] = 0.0
        target.div_(target.sum().clamp(min=1e-300))
    else:
        distance = (query[0, 0, row] - key[0, 0]).norm(dim=-1)
        target.mul_(0.999)[distance.argmax()] = 0.001
    report = check_definition_3_3(weights, *arguments)
    assert not report.holds
    assert report.all_clauses == n - 1
