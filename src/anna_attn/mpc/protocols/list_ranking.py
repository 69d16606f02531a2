"""How far is every node of a list from its end?"""

from __future__ import annotations

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Layout, fetch
from .sizes import Sizes


def list_ranking(num_nodes: int, eps: float) -> Protocol:
    """Links from every node to the end of its list.

    The input is, for every node, the index of the next one + 1, or 0 at an end. Several lists may
    be given at once. Pointers double: a node adds the distance of the node that it points to, and
    points where that one points. No two nodes point to the same one, before as after, so that no
    machine is asked for more than its nodes. Input that is no list ends in an error of the run:
    `InDegreeExceeded` where too many nodes share a successor, ValueError where one is on a cycle.

    Args:
        num_nodes: N.
        eps: machines keep O(N^eps) words.
    Returns: a protocol whose output is the distance of every node, 0 at an end.
    Cost: 2 ceil(log2 N) rounds.
    Source: Wyllie's pointer jumping (1979), each jump a request and a reply.
    """
    layout = Sizes(num_nodes, eps).layout
    c = layout.per_machine

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        if words.size and int(words.max()) > num_nodes:
            raise ValueError(f"successors must lie in 0..{num_nodes}, got {int(words.max())}")
        return {"next": words, "distance": (words > 0).astype(np.int64)}

    steps: list[Step] = []
    for jump in range(max(0, num_nodes - 1).bit_length()):
        steps += _jump(layout, jump)

    def reached(ids: np.ndarray, memory: Memory, inbox: Inbox):
        rows, slots = np.nonzero(memory["next"])
        if len(rows):
            node = int(ids[rows[0]]) * c + int(slots[0])
            raise ValueError(f"node {node} never reaches an end; accepted: lists, no cycles")
        return memory, None, None

    return Protocol(
        name="list_ranking",
        num_machines=layout.num_machines,
        # A machine keeps pointer, distance and reply, and moves replies of 4 words.
        local_memory=max(4 * c, 4),
        word_bits=max(4, num_nodes.bit_length() + 1),
        num_words=num_nodes,
        words_per_machine=c,
        init=init,
        steps=(*steps, Step("all ends are reached", reached)),
        output=lambda ids, memory: memory["distance"],
        num_outputs=num_nodes,
    )


def _jump(layout: Layout, jump: int) -> tuple[Step, ...]:
    c = layout.per_machine

    def add(ids: np.ndarray, memory: Memory, inbox: Inbox):
        # Nobody was asked at an end; the reply of 0 words leaves it where it is.
        further, distance = memory["got"][..., 0], memory["got"][..., 1]
        return {"next": further, "distance": memory["distance"] + distance}, None, None

    return (
        *fetch(
            layout,
            "next",
            lambda memory: np.stack([memory["next"], memory["distance"]], -1),
            out="got",
            num_requests=c,
            recv=c,
            width=2,
        ),
        Step(f"jump {jump}", add),
    )
