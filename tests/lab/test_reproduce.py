"""The whole of `anna reproduce` on trainings of a few steps."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from anna_attn.lab import experiments
from anna_attn.lab.reproduce import check_writable, reproduce

TINY = replace(
    experiments.QUICK,
    steps_scale=0.004,
    match2_hashes=(1,),
    paper_hashes=(1, 2),
    match2_tables=(1, 8),
    match2_draws=2,
    match2_sequences=20,
    match2_test_sequences=40,
    induction_tables=(4,),
    induction_sequences=8,
    test_draws=1,
    test_sequences=8,
    more=(("2_hop/anna", (1,)),),
    theorem_sizes=(32,),
    theorem_seeds=3,
    scaling_sizes=(64, 256),
    scaling_repeats=1,
)


def test_plans_cover_what_they_say():
    for plan in (experiments.QUICK, experiments.FULL):
        jobs = experiments.jobs(plan)
        names = [job.name for job in jobs]
        assert len(set(names)) == len(names)
        assert {"figure_1a", "figure_1b", "hops", "theorem_3_4", "remark_3_6"} <= set(names)
        for job in jobs:
            json.dumps(job.settings)
    assert len(experiments.FULL.seeds) >= 3
    assert experiments.FULL.match2_test_sequences * 32 >= 100_000
    assert dict(experiments.FULL.more)["2_hop/anna"] == (0, 1, 2)


def test_measurements_are_made_again_when_a_training_changes():
    short = replace(experiments.QUICK, steps_scale=0.5)
    before = {job.name: job.settings for job in experiments.jobs(experiments.QUICK)}
    after = {job.name: job.settings for job in experiments.jobs(short)}
    assert before["figure_1a"]["trainings"] != after["figure_1a"]["trainings"]


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file" / "below")


@pytest.mark.slow
def test_a_tiny_reproduction_makes_a_report_and_resumes(tmp_path):
    text = io.StringIO()
    console = Console(file=text, width=200)
    page = reproduce(TINY, tmp_path, console=console, command="anna reproduce (tiny)")
    html = page.read_text()
    for heading in ("Figure 1a", "Figure 1b", "Theorem 3.4", "Remark 3.6", "anna reproduce (tiny)"):
        assert heading in html
    assert html.count("<svg") == 5
    assert "http://" not in html.replace("http://www.w3.org", "")
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert results["figure_1a"]["compared_tokens"] == 40 * 32
    assert len(results["hops"]["rows"]) == 8
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*.json")}
    reproduce(TINY, tmp_path, console=console, command="anna reproduce (tiny)")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
