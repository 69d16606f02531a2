"""Sorting N words."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from ..model import Memory, Protocol
from ..primitives import Key, SampleSort
from .sizes import Sizes

Algorithm = Literal["radix", "sample"]
"""By digits, without luck; or by comparison, in rounds that the bits of a word do not change."""


def sort(
    num_words: int,
    eps: float,
    *,
    word_bits: int = 32,
    algorithm: Algorithm = "radix",
    seed: int = 0,
) -> Protocol:
    """Sort N words, ascending.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        word_bits: p.
        algorithm: "radix" or "sample".
        seed: of the sample sort's offsets.
    Returns: a protocol whose output are the words in order.
    Cost, with B and f about N^(eps / 2):
        radix: ceil(p / log2 B) (2 ceil(log_f P) + 1) rounds. Deterministic.
        sample: L (L + 2) + 2 ceil(log_(c + 1) P) + 1 rounds, L = ceil(log_f P), whatever p: 6 for
            eps = 2/3, 11 for 1/2, 29 for 1/3; with more words a machine than radix. It overflows a
            machine with probability below 1e-9, and says so.
        Either is O(1 / eps^2) for p = O(log N), whatever N.
    Raises: ValueError for another algorithm.
    Source: Goodrich et al. 2011: radix sort on prefix sums; sample sort.
    """
    if algorithm not in get_args(Algorithm):
        raise ValueError(f'algorithm must be "radix" or "sample", got {algorithm!r}')
    sizes = Sizes(num_words, eps)
    layout = sizes.layout
    if algorithm == "radix":
        plan = sizes.sort(1, (Key(0, word_bits),))
    else:
        plan = SampleSort(layout, 1, seed=seed)

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        return {"items": words[..., None]}

    return Protocol(
        name="sort" if algorithm == "radix" else "sample sort",
        num_machines=layout.num_machines,
        local_memory=plan.memory_words,
        # Counts of items are words too.
        word_bits=max(word_bits, num_words.bit_length()),
        num_words=num_words,
        words_per_machine=layout.per_machine,
        init=init,
        steps=plan.steps("items"),
        output=lambda ids, memory: memory["items"][..., 0],
        num_outputs=num_words,
    )
