"""The page about the model: its example runs, its figures are those of a run."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import induction_heads, k_hop, prefix_sum, sort

PAGE = (Path(__file__).parents[2] / "docs" / "mpc.md").read_text()


def test_the_example_is_short_and_prints_what_the_page_says():
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    definition = example.split("def maximum")[1].split("words = np")[0]
    assert len(definition.rstrip().splitlines()) <= 30
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_the_table_is_measured():
    rows = {
        "`prefix_sum`": lambda n: prefix_sum(n, 0.5),
        "`sort` (32 bits)": lambda n: sort(n, 0.5),
        "`induction_heads` (4 symbols)": lambda n: induction_heads(n, 0.5, num_symbols=4),
        "`k_hop` (k = 8)": lambda n: k_hop(n, 0.5, num_symbols=4, hops=8),
        "`k_hop` (k = 100)": lambda n: k_hop(n, 0.5, num_symbols=4, hops=100),
    }
    for name, make in rows.items():
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
        measured = []
        for num_words in (2**12, 2**16, 2**20):
            words = np.random.default_rng(0).integers(0, 4, num_words)
            trace = InProcess().run(make(num_words), words).trace
            measured.append(f"{trace.num_machines}, {trace.num_rounds}, {trace.peak_message_words}")
        assert line.endswith(f"| {'; '.join(measured)} |"), (name, measured)
