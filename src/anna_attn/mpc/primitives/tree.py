"""Trees over lines of machines: broadcast, reduce and scans in O(log_f P) rounds.

Node j of level l stands at place j f^l of its line, so that a machine is a node of every level
below its own, and a parent its own first child.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Associative, on words (..., k): earlier machines left, later ones right."""


@dataclass(frozen=True)
class Line:
    """Machines that share a tree: i, i + stride, i + 2 stride, ...; all lines work at once.

    The rows of a square of n x n machines are Line(n), its columns Line(n, stride=n).

    Args:
        length: machines of a line; where all machines are in lines, length x stride divides P.
        stride: from one to the next.
        count: how many lines, the first ones, work; the machines of others are silent. None = all.
    """

    length: int
    stride: int = 1
    count: int | None = None

    def works(self, ids: np.ndarray) -> np.ndarray:
        """Which machines stand in a line that works."""
        if self.count is None:
            return np.ones(len(ids), dtype=bool)
        line = ids // (self.length * self.stride) * self.stride + ids % self.stride
        return line < self.count

    def place(self, ids: np.ndarray) -> np.ndarray:
        """Where in its line a machine stands, from 0."""
        return ids // self.stride % self.length

    def machine(self, ids: np.ndarray, place: np.ndarray) -> np.ndarray:
        """(n, ...) the machines at places (n, ...) of the lines of `ids`."""
        here = self.place(ids).reshape(-1, *[1] * (place.ndim - 1))
        return ids.reshape(here.shape) + (place - here) * self.stride


def num_levels(num_machines: int, fan_in: int) -> int:
    """ceil(log_f P): levels above the leaves."""
    levels, reach = 0, 1
    while reach < num_machines:
        levels, reach = levels + 1, reach * fan_in
    return levels


def scan_memory(num_machines: int, fan_in: int, width: int) -> int:
    """Words that a scan keeps beside its value: the children of every level, prefix and total."""
    return (num_levels(num_machines, fan_in) * fan_in + 3) * width


def scan_traffic(num_machines: int, fan_in: int, width: int) -> int:
    """Words that a machine sends or receives at most in a round of a scan."""
    return (fan_in - 1) * (2 * width + 1) if num_levels(num_machines, fan_in) else 0


def exclusive_scan(
    line: Line | int,
    value: str,
    *,
    prefix: str,
    width: int,
    combine: Combine,
    identity: np.ndarray,
    fan_in: int,
    total: str | None = None,
    suffix: str | None = None,
) -> tuple[Step, ...]:
    """Give every machine the combination of the values before it, and of all or of those after it.

    prefix_i = value_0 * ... * value_{i-1} (the identity at machine 0); total = all of them;
    suffix_i = value_{i+1} * ... * value_{P-1}.

    Args:
        line: of machines; a number P means one of the first P.
        value: field (n, width) that is read, and kept.
        prefix: field (n, width) that is written.
        width: k, words of a value.
        combine: associative; need not commute.
        identity: (k,) its neutral element.
        fan_in: f >= 2, children of a node.
        total, suffix: the other field (n, width) that is written; one of the two is given.
    Returns: steps of 2 ceil(log_f P) rounds. A machine receives at most (f - 1)(k + 1) words going
        up and sends at most (f - 1)(2 k + 1) going down; it keeps `scan_memory` words.
    Raises: ValueError for a fan-in below 2, or not one of total and suffix.
    Source: the tree of prefix sums (Blelloch 1990) with fan-in f, as in Goodrich et al. 2011.
    """
    if (total is None) == (suffix is None):
        raise ValueError(f"give one of total and suffix, got {total!r} and {suffix!r}")
    second = total or suffix or ""
    tree = _Tree(_line(line), value, width, np.asarray(identity), _at_least_2(fan_in), combine)
    return _Scan(tree, prefix, second, told_total=suffix is None).steps()


