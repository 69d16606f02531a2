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
    SoftmaxShape,
    anna_attention,
    connectivity,
    cycles,
    induction_heads,
    k_hop,
    list_ranking,
    low_rank_attention,
    match2,
    prefix_sum,
    softmax_attention,
    sort,
    three_sum,
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
SOFTMAX = SoftmaxShape(
    num_heads=1, head_dim=2, value_dim=2, input_bits=4, value_bits=4, weight_bits=8, scale=0.1
)


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
    "`three_sum` (32 bits)": lambda n: three_sum(n, 0.5, target=100),
    "`connectivity` (a cycle of N vertices)": lambda n: connectivity(n, n, 0.5),
    "`low_rank_attention` (r = m = 4, f = 4)": low_rank,
    "`anna_attention` (H = 2, L = 4, 8 bits, m = 4)": lambda n: anna_attention(
        n, per_machine(n), ATTENTION
    ),
    "`softmax_attention` (H = 1, D = m = 2, 64 tokens a machine, f = 4)": (
        lambda n: softmax_attention(n, 64, SOFTMAX, fan_in=4)
    ),
}
# As on the page, not run: the time or memory would be minutes or many GB.
BUILT_ONLY = {
    "`three_sum` (32 bits)": 2**16,
    "`softmax_attention` (H = 1, D = m = 2, 64 tokens a machine, f = 4)": 2**16,
}


def given(name, num_words, protocol):
    generator = np.random.default_rng(0)
    if name == "`list_ranking`":
        return np.append(np.arange(2, num_words + 1), 0)
    if name.startswith("`connectivity`"):
        return cycles(num_words, 1, generator).reshape(-1)
    return generator.integers(0, 4, protocol.num_words)


@pytest.mark.parametrize("name", list(ROWS))
def test_the_table_is_measured(name):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    measured = []
    for num_words in (2**12, 2**16, 2**20):
        protocol = ROWS[name](num_words)
        if num_words >= BUILT_ONLY.get(name, 2**20):
            if not name.startswith("`connectivity`"):  # Its rounds are known once it was run.
                measured.append(f"{protocol.num_machines}, {protocol.num_rounds}")
            continue
        trace = InProcess().run(protocol, given(name, num_words, protocol)).trace
        measured.append(f"{trace.num_machines}, {trace.num_rounds}, {trace.peak_message_words}")
    assert line.endswith(f"| {'; '.join(measured)} |"), (name, measured)
