"""Reading another machine's items by address: a request and a reply."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout

Answer = Callable[[Memory], np.ndarray]
"""(n, c, k): the words that each slot answers with."""


def fetch(
    layout: Layout,
    addresses: str,
    answer: Answer,
    *,
    out: str,
    num_requests: int,
    recv: int,
    width: int,
) -> tuple[Step, ...]:
    """Fetch what the owners of items answer.

    Args:
        layout: of the items.
        addresses: field (n, num_requests) of item indices + 1; 0 = ask nobody.
        answer: of the owner's memory, the words (n, c, width) of its slots.
        out: field (n, num_requests, width) that is written; 0 where nobody was asked.
        num_requests: requests of a machine.
        recv: requests that a machine may get: num_requests where no two ask for one item and
            machines hold as many items as they ask for.
        width: words of an answer.
    Returns: steps of 2 rounds; at most max(3 recv, (width + 2) recv) words sent or received.
    """

    def ask(ids: np.ndarray, memory: Memory, inbox: Inbox):
        index = memory[addresses] - 1
        mine = np.broadcast_to(np.arange(num_requests), index.shape)
        return memory, layout.machine(index), np.stack([layout.slot(index), mine], -1)

    def reply(ids: np.ndarray, memory: Memory, inbox: Inbox):
        words = answer(memory)
        slot, mine = inbox.payload[..., 0], inbox.payload[..., 1]
        found = np.take_along_axis(words, slot[..., None], 1)
        return memory, inbox.source, np.concatenate([found, mine[..., None]], -1)

    def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
        got = np.zeros((len(ids), num_requests, width), dtype=np.int64)
        row, place = np.nonzero(inbox.present)
        words = inbox.payload[row, place]
        got[row, words[:, -1]] = words[:, :-1]
        return {**memory, out: got}, None, None

    return (
        Step(f"fetch {addresses}: ask", ask, num_requests, recv, 2),
        Step(f"fetch {addresses}: reply", reply, recv, num_requests, width + 1),
        Step(f"fetch {addresses}: settle", settle),
    )
