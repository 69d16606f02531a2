"""`anna mpc` as people call it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from anna_attn.cli import app
from anna_attn.lab.mpc_runs import command

RUNNER = CliRunner()


def run(*arguments):
    return RUNNER.invoke(app, ["mpc", *(str(argument) for argument in arguments)])


def check_refused(result, *words):
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("anna: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_list_names_all():
    done = run("list")
    assert done.exit_code == 0
    for name, case in command.CASES.items():
        assert name in done.stdout
        for option in case.options:
            assert f"--{option.replace('_', '-')}" in done.stdout


def test_a_run_with_everything(tmp_path):
    files = {end: tmp_path / f"out.{end}" for end in ("json", "png", "npy", "txt")}
    done = run(
        "run", "k-hop", "--n", 300, "--eps", 0.5, "--hops", 5, "--check-locality", "--steps",
        "--trace", files["json"], "--plot", files["png"], "--output", files["npy"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "checked: right" in done.stdout
    assert "send home" in done.stdout  # a step
    trace = json.loads(files["json"].read_text())
    assert trace["protocol"] == "k_hop"
    assert f"rounds {trace['num_rounds']} " in done.stdout
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert len(np.load(files["npy"])) == 300
    done = run("run", "k-hop", "-n", 300, "--hops", 5, "--engine", "hostile", "--output",
               files["txt"], "--no-check")  # fmt: skip
    assert "checked" not in done.stdout
    words = [int(line) for line in files["txt"].read_text().splitlines()]
    assert words == np.load(files["npy"]).tolist()


def test_given_input(tmp_path):
    edges = tmp_path / "edges.txt"
    edges.write_text("0 1\n1 2\n4 5\n")
    done = run("run", "connectivity", "--input", edges, "--vertices", 8)
    assert "output: 0, 0, 0, 3, 4, 4, 6, 7" in done.stdout
    words = tmp_path / "words.npy"
    np.save(words, np.array([5, 3, 9]))
    assert "output: 3, 5, 9\n" in run("run", "sort", "--input", words).stdout


def test_what_cannot_be_used(tmp_path):
    check_refused(run("run", "bogosort"), "no protocol 'bogosort'; accepted: sort, prefix-sum")
    check_refused(run("run", "sort", "--engine", "spark"), "'spark'; accepted: in-process, hostile")
    check_refused(run("run", "sort", "--address", "x:1"), "--address is for --engine ray")
    check_refused(run("run", "sort", "--hops", 2), "sort has no option --hops")
    check_refused(run("run", "sort", "--n", -1), "--n must be at least 0, got -1")
    check_refused(run("run", "sort", "--eps", 2), "eps must lie in (0, 1), got 2.0")
    check_refused(run("run", "sort", "--plot", tmp_path / "x.doc"), "a plot ends in .png, .svg")
    check_refused(run("run", "sort", "--trace", tmp_path / "no" / "x.json"), "there is no folder")
    check_refused(run("run", "sort", "--input", tmp_path / "no.txt"), "No such file")


def test_a_wrong_answer_is_a_failure(monkeypatch):
    case = command.CASES["sort"]
    problem = case.problem(None, 40, 0.5, {}, 0)
    wrong = command.Problem(problem.protocol, problem.words, lambda output: "3 words, as it were")
    monkeypatch.setattr(command, "_problem", lambda request: wrong)
    done = run("run", "sort")
    assert done.exit_code == 1
    assert "anna: sort differs from the sequential answer: 3 words, as it were" in done.stderr


def test_an_interrupted_run_says_that_it_begins_again(monkeypatch):
    def stop(request):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_problem", stop)
    done = run("run", "sort")
    assert done.exit_code == 130
    assert done.stderr == "anna: interrupted; a run of a protocol begins again, it cannot resume\n"


@pytest.mark.parametrize("n", [3, 20_001])
def test_what_is_not_checked_is_said(n):
    # Three words are too few to add up; of so many, the answer is not searched for.
    done = run("run", "three-sum", "--n", n, "--target", 1 << 50, "--eps", 0.75)
    assert done.exit_code == 0, done.output
    assert ("not checked: " if n > 20_000 else "checked: right") in done.stdout
