"""Trees over machines: exclusive scan, reduce and broadcast in O(log_f P) rounds.

Node j of level l is machine j f^l, so that a machine is a node of every level below its own, and a
parent its own first child.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Associative, on words (..., k): earlier machines left, later ones right."""


def num_levels(num_machines: int, fan_in: int) -> int:
    """ceil(log_f P): levels above the leaves."""
    levels, reach = 0, 1
    while reach < num_machines:
        levels, reach = levels + 1, reach * fan_in
    return levels


def scan_memory(num_machines: int, fan_in: int, width: int) -> int:
    """Words that a scan keeps beside its value: the children of every level, prefix and total."""
    return (num_levels(num_machines, fan_in) * fan_in + 3) * width


def exclusive_scan(
    num_machines: int,
    value: str,
    *,
    prefix: str,
    total: str,
    width: int,
    combine: Combine,
    identity: np.ndarray,
    fan_in: int,
) -> tuple[Step, ...]:
    """Give every machine the combination of the values before it, and of all.

    prefix_i = value_0 * ... * value_{i-1} (the identity at machine 0); total = all of them.

    Args:
        num_machines: P.
        value: field (n, width) that is read, and kept.
        prefix, total: fields (n, width) that are written.
        width: k, words of a value.
        combine: associative; need not commute.
        identity: (k,) its neutral element.
        fan_in: f >= 2, children of a node.
    Returns: steps of 2 ceil(log_f P) rounds. A machine receives at most (f - 1)(k + 1) words going
        up and sends at most (f - 1)(2 k + 1) going down; it keeps `scan_memory` words.
    Source: the tree of prefix sums (Blelloch 1990) with fan-in f, as in Goodrich et al. 2011.
    """
    if fan_in < 2:
        raise ValueError(f"fan_in must be at least 2, got {fan_in}")
    tree = _Tree(num_machines, value, prefix, total, width, combine, np.asarray(identity), fan_in)
    return tree.steps()


def reduce(
    num_machines: int,
    value: str,
    *,
    total: str,
    width: int,
    combine: Combine,
    identity: np.ndarray,
    fan_in: int,
) -> tuple[Step, ...]:
    """Give every machine the combination of all values: `exclusive_scan` without the prefixes."""
    scan = exclusive_scan(
        num_machines,
        value,
        prefix=f"{total}.prefix",
        total=total,
        width=width,
        combine=combine,
        identity=identity,
        fan_in=fan_in,
    )
    return (*scan, forget(f"{total}.prefix"))


def broadcast(
    num_machines: int, value: str, *, out: str, width: int, fan_in: int
) -> tuple[Step, ...]:
    """Give every machine the value of machine 0: the reduction by `first of the two`."""
    return reduce(
        num_machines,
        value,
        total=out,
        width=width,
        combine=lambda first, _: first,
        identity=np.zeros(width, dtype=np.int64),
        fan_in=fan_in,
    )


def forget(*names: str) -> Step:
    """Drop fields."""

    def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {name: field for name, field in memory.items() if name not in names}, None, None

    return Step(f"forget {', '.join(names)}", fn)


@dataclass(frozen=True)
class _Tree:
    num_machines: int
    value: str
    prefix: str
    total: str
    width: int
    combine: Combine
    identity: np.ndarray
    fan_in: int

    def steps(self) -> tuple[Step, ...]:
        levels, fan_in = num_levels(self.num_machines, self.fan_in), self.fan_in
        up = [
            Step(f"scan {self.value}: up {level}", self._up(level), 1, fan_in - 1, self.width)
            for level in range(levels)
        ]
        down = [
            Step(
                f"scan {self.value}: down {level}",
                self._down(level, levels),
                fan_in - 1,
                1,
                2 * self.width,
            )
            for level in reversed(range(levels))
        ]
        return (*up, *down, Step(f"scan {self.value}: end", self._end(levels)))

    def _children(self, level: int) -> str:
        return f"{self.value}.children.{level}"

    def _is_node(self, ids: np.ndarray, level: int) -> np.ndarray:
        return ids % self.fan_in**level == 0

    def _up(self, level: int):
        """Take in what the level below sent, then send the node's value to its parent."""

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            memory = self._gathered(ids, memory, inbox, level - 1)
            below = self.fan_in ** (level + 1)
            sends = self._is_node(ids, level) & ~self._is_node(ids, level + 1)
            destination = np.where(sends, ids - ids % below, -1)[:, None]
            return memory, destination, memory[f"{self.value}.node"][:, None]

        return fn

    def _gathered(self, ids: np.ndarray, memory: Memory, inbox: Inbox, level: int) -> Memory:
        """Memory with the children of that level, and the node's combined value; leaves at -1."""
        if level < 0:
            return {**memory, f"{self.value}.node": memory[self.value]}
        own = memory[f"{self.value}.node"]
        children = np.broadcast_to(self.identity, (len(ids), self.fan_in, self.width)).copy()
        children[:, 0] = own
        row, slot = np.nonzero(inbox.present)
        child = (inbox.source[row, slot] - ids[row]) // self.fan_in**level
        children[row, child] = inbox.payload[row, slot]
        node = children[:, 0]
        for j in range(1, self.fan_in):
            node = self.combine(node, children[:, j])
        return {**memory, self._children(level): children, f"{self.value}.node": node}

    def _down(self, level: int, levels: int):
        """Know your own prefix, then tell each child the prefix it starts with."""

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            if level == levels - 1:
                memory = self._rooted(ids, memory, inbox, levels)
            else:
                memory = self._told(ids, memory, inbox)
            children = memory[self._children(level)]
            running, total = memory[self.prefix], memory[self.total]
            payload = np.zeros((len(ids), self.fan_in - 1, 2 * self.width), dtype=np.int64)
            for j in range(1, self.fan_in):
                running = self.combine(running, children[:, j - 1])
                payload[:, j - 1] = np.concatenate([running, total], -1)
            child = ids[:, None] + np.arange(1, self.fan_in) * self.fan_in**level
            sends = self._is_node(ids, level + 1)[:, None] & (child < self.num_machines)
            kept = {name: f for name, f in memory.items() if name != self._children(level)}
            return kept, np.where(sends, child, -1), payload

        return fn

    def _rooted(self, ids: np.ndarray, memory: Memory, inbox: Inbox, levels: int) -> Memory:
        """At the root the prefix is nothing and the total is known."""
        memory = dict(self._gathered(ids, memory, inbox, levels - 1))
        total = memory.pop(f"{self.value}.node")
        prefix = np.broadcast_to(self.identity, total.shape).astype(np.int64)
        return {**memory, self.prefix: prefix, self.total: total}

    def _told(self, ids: np.ndarray, memory: Memory, inbox: Inbox) -> Memory:
        told = (inbox.count > 0)[:, None]
        if inbox.payload.shape[1] == 0:
            return memory
        words = inbox.payload[:, 0]
        return {
            **memory,
            self.prefix: np.where(told, words[:, : self.width], memory[self.prefix]),
            self.total: np.where(told, words[:, self.width :], memory[self.total]),
        }

    def _end(self, levels: int):
        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            if levels == 0:
                memory = self._rooted(ids, memory, inbox, 0)
            else:
                memory = self._told(ids, memory, inbox)
            return memory, None, None

        return fn
