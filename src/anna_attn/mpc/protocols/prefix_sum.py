"""Sums of all words up to each."""

from __future__ import annotations

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import exclusive_scan, scan_memory
from .sizes import Sizes


def prefix_sum(num_words: int, eps: float, *, word_bits: int = 62) -> Protocol:
    """Inclusive prefix sums of N words; they must fit in `word_bits` bits.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        word_bits: p, of words and sums; a sum that does not fit is an error of the run.
    Returns: a protocol whose output is sum_{j <= i} x_j for every i.
    Cost: 2 ceil(log_f P) rounds, f about N^(eps / 2): O(1 / eps), whatever N.
    """
    sizes = Sizes(num_words, eps)
    layout = sizes.layout

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        return {"words": words}

    def add_up(ids: np.ndarray, memory: Memory, inbox: Inbox):
        sums = np.cumsum(memory["words"], 1)
        return {"sums": sums, "own": sums[:, -1:]}, None, None

    def shift(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {"sums": memory["sums"] + memory["before"]}, None, None

    scan = exclusive_scan(
        layout.num_machines,
        "own",
        prefix="before",
        total="total",
        width=1,
        combine=np.add,
        identity=np.zeros(1, dtype=np.int64),
        fan_in=sizes.fan_in,
    )
    return Protocol(
        name="prefix_sum",
        num_machines=layout.num_machines,
        local_memory=max(
            layout.per_machine + 1 + scan_memory(layout.num_machines, sizes.fan_in, 1),
            3 * (sizes.fan_in - 1),
        ),
        word_bits=word_bits,
        num_words=num_words,
        words_per_machine=layout.per_machine,
        init=init,
        steps=(Step("add up", add_up), *scan, Step("shift", shift)),
        output=lambda ids, memory: memory["sums"],
        num_outputs=num_words,
    )
