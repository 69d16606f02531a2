"""What lies just before or after a machine's own items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model import Inbox, Memory, Step


def from_neighbour(
    num_machines: int,
    give: Callable[[np.ndarray, Memory], np.ndarray],
    *,
    out: str,
    width: int,
    side: int,
    absent: int = 0,
) -> tuple[Step, ...]:
    """Give every machine some words of the machine before it (side -1) or after it (side 1).

    Args:
        num_machines: P.
        give: (ids, memory) -> (n, width), what a machine tells its neighbour.
        out: field (n, width) that is written; `absent` where there is no neighbour.
    Returns: steps of 1 round.
    """

    def send(ids: np.ndarray, memory: Memory, inbox: Inbox):
        to = ids - side
        exists = (to >= 0) & (to < num_machines)
        return memory, np.where(exists, to, -1)[:, None], give(ids, memory)[:, None]

    def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
        got = np.where(inbox.present, inbox.payload[:, 0], absent)
        return {**memory, out: got}, None, None

    return (
        Step(f"tell {'next' if side < 0 else 'previous'}: {out}", send, 1, 1, width),
        Step(f"hear: {out}", settle),
    )