def reduce(
    line: Line | int,
    value: str,
    *,
    total: str,
    width: int,
    combine: Combine,
    identity: np.ndarray,
    fan_in: int,
    to_all: bool = True,
) -> tuple[Step, ...]:
    """Give every machine, or the first of each line, the combination of all values.

    Args:
        line, value, width, combine, identity, fan_in: as for `exclusive_scan`.
        total: field (n, width) that is written.
        to_all: False leaves the identity at the others.
    Returns: steps of 2 ceil(log_f P) rounds, or half of them for the first alone. A machine
        receives at most (f - 1)(k + 1) words going up, sends as many going down, and keeps k beside
        the value.
    """
    tree = _Tree(_line(line), value, width, np.asarray(identity), _at_least_2(fan_in), combine)
    up = [tree.up(level, keep=False) for level in range(tree.levels)]

    def top(ids: np.ndarray, memory: Memory, inbox: Inbox):
        memory = dict(tree.gathered(ids, memory, inbox, tree.levels - 1, keep=False))
        node = memory.pop(tree.node)
        first = tree.line.place(ids)[:, None] == 0
        return {**memory, total: np.where(first, node, tree.identity)}, None, None

    steps = (*up, Step(f"reduce {value}: top", top))
    if not to_all:
        return steps
    return (*steps, *broadcast(line, total, out=total, width=width, fan_in=fan_in))


def broadcast(
    line: Line | int, value: str, *, out: str, width: int, fan_in: int
) -> tuple[Step, ...]:
    """Give every machine the value of the first of its line.

    Args:
        value, out: fields (n, width), read and written; they may be the same.
        line, width, fan_in: as for `exclusive_scan`.
    Returns: steps of ceil(log_f P) rounds; a machine sends at most (f - 1)(k + 1) words in one.
    """
    line, fan_in = _line(line), _at_least_2(fan_in)
    levels = num_levels(line.length, fan_in)

    def heard(memory: Memory, inbox: Inbox) -> dict[str, np.ndarray]:
        if inbox.source.shape[1] == 0:
            return dict(memory)
        words = np.where((inbox.count > 0)[:, None], inbox.payload[:, 0], memory[out])
        return {**memory, out: words}

    def down(level: int):
        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            is_top = level == levels - 1
            memory = {**memory, out: memory[value]} if is_top else heard(memory, inbox)
            place = line.place(ids)
            child = place[:, None] + np.arange(1, fan_in) * fan_in**level
            is_node = (place % fan_in ** (level + 1) == 0) & line.works(ids)
            sends = is_node[:, None] & (child < line.length)
            words = np.broadcast_to(memory[out][:, None], (len(ids), fan_in - 1, width))
            return memory, np.where(sends, line.machine(ids, child), -1), words

        return Step(f"broadcast {value}: down {level}", fn, fan_in - 1, 1, width)

    def end(ids: np.ndarray, memory: Memory, inbox: Inbox):
        if levels == 0:
            return {**memory, out: memory[value]}, None, None
        return heard(memory, inbox), None, None

    return (*(down(level) for level in reversed(range(levels))), Step(f"broadcast {value}", end))


def forget(*names: str) -> Step:
    """Drop fields."""

    def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {name: field for name, field in memory.items() if name not in names}, None, None

    return Step(f"forget {', '.join(names)}", fn)


def _line(line: Line | int) -> Line:
    return Line(line, count=1) if isinstance(line, int) else line


def _at_least_2(fan_in: int) -> int:
    if fan_in < 2:
        raise ValueError(f"fan_in must be at least 2, got {fan_in}")
    return fan_in


@dataclass(frozen=True)
class _Tree:
    """The way up, which scans and reductions share."""

    line: Line
    value: str
    width: int
    identity: np.ndarray
    fan_in: int
    combine: Combine

    @property
    def levels(self) -> int:
        return num_levels(self.line.length, self.fan_in)

    @property
    def node(self) -> str:
        """The field of a node's combined value."""
        return f"{self.value}.node"

    def children(self, level: int) -> str:
        return f"{self.value}.children.{level}"

    def is_node(self, ids: np.ndarray, level: int) -> np.ndarray:
        return (self.line.place(ids) % self.fan_in**level == 0) & self.line.works(ids)

    def up(self, level: int, keep: bool) -> Step:
        """Take in what the level below sent, then send the node's value to its parent."""

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            memory = self.gathered(ids, memory, inbox, level - 1, keep)
            place = self.line.place(ids)
            parent = self.line.machine(ids, place - place % self.fan_in ** (level + 1))
            sends = self.is_node(ids, level) & ~self.is_node(ids, level + 1)
            return memory, np.where(sends, parent, -1)[:, None], memory[self.node][:, None]

        return Step(f"scan {self.value}: up {level}", fn, 1, self.fan_in - 1, self.width)

    def gathered(
        self, ids: np.ndarray, memory: Memory, inbox: Inbox, level: int, keep: bool
    ) -> Memory:
        """Memory with the node's combined value, and its children if kept; leaves at level -1."""
        if level < 0:
            return {**memory, self.node: memory[self.value]}
        children = np.broadcast_to(self.identity, (len(ids), self.fan_in, self.width)).copy()
        children[:, 0] = memory[self.node]
        row, slot = np.nonzero(inbox.present)
        place = self.line.place(ids)
        child = (self.line.place(inbox.source[row, slot]) - place[row]) // self.fan_in**level
        children[row, child] = inbox.payload[row, slot]
        node = children[:, 0]
        for j in range(1, self.fan_in):
            node = self.combine(node, children[:, j])
        kept = {self.children(level): children} if keep else {}
        return {**memory, **kept, self.node: node}


