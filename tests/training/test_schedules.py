from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anna_attn.training import Constant, Geometric, Linear, learning_rate_at
from anna_attn.training.schedules import progress_at


def test_values():
    assert Constant(4.0)(0.7) == 4.0
    linear = Linear(2.0, 8.0, 0.5)
    assert [linear(p) for p in (0.0, 0.25, 0.5, 1.0)] == [2.0, 5.0, 8.0, 8.0]
    geometric = Geometric(0.5, 8.0, 0.8)
    assert geometric(0.0) == 0.5
    assert geometric(0.4) == pytest.approx(2.0)
    assert geometric(0.8) == geometric(1.0) == 8.0


@given(
    st.floats(0.01, 100.0), st.floats(0.01, 100.0), st.floats(0.01, 1.0), st.sampled_from([0, 1])
)
def test_schedules_start_and_end_exactly_and_are_monotone(start, end, share, kind):
    schedule = (Linear, Geometric)[kind](start, end, share)
    assert schedule(0.0) == start
    assert schedule(1.0) == end
    values = [schedule(step / 20) for step in range(21)]
    slack = 1e-9 * max(start, end)
    pairs = list(pairwise(values))
    sign = 1.0 if end >= start else -1.0
    assert all(sign * (late - early) >= -slack for early, late in pairs)


def test_learning_rate_warms_up_and_ends_at_its_share():
    rates = [
        learning_rate_at(step, 101, peak=1.0, warmup_steps=20, final_share=0.03)
        for step in range(101)
    ]
    assert rates[0] == pytest.approx(1 / 20)
    assert rates[19] == rates[20] == 1.0
    assert rates[60] == pytest.approx(0.03 + 0.97 / 2)
    assert rates[100] == pytest.approx(0.03)
    assert all(early > late for early, late in pairwise(rates[20:]))


def test_learning_rate_of_a_stage_no_longer_than_its_warmup():
    rates = [
        learning_rate_at(step, 4, peak=2.0, warmup_steps=4, final_share=0.0) for step in range(4)
    ]
    assert rates == [0.5, 1.0, 1.5, 2.0]
    assert learning_rate_at(0, 1, peak=2.0, warmup_steps=0, final_share=0.1) == pytest.approx(0.2)


def test_progress_reaches_both_ends():
    assert [progress_at(step, 5) for step in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert progress_at(0, 1) == 1.0


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_bad_share_is_refused(share):
    with pytest.raises(ValueError, match="share is"):
        Linear(0.0, 1.0, share)


def test_geometric_refuses_what_is_not_positive():
    with pytest.raises(ValueError, match="accepted: positive"):
        Geometric(0.0, 1.0)
