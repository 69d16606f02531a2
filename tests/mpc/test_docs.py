"""The page about the model: its example runs, its figures are those of a run."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import (
    AttentionShape,
    anna_attention,
    induction_heads,
    k_hop,
    list_ranking,
    low_rank_attention,
    match2,
    prefix_sum,
    sort,
)

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


ATTENTION = AttentionShape(num_heads=2, num_tables=4, code_bits=8, value_dim=4, value_bits=16)


def per_machine(num_tokens):
    return 2 ** (num_tokens.bit_length() // 2 - 4)


def low_rank(num_tokens):
    return low_rank_attention(
        num_tokens, per_machine(num_tokens), rank=4, value_dim=4, feature_bits=8, value_bits=8,
        fan_in=4,
    )  # fmt: skip


ROWS = {
    "`prefix_sum`": lambda n: prefix_sum(n, 0.5),
    "`sort` (32 bits)": lambda n: sort(n, 0.5),
    "`induction_heads` (4 symbols)": lambda n: induction_heads(n, 0.5, num_symbols=4),
    "`k_hop` (k = 8)": lambda n: k_hop(n, 0.5, num_symbols=4, hops=8),
    "`k_hop` (k = 100)": lambda n: k_hop(n, 0.5, num_symbols=4, hops=100),
    "`match2` (M = 1000)": lambda n: match2(n, 0.5, modulus=1000),
    "`list_ranking`": lambda n: list_ranking(n, 0.5),
    "`low_rank_attention` (r = m = 4, f = 4)": low_rank,
    "`anna_attention` (H = 2, L = 4, 8 bits, m = 4)": lambda n: anna_attention(
        n, per_machine(n), ATTENTION
    ),
}


@pytest.mark.parametrize("name", list(ROWS))
def test_the_table_is_measured(name):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    measured = []
    for num_words in (2**12, 2**16, 2**20):
        protocol = ROWS[name](num_words)
        if num_words == 2**20:
            # As on the page, not run: its rounds are those of its steps.
            measured.append(f"{protocol.num_machines}, {protocol.num_rounds}")
            continue
        words = np.random.default_rng(0).integers(0, 4, protocol.num_words)
        if name == "`list_ranking`":
            words = np.append(np.arange(2, num_words + 1), 0)
        trace = InProcess().run(protocol, words).trace
        measured.append(f"{trace.num_machines}, {trace.num_rounds}, {trace.peak_message_words}")
    assert line.endswith(f"| {'; '.join(measured)} |"), (name, measured)
