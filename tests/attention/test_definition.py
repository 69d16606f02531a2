"""The checker of Definition 3.3 on weights small enough to judge by hand."""

from __future__ import annotations

import math

import pytest
import torch

from anna_attn.attention.definition import check_definition_3_3

# One query at 0; keys within r = 1, within c r = 2, and beyond.
QUERY = torch.tensor([[0.0]])
KEY = torch.tensor([[0.5], [1.5], [3.0]])


def check(weights, *, query=QUERY, key=KEY, num_tables=4, **options):
    return check_definition_3_3(torch.tensor(weights), query, key, 1.0, 2.0, num_tables, **options)


def test_weights_that_hold_everything():
    report = check([[0.5, 0.5, 0.0]])
    assert report.holds
    assert (report.rows, report.all_clauses, report.empty) == (1, 1, 0)
    assert (report.distributions, report.supported, report.massive) == (1, 1, 1)


def test_sum_must_be_one():
    report = check([[0.5, 0.4, 0.0]])
    assert not report.holds
    assert (report.distributions, report.supported, report.massive) == (0, 1, 1)


def test_weights_must_not_be_negative():
    report = check([[1.5, -0.5, 0.0]])
    assert not report.holds
    assert (report.distributions, report.supported, report.massive) == (0, 1, 1)


def test_support_must_lie_within_reach():
    report = check([[0.5, 0.4, 0.1]])
    assert not report.holds
    assert (report.distributions, report.supported, report.massive) == (1, 0, 1)
    # However small: an operator's far weights are zeros, not roundings.
    assert not check([[0.5, 0.5, 1e-30]]).holds


def test_near_keys_are_owed_their_least_weight():
    # |N(q, c r)| = 2 and l = 4: at least 1 / (1 * 4 + 1).
    assert check([[0.2, 0.8, 0.0]]).holds
    report = check([[0.19, 0.81, 0.0]])
    assert not report.holds
    assert (report.distributions, report.supported, report.massive) == (1, 1, 0)
    # More tables owe it less.
    assert check([[0.19, 0.81, 0.0]], num_tables=5).holds


def test_keys_between_the_radii_are_owed_nothing():
    assert check([[1.0, 0.0, 0.0]]).holds


def test_null_key_serves_a_query_without_neighbours():
    report = check([[0.0, 0.0, 0.0]], query=torch.tensor([[-9.0]]))
    assert report.holds
    assert report.empty == 1


def test_null_key_does_not_excuse_a_missed_neighbour():
    report = check([[0.0, 0.0, 0.0]])
    assert not report.holds
    assert (report.distributions, report.massive, report.empty) == (1, 0, 1)


def test_null_key_takes_all_or_nothing():
    report = check(
        [[0.0, 0.4, 0.0]], query=torch.tensor([[-0.4]]), key=torch.tensor([[9.0], [1.0], [9.0]])
    )
    assert report.distributions == 0


def test_duplicate_keys_count_with_their_multiplicity():
    key = torch.zeros(5, 1)
    weights = [[0.2] * 5]
    # As a set, N(q, c r) would have one element and each key would be owed weight 1.
    assert check(weights, key=key, num_tables=1).holds
    assert not check([[0.1, 0.3, 0.2, 0.2, 0.2]], key=key, num_tables=1).holds


def test_nan_holds_nothing():
    report = check([[math.nan, 0.5, 0.0]])
    assert (report.distributions, report.massive, report.all_clauses) == (0, 0, 0)
    far = check([[0.5, 0.5, math.nan]])
    assert (far.distributions, far.supported) == (0, 0)


def test_rows_are_counted_over_leading_dimensions():
    weights = torch.eye(3).expand(2, 4, 3, 3).clone()
    weights[1, 2, 0] = torch.tensor([0.0, 1.0, 0.0])
    rows = torch.tensor([[0.0], [10.0], [20.0]]).expand(2, 4, 3, 1)
    report = check_definition_3_3(weights, rows, rows, 1.0, 2.0, 3)
    assert (report.rows, report.supported, report.massive) == (24, 23, 23)
    assert report.all_clauses == 23


def test_distance_exactly_at_a_radius_is_within_it():
    key = torch.tensor([[1.0], [2.0]])
    assert check([[0.5, 0.5]], key=key).holds
    assert not check([[0.0, 1.0]], key=key).holds


def test_tolerance_forgives_rounding_only():
    weights = [[0.5 + 1e-8, 0.5, 0.0]]
    exact = torch.tensor(weights, dtype=torch.float64)
    assert check_definition_3_3(exact, QUERY, KEY, 1.0, 2.0, 4).holds
    assert not check_definition_3_3(exact, QUERY, KEY, 1.0, 2.0, 4, tolerance=0.0).holds


def test_no_rows_hold_vacuously():
    report = check_definition_3_3(torch.zeros(0, 3), torch.zeros(0, 1), KEY, 1.0, 2.0, 4)
    assert report.holds
    assert report.rows == 0
    alone = check_definition_3_3(
        torch.zeros(2, 0), torch.zeros(2, 1), torch.zeros(0, 1), 1.0, 2.0, 4
    )
    assert alone.holds
    assert alone.empty == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": torch.zeros(1, 4)}, r"must agree, got \(1, 4\)"),
        ({"query": torch.zeros(1, 2)}, "must agree"),
        ({"radius": -1.0}, "radius must be non-negative and finite, got -1.0"),
        ({"radius": math.nan}, "radius"),
        ({"approx_factor": 0.9}, "approx_factor must be at least 1 and finite, got 0.9"),
        ({"num_tables": 0}, "num_tables must be at least 1, got 0"),
        ({"tolerance": -0.1}, "tolerance"),
    ],
)
def test_bad_input_is_quoted(change, words):
    arguments = {
        "weights": torch.zeros(1, 3),
        "query": QUERY,
        "key": KEY,
        "radius": 1.0,
        "approx_factor": 2.0,
        "num_tables": 4,
        **change,
    }
    with pytest.raises(ValueError, match=words):
        check_definition_3_3(**arguments)
