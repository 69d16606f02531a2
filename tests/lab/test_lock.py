"""A folder belongs to one run at a time."""

import subprocess
import sys

import pytest

from anna_attn.lab.lock import exclusive

HOLD = """
import sys, time
from pathlib import Path
from anna_attn.lab.lock import exclusive

with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path):
    pytest.importorskip("fcntl")
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        with (
            pytest.raises(BlockingIOError, match="another run is writing here") as info,
            exclusive(tmp_path),
        ):
            pass
        assert info.value.filename == str(tmp_path)
        first.kill()
    # Killed, not ended: the system frees its lock.
    with exclusive(tmp_path):
        pass
