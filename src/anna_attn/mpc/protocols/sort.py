"""Sorting N words."""

from __future__ import annotations

import numpy as np

from ..model import Memory, Protocol
from ..primitives import Key
from .sizes import Sizes


def sort(num_words: int, eps: float, *, word_bits: int = 32) -> Protocol:
    """Sort N words, ascending.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        word_bits: p.
    Returns: a protocol whose output are the words in order.
    Cost: ceil(p / log2 B) (2 ceil(log_f P) + 1) rounds with B, f about N^(eps / 2): for
        p = O(log N) that is O(1 / eps^2), whatever N. Deterministic.
    Source: radix sort on prefix sums, as in Goodrich et al. 2011.
    """
    sizes = Sizes(num_words, eps)
    layout = sizes.layout
    plan = sizes.sort(1, (Key(0, word_bits),))

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        return {"items": words[..., None]}

    return Protocol(
        name="sort",
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
