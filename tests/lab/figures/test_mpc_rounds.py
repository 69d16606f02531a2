"""Growth of rounds: constant in N, log N, log k."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from anna_attn.cli import app
from anna_attn.lab.figures import mpc_exponents, mpc_rounds
from anna_attn.lab.mpc_runs.command import CASES

MOST_ROUNDS_OF_A_PHASE = 36


@pytest.fixture(scope="module")
def results():
    return mpc_rounds.run(sizes=[2**d for d in range(8, 15)], seeds=(0, 1))


def test_rounds_do_not_grow_with_n(results):
    for panel in results["constant"]:
        # Rounds go up and down by a level of a tree as N^(eps / 2) is rounded. Up to N = 2^30 their
        # slopes are below 0.1: tests/mpc/test_protocols.py and beside it.
        assert panel["slope"] <= 0.05 * max(panel["rounds"]), panel
        # Not by a fit alone: the largest is within what rounding of N^(eps / 2) does.
        assert max(panel["rounds"][3:]) <= 1.4 * max(panel["rounds"][:3]), panel
    names = [panel["name"] for panel in results["constant"]]
    assert names == list(mpc_rounds.CONSTANT)


def test_connectivity_grows_with_log_n(results):
    phases = {panel["graph"]: panel for panel in results["connectivity"]}
    # Half of the names of a cycle are left after a phase. No graph keeps more than 3/4 in the mean.
    assert 0.7 <= phases["cycle"]["slope"] <= 1.3
    for panel in results["connectivity"]:
        assert panel["slope"] <= 1 / np.log2(4 / 3)
        logs = np.log2(panel["sizes"])
        assert max(np.mean(panel["phases"], 1) / logs) <= 1.5
        # And a phase has O(1) rounds: tests/mpc/test_formulas.py.
        most = MOST_ROUNDS_OF_A_PHASE * (np.array(panel["phases"]) + 1)
        assert (np.array(panel["rounds"]) <= most).all()


def test_k_hop_grows_with_log_k(results):
    hops = results["k_hop"]
    assert 1.8 <= hops["slope"] <= 2.2
    base = hops["rounds"][0]
    for k, rounds in zip(hops["hops"], hops["rounds"], strict=True):
        assert rounds <= base + 2 * k.bit_length()


def test_a_wrong_output_is_no_figure(monkeypatch):
    case = CASES["sort"]
    monkeypatch.setitem(CASES, "sort", _spoiled(case))
    with pytest.raises(RuntimeError, match="sort, N = 256: the output is wrong"):
        mpc_rounds.run(sizes=(256, 512))


def _spoiled(case):
    class Spoiled:
        def problem(self, *arguments):
            problem = case.problem(*arguments)
            return type(problem)(problem.protocol, problem.words, lambda output: "it is wrong")

    return Spoiled()


def test_too_little_is_refused():
    with pytest.raises(ValueError, match=r"sizes is \(256,\); accepted: at least two"):
        mpc_rounds.run(sizes=(256,))
    with pytest.raises(ValueError, match=r"hops is \(3, 3\); accepted: at least two"):
        mpc_rounds.run(sizes=(256, 512), hops=(3, 3))


def test_the_command_writes_data_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(mpc_exponents, "QUICK_WORDS", 0)
    done = CliRunner().invoke(app, ["mpc", "figures", str(tmp_path), "--quick", "--seed", "3"])
    assert done.exit_code == 0, done.output
    for name in ("mpc_rounds", "mpc_exponents"):
        document = json.loads((tmp_path / f"{name}.json").read_text())
        assert document["provenance"]["seeds"] == [3]
        assert document["results"]["figure"] == name
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    assert "connectivity, cycle (phases)" in done.stdout
    assert "16 tokens a machine" in done.stdout