@dataclass(frozen=True)
class _Scan:
    """The way down: every node tells each child its prefix, and the total or its suffix."""

    tree: _Tree
    prefix: str
    second: str
    told_total: bool

    def steps(self) -> tuple[Step, ...]:
        levels, tree = self.tree.levels, self.tree
        down = [
            Step(
                f"scan {tree.value}: down {level}",
                self._down(level),
                tree.fan_in - 1,
                1,
                2 * tree.width,
            )
            for level in reversed(range(levels))
        ]
        up = [tree.up(level, keep=True) for level in range(levels)]
        return (*up, *down, Step(f"scan {tree.value}: end", self._end))

    def _down(self, level: int):
        tree = self.tree

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            if level == tree.levels - 1:
                memory = self._rooted(ids, memory, inbox)
            else:
                memory = self._told(memory, inbox)
            place = tree.line.place(ids)
            child = place[:, None] + np.arange(1, tree.fan_in) * tree.fan_in**level
            sends = tree.is_node(ids, level + 1)[:, None] & (child < tree.line.length)
            own, payload = self._shares(memory, tree.children(level))
            if not self.told_total:
                # The first child is the node itself, and its suffix shrinks by its siblings.
                is_node = tree.is_node(ids, level + 1)[:, None]
                memory = {**memory, self.second: np.where(is_node, own, memory[self.second])}
            kept = {name: f for name, f in memory.items() if name != tree.children(level)}
            return kept, np.where(sends, tree.line.machine(ids, child), -1), payload

        return fn

    def _shares(self, memory: Memory, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The first child's suffix; (n, f - 1, 2 k) prefix and total, or suffix, of the others."""
        tree, children, running = self.tree, memory[name], memory[self.prefix]
        after = memory[self.second]
        payload = np.zeros((len(children), tree.fan_in - 1, 2 * tree.width), dtype=np.int64)
        for j in range(1, tree.fan_in):
            running = tree.combine(running, children[:, j - 1])
            payload[:, j - 1, : tree.width] = running
        for j in reversed(range(1, tree.fan_in)):
            payload[:, j - 1, tree.width :] = after
            if not self.told_total:
                after = tree.combine(children[:, j], after)
        return after, payload

    def _rooted(self, ids: np.ndarray, memory: Memory, inbox: Inbox) -> Memory:
        """At the root nothing is before, nothing after, and the total is known."""
        tree = self.tree
        memory = dict(tree.gathered(ids, memory, inbox, tree.levels - 1, keep=True))
        node = memory.pop(tree.node)
        nothing = np.broadcast_to(tree.identity, node.shape).astype(np.int64)
        return {**memory, self.prefix: nothing, self.second: node if self.told_total else nothing}

    def _told(self, memory: Memory, inbox: Inbox) -> Memory:
        if inbox.source.shape[1] == 0:
            return memory
        told, width = (inbox.count > 0)[:, None], self.tree.width
        words = inbox.payload[:, 0]
        return {
            **memory,
            self.prefix: np.where(told, words[:, :width], memory[self.prefix]),
            self.second: np.where(told, words[:, width:], memory[self.second]),
        }

    def _end(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        if self.tree.levels == 0:
            return self._rooted(ids, memory, inbox), None, None
        return self._told(memory, inbox), None, None
