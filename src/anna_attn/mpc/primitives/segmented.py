"""Scans that start afresh at the first item of every segment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout
from .tree import Combine, exclusive_scan, scan_memory


def segmented_scan_memory(layout: Layout, fan_in: int, width: int) -> int:
    """Words that the scan keeps beside its fields: of the tree, and a slot's inclusive value."""
    tree = scan_memory(layout.num_machines, fan_in, width + 1) + (width + 1)
    return layout.per_machine * (width + 1) + tree


def segmented_scan(
    layout: Layout,
    begins: Callable[[np.ndarray, Memory], np.ndarray],
    values: Callable[[np.ndarray, Memory], np.ndarray],
    *,
    out: str,
    width: int,
    combine: Combine,
    identity: np.ndarray,
    fan_in: int,
) -> tuple[Step, ...]:
    """Combine, for every item, the values before it in its segment.

    out_g = value_h * ... * value_{g - 1}, with h the first item of g's segment; the identity at h.

    Args:
        layout: of the items.
        begins: (ids, memory) -> (n, c) bool, where a segment begins. The first item begins one
            anyway.
        values: (ids, memory) -> (n, c, width), words of the items; slots without an item count as
            the identity.
        out: field (n, c, width) that is written.
        width: k.
        combine: associative, on words (..., k); need not commute.
        identity: (k,) its neutral element.
        fan_in: f of the tree over machines.
    Returns: steps of 2 ceil(log_f P) rounds, with values of k + 1 words; see
        `segmented_scan_memory`.
    Source: the operator (f1, a) (f2, b) = (f1 or f2, b if f2 else a * b), Blelloch 1990.
    """
    start = np.asarray(identity, dtype=np.int64)
    name = f"scan {out}"

    def flagged(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        fresh = right[..., :1] > 0
        value = np.where(fresh, right[..., 1:], combine(left[..., 1:], right[..., 1:]))
        return np.concatenate([left[..., :1] | right[..., :1], value], -1)

    def inside(ids: np.ndarray, memory: Memory, inbox: Inbox):
        valid = layout.valid(ids)
        flag = (begins(ids, memory) & valid).astype(np.int64)[..., None]
        value = np.where(valid[..., None], values(ids, memory), start)
        running = _inclusive(np.concatenate([flag, value], -1), flagged)
        return {**memory, f"{out}.running": running, f"{out}.own": running[:, -1]}, None, None

    def carry(ids: np.ndarray, memory: Memory, inbox: Inbox):
        running, before = memory[f"{out}.running"], memory[f"{out}.before"][:, None]
        first = np.broadcast_to(before, (len(ids), 1, width + 1))
        # Up to each slot, machines before included; then one slot later.
        upto = flagged(np.broadcast_to(before, running.shape), running)
        exclusive = np.concatenate([first, upto[:, :-1]], 1)[..., 1:]
        exclusive = np.where(begins(ids, memory)[..., None], start, exclusive)
        scratch = {f"{out}.{part}" for part in ("running", "own", "before", "total")}
        kept = {name: field for name, field in memory.items() if name not in scratch}
        return {**kept, out: exclusive}, None, None

    tree = exclusive_scan(
        layout.num_machines,
        f"{out}.own",
        prefix=f"{out}.before",
        total=f"{out}.total",
        width=width + 1,
        combine=flagged,
        identity=np.concatenate([np.zeros(1, dtype=np.int64), start]),
        fan_in=fan_in,
    )
    return (Step(f"{name}: inside", inside), *tree, Step(f"{name}: carry", carry))


def _inclusive(values: np.ndarray, combine: Combine) -> np.ndarray:
    """Along axis 1, by doubling: log2 c combinations of whole arrays (Hillis and Steele 1986)."""
    reach = 1
    while reach < values.shape[1]:
        later = combine(values[:, :-reach], values[:, reach:])
        values = np.concatenate([values[:, :reach], later], 1)
        reach *= 2
    return values
