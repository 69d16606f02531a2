"""The commands on real, very short runs, and the errors people meet."""

import json

import pytest
from typer.testing import CliRunner

from anna_attn.cli import app

# The runner's terminal is no terminal; rich then says so once.
RUNNER = CliRunner()


def run(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def check_refused(result, *words):
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("anna: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    done = run("train", "match2", "--method", "softmax", "--steps-scale", "0.005", "-o", folder)
    assert done.exit_code == 0, done.output
    return folder / "main" / "checkpoint.safetensors"


def test_train_distill_and_eval_go_together(trained, tmp_path):
    hashed = tmp_path / "hashed" / "model.safetensors"
    done = run("distill", trained, hashed, "-l", 8, "-z", 1)
    assert done.exit_code == 0, done.output
    own = run("eval", "match2", hashed, "--draws", 0, "--sequences", 16, "--json")
    fresh = run("eval", "match2", hashed, "--draws", 3, "--sequences", 16, "--json")
    teacher = run("eval", "match2", trained, "--beta", 0.1, "--sequences", 16, "--json")
    found = [json.loads(result.stdout) for result in (own, fresh, teacher)]
    assert [len(f["errors"]) for f in found] == [1, 3, 1]
    assert all(f["num_tokens"] == 16 * 32 and 0.0 <= f["mean"] <= 1.0 for f in found)
    assert found[0]["mechanism"] == "anna, cross_polytope, l = 8, z = 1"
    assert found[2]["mechanism"] == "softmax, beta = 0.1"
    words = run("eval", "match2", hashed, "--draws", 1, "--sequences", 16)
    assert "% wrong" in words.stdout


def test_training_again_into_the_same_folder_goes_on(trained):
    before = trained.read_bytes()
    again = run(
        "train", "match2", "--method", "softmax", "--steps-scale", "0.005", "-o", trained.parents[1]
    )
    assert again.exit_code == 0, again.output
    assert trained.read_bytes() == before
    about = json.loads((trained.parents[1] / "run.json").read_text())
    assert about["task"] == "match2"


def test_unknown_task_and_method():
    check_refused(run("train", "sorting"), "'sorting'", "match2", "induction_heads")
    check_refused(run("train", "2_hop", "--method", "softmax"), "2_hop/softmax", "accepted")
    check_refused(run("eval", "sorting", "x"), "'sorting'", "match2")


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    check_refused(run("reproduce", "--out", tmp_path / "file" / "report"), "file")
    check_refused(run("train", "match2", "-o", tmp_path / "file" / "run"), "file")


def test_checkpoints_that_are_none(tmp_path, trained):
    check_refused(run("eval", "match2", tmp_path / "missing"), "missing")
    (tmp_path / "text").write_text("hello")
    check_refused(run("eval", "match2", tmp_path / "text"), "text")
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(trained.read_bytes()[:1000])
    check_refused(run("distill", cut, tmp_path / "out"), "cut.safetensors")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_task(trained):
    check_refused(run("eval", "induction_heads", trained), "vocab_size = 37", "accepted")
    check_refused(run("eval", "match2", trained, "--draws", 0, "-l", 4), "draws is 0")


def test_options_that_exclude_each_other(trained):
    check_refused(run("eval", "match2", trained, "--draws", -1), "draws is -1", ">= 0")
    check_refused(run("eval", "match2", trained, "--beta", 1, "-l", 4), "beta is 1.0", "num_tables")
    check_refused(run("eval", "match2", trained, "--beta", 1, "--draws", 0), "beta", "draws")
    check_refused(run("train", "match2", "--steps-scale", "inf"), "steps scale is inf")


def test_a_checkpoint_cannot_be_written_over_what_is_no_file(trained, tmp_path):
    check_refused(run("distill", trained, tmp_path), "it is a folder", str(tmp_path))
    check_refused(run("distill", trained, ""), "it is a folder")


def test_bench_reports_ratio_and_error_in_one_run():
    done = run(
        "bench", "attention", "--sizes", "64,128", "--threads", "1", "--heads", 1, "--head-dim", 16,
        "--repeats", 1, "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (results,) = json.loads(done.stdout)
    rows = [row for row in results["rows"] if row["method"] == "torch"]
    assert {row["num_tokens"] for row in rows} == {64, 128}
    assert all(row["speedup"] > 0 and row["error_softmax"] > 0 for row in rows)
    check_refused(run("bench", "attention", "--sizes", "1k"), "sizes is '1k'")


def test_help_names_every_command():
    text = run("--help").stdout
    for command in ("reproduce", "train", "distill", "eval", "bench"):
        assert command in text
