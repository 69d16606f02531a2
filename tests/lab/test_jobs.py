"""The job runner on small jobs in real processes."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from anna_attn.lab.jobs import Job, cached, run_jobs

SILENT = Console(file=io.StringIO())


@pytest.fixture(autouse=True)
def _works_can_be_imported_by_workers(monkeypatch):
    # Workers get this process's path; under pytest's importlib mode test modules are not on it.
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "works"))


def add(name, number, *needs, settings=0):
    from job_works import Add

    return Job(name, Add(number, needs), {"settings": settings}, needs)


def times_run(folder: Path, number: int) -> int:
    return len((folder / f"ran-{number}").read_text().splitlines())


def test_jobs_run_after_what_they_need_and_only_once(tmp_path):
    jobs = [add("c", 100, "a", "b"), add("a", 1), add("b", 10, "a")]
    results = run_jobs(jobs, tmp_path, workers=2, console=SILENT)
    assert {name: result["sum"] for name, result in results.items()} == {"a": 1, "b": 11, "c": 112}
    assert run_jobs(jobs, tmp_path, workers=2, console=SILENT) == results
    assert [times_run(tmp_path, n) for n in (1, 10, 100)] == [1, 1, 1]
    # Other settings, or a file that was damaged: that job runs again, the others do not.
    jobs[2] = add("b", 10, "a", settings=1)
    (tmp_path / "c.json").write_text("{")
    assert run_jobs(jobs, tmp_path, workers=2, console=SILENT) == results
    assert [times_run(tmp_path, n) for n in (1, 10, 100)] == [1, 2, 2]


def test_a_failing_job_ends_the_batch_with_its_own_error_and_keeps_what_was_done(tmp_path):
    from job_works import Fail

    jobs = [add("a", 1), Job("bad", Fail(), {}, needs=("a",)), add("never", 5, "bad")]
    with pytest.raises(ValueError, match="the job's own words"):
        run_jobs(jobs, tmp_path, workers=1, console=SILENT)
    assert json.loads((tmp_path / "a.json").read_text())["result"] == {"sum": 1}
    assert not (tmp_path / "never.json").exists()


def test_an_unknown_need_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=r"job 'a' needs \['z'\]"):
        run_jobs([add("a", 1, "z")], tmp_path, console=SILENT)


def test_cached_makes_once_per_settings(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return {"pair": (1, 2)}

    first = cached("x", {"a": (1,)}, tmp_path, make)
    assert first == cached("x", {"a": (1,)}, tmp_path, make) == {"pair": [1, 2]}
    assert len(calls) == 1
    cached("x", {"a": (2,)}, tmp_path, make)
    assert len(calls) == 2


BATCH = """
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    from job_works import Wait
    from anna_attn.cli.app import _stop_as_by_ctrl_c
    from anna_attn.lab.jobs import Job, run_jobs

    # A test run under nohup would hand down an ignored SIGHUP, which the command rightly keeps.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    _stop_as_by_ctrl_c()
    run_jobs([Job("wait", Wait(), {})], Path(sys.argv[2]), workers=1)
"""


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A process that nobody waited for is a zombie: it has ended.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the state from /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_worker_outlives_the_batch(tmp_path, number):
    script = tmp_path / "batch.py"
    script.write_text(BATCH)
    out = tmp_path / "out"
    works = Path(__file__).parent / "works"
    command = [sys.executable, str(script), str(works), str(out)]
    batch = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert wait_for(lambda: (out / "waiting").exists() and (out / "waiting").read_text())
        worker = int((out / "waiting").read_text())
        assert is_running(worker)
        batch.send_signal(number)
        _, errors = batch.communicate(timeout=30)
        assert wait_for(lambda: not is_running(worker))
        # What was told to stop did so in order; what was killed could not.
        assert ("KeyboardInterrupt" in errors) == (number != signal.SIGKILL)
    finally:
        os.killpg(batch.pid, signal.SIGKILL) if is_running(batch.pid) else None
