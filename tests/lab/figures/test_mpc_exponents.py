"""Machines against N, with the exponents of Theorem 4.2 and of N^2."""

import json

import numpy as np
import pytest

from anna_attn.lab.figures import mpc_exponents
from anna_attn.lab.figures.mpc_cases import AnnaCase, SoftmaxCase
from anna_attn.lab.figures.mpc_exponents import DEFAULT_CASES, FULL_WORDS, SIZES

RUN_WORDS = 1 << 20


@pytest.fixture(scope="module")
def results():
    return mpc_exponents.run(max_words=RUN_WORDS)


def test_exponents_are_those_of_the_formulas(results):
    formulas = [0.5, 0.75, 1.0, 0.625, 2.0, 1.25]
    assert [panel["machines_formula"] for panel in results["cases"]] == formulas
    for panel in results["cases"]:
        assert abs(panel["machines_exponent"] - panel["machines_formula"]) <= 0.1
        assert panel["memory_exponent"] <= panel["memory_formula"] + 0.1
    assert json.loads(json.dumps(results)) == results


@pytest.mark.parametrize("case", DEFAULT_CASES)
def test_rounds_do_not_grow_with_the_logarithm_of_n(case):
    """They go up and down as powers of N are rounded; log N itself grows by 2.3 here."""
    rounds = {bits: case.protocol(1 << bits).num_rounds for bits in range(8, 33)}
    drawn = [rounds[size.bit_length() - 1] for size in SIZES]
    assert max(rounds.values()) <= 1.5 * max(drawn)
    if isinstance(case, SoftmaxCase):
        assert max(rounds.values()) <= 5 / case.delta + 2


def test_what_was_run_is_right_and_within_its_budget(results):
    for panel in results["cases"]:
        assert panel["points"][0]["wrong_words"] == 0
        for point in panel["points"]:
            built_only = point["machines"] * point["local_memory"] > RUN_WORDS
            assert (point["wrong_words"] is None) == built_only
            if not built_only:
                assert point["wrong_words"] == 0
                assert point["peak_memory_words"] <= point["local_memory"]
                assert point["peak_message_words"] <= point["local_memory"]


@pytest.mark.parametrize("case", DEFAULT_CASES)
def test_a_wrong_output_would_be_counted(case):
    words = case.words(64, seed=0)
    answer, other = case.answer(64, words), case.answer(64, case.words(64, seed=1))
    # Neither all alike nor all 0: the comparison says something.
    assert len(np.unique(answer)) > 8
    assert np.count_nonzero(answer != other) > len(answer) // 2


@pytest.mark.slow
def test_a_million_machines():
    # The machines of the last one have 3.5 GiB together, and a run holds several copies.
    cases = DEFAULT_CASES[:-1]
    results = mpc_exponents.run(cases=cases, sizes=(256, 16384), max_words=FULL_WORDS)
    for panel in results["cases"]:
        assert [point["wrong_words"] for point in panel["points"]] == [0, 0]
    assert results["cases"][-1]["points"][-1]["machines"] == 1 << 20


def test_plot_and_tables(results, tmp_path):
    svg = mpc_exponents.plot(results, tmp_path / "mpc.svg").read_text()
    for text in (
        "ANNA attention",
        "softmax attention",
        "16 tokens a machine: N^2.00 (N^2)",
        ">16k<",
    ):
        assert text in svg
    for columns, rows in (mpc_exponents.table(results), mpc_exponents.fits(results)):
        assert all(len(row) == len(columns) for row in rows)
    assert len(mpc_exponents.table(results)[1]) == 6 * 7


def test_exponents_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"eps = 0.5, memory = 0.75, tables = 0.5; accepted"):
        AnnaCase(eps=0.5, memory=0.75, tables=0.5)
    with pytest.raises(ValueError, match=r"memory = 0.3, delta = 0.125; accepted"):
        SoftmaxCase(eps=0.25, memory=0.3)
    with pytest.raises(ValueError, match=r"sizes is \(64,\); accepted: at least two"):
        mpc_exponents.run(sizes=(64,))
