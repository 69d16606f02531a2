"""Match2: does any word complete mine to a multiple of M?"""

from __future__ import annotations

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Key, Layout
from ..primitives.join import KEY, Join
from .sizes import Sizes


def match2(num_words: int, eps: float, *, modulus: int) -> Protocol:
    """1 where some j has x_i + x_j = 0 mod M, else 0; j may be i itself, as in the definition.

    Every word is a record of its residue and a query for what completes it; a join hands each query
    the number of records.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        modulus: M; words lie in [0, M).
    Returns: a protocol whose output is the label of every word.
    Cost: one sort of 2 N items by the bits of M + 1, a scan and 2 rounds: O(1) at fixed eps.
    Raises: ValueError for a modulus below 1.
    Source: Liu et al. 2025, Definition 5.1.
    """
    if modulus < 1:
        raise ValueError(f"modulus must be at least 1, got {modulus}")
    homes = Sizes(num_words, eps).layout
    # Twice the items on the same machines.
    sizes = Sizes(2 * num_words, eps, 2 * homes.per_machine)
    key_bits = (2 * modulus).bit_length()
    join = Join(
        sort=sizes.sort(3, (Key(KEY, key_bits),)),
        homes=homes,
        width=1,
        combine=np.add,
        identity=np.zeros(1, dtype=np.int64),
        same_key=lambda key: key >> 1,
    )

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        if words.size and int(words.max()) >= modulus:
            raise ValueError(f"words must lie in [0, {modulus}), got {int(words.max())}")
        return {"words": words}

    def to_items(ids: np.ndarray, memory: Memory, inbox: Inbox):
        words, index = memory["words"], homes.index(ids)
        ones, nothing = np.ones_like(words), np.zeros_like(words)
        records = np.stack([2 * words, nothing, ones], -1)
        wanted = (modulus - words) % modulus
        queries = np.stack([2 * wanted + 1, index + 1, nothing], -1)
        return {"items": _packed(records, queries, homes.valid(ids), sizes.layout)}, None, None

    return Protocol(
        name="match2",
        num_machines=homes.num_machines,
        local_memory=join.memory_words,
        word_bits=max(key_bits, (2 * num_words + 1).bit_length()),
        num_words=num_words,
        words_per_machine=homes.per_machine,
        init=init,
        steps=(Step("items", to_items), *join.steps("items", out="found")),
        output=lambda ids, memory: (memory["found"][..., 0] > 0).astype(np.int64),
        num_outputs=num_words,
    )


def _packed(
    records: np.ndarray, queries: np.ndarray, valid: np.ndarray, layout: Layout
) -> np.ndarray:
    """(n, 2 c, 3) records and queries in turn, so that the items of all machines are contiguous:
    only the last machine has slots without one, at its end."""
    both = np.stack([records, queries], 2)
    both = np.where(valid[..., None, None], both, 0)
    return both.reshape(len(both), layout.per_machine, -1)
