"""Stable sample sort of comparison keys: its rounds do not depend on the bits of a key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout
from .sample_plan import Level, plan_levels, root
from .sort import place_by_slot
from .tree import exclusive_scan, num_levels, scan_memory, scan_traffic

LAST = np.iinfo(np.int64).max
"""Sorts after every word."""


@dataclass(frozen=True)
class SampleSort:
    """A plan to sort items by one word, compared as a whole.

    Machines are split into about sqrt c groups, these into as many subgroups, and so on down to
    single machines. At every level a group's machines send samples up a tree to its first machine;
    this picks splitters at ranks in proportion to the subgroups, which go down the tree; and every
    item goes to the subgroup of its bucket, dealt to its machines in turn from a random offset. At
    last each machine holds one bucket, and a scan of their sizes tells every item its exact place.
    Items are ordered by key, then by where they lay: ties cannot crowd a bucket.

    Args:
        layout: of the items, before and after.
        width: k, words of an item. N must be a word too.
        column: of the key among the item's words.
        optional: items whose key is 0 are none: they are dropped, the others come first, and zeros
            follow. N is then the number of slots.
        seed: of the offsets. Machines hold what `sample_plan` allows for; for items that do not
            depend on the seed, a sort overflows it with probability below 1e-9, and ends in
            InDegreeExceeded.
    Raises: ValueError for a column that items do not have.
    Source: Goodrich, Sitchinava, Zhang 2011 (sample sort in rounds of bounded messages); regular
        samples as in Shi and Schaeffer 1992.
    """

    layout: Layout
    width: int
    column: int = 0
    optional: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.column < self.width:
            raise ValueError(f"column must lie in 0..{self.width - 1}, got {self.column}")

    @property
    def fan_in(self) -> int:
        """f = floor(sqrt c) + 1, subgroups of a group at most: f^2 words fit in O(c)."""
        return math.isqrt(self.layout.per_machine) + 1

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """ceil(log_f P) levels."""
        return plan_levels(self.layout, self.width, self.fan_in)

    @property
    def num_rounds(self) -> int:
        """L (L + 2) + 2 ceil(log_(c + 1) P) + 1 for L = ceil(log_f P) levels.

        A group with a tree of h levels takes 2 h + 1, with h = L, L - 1, ..., 1.
        """
        scan = 2 * num_levels(self.layout.num_machines, self._scan_fan_in)
        return sum(level.num_rounds for level in self.levels) + scan + 1

    @property
    def memory_words(self) -> int:
        """The most a machine keeps or moves while it sorts, its items included.

        That is about (k + 2) C, items with index and address, for a capacity of C items, which is
        O(c + log N) at a fixed number of levels: C = 1.8 c for N = 10^6 and eps = 1/2, less for
        larger c, and several times c below 100.
        """
        machines, fan_in = self.layout.num_machines, self._scan_fan_in
        c = self.layout.per_machine
        capacity = self.levels[-1].capacity_after if self.levels else c
        return max(
            *(level.words(self.width) for level in self.levels),
            max(capacity, c) * (self.width + 2),
            capacity * self.width + scan_memory(machines, fan_in, 1) + 1,
            scan_traffic(machines, fan_in, 1),
        )

    def steps(self, items: str) -> tuple[Step, ...]:
        """Steps that sort the field `items` (n, c, k) in place, stably."""
        steps: list[Step] = []
        for number in range(len(self.levels)):
            steps += _Split(self, items, number).steps()
        return (*steps, *self._finish(items))

    def gathered(
        self, items: str, ids: np.ndarray, memory: Memory, inbox: Inbox, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Items (n, C, k) that a level begins with, and their index + 1 (n, C) (0 = no item), in
        order: from memory at level 0, from messages afterwards."""
        if number > 0:
            words, index = inbox.payload[..., :-1], inbox.payload[..., -1]
        else:
            words, valid = memory[items], self.layout.valid(ids)
            if self.optional:
                valid = valid & (words[..., self.column] > 0)
            index = np.where(valid, self.layout.index(ids) + 1, 0)
        order = _order(words[..., self.column], index)
        return np.take_along_axis(words, order[..., None], 1), np.take_along_axis(index, order, 1)

    @property
    def _scan_fan_in(self) -> int:
        """The least with ceil(log_(c + 1) P) levels."""
        machines = self.layout.num_machines
        return max(2, root(machines, max(1, num_levels(machines, self.layout.per_machine + 1))))

    def _finish(self, items: str) -> tuple[Step, ...]:
        """Sort the buckets, and send every item to its place: 2 ceil(log_(c + 1) P) + 1 rounds."""
        c, size = self.layout.per_machine, f"{items}.size"
        capacity = self.levels[-1].capacity_after if self.levels else c

        def count(ids: np.ndarray, memory: Memory, inbox: Inbox):
            words, index = self.gathered(items, ids, memory, inbox, len(self.levels))
            return {**memory, items: words, size: _count(index)[:, None]}, None, None

        def place(ids: np.ndarray, memory: Memory, inbox: Inbox):
            slots = np.arange(capacity)
            goal = memory[f"{items}.before"] + slots
            goal = np.where(slots < memory[size], goal, -1)
            payload = np.concatenate([memory[items], self.layout.slot(goal)[..., None]], -1)
            scratch = {items, size, f"{items}.before", f"{items}.total"}
            return _without(memory, scratch), self.layout.machine(goal), payload

        def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
            return {**memory, items: place_by_slot(inbox, c, self.width)}, None, None

        scan = exclusive_scan(
            self.layout.num_machines,
            size,
            prefix=f"{items}.before",
            total=f"{items}.total",
            width=1,
            combine=np.add,
            identity=np.zeros(1, dtype=np.int64),
            fan_in=self._scan_fan_in,
        )
        return (
            Step(f"sort {items}: count", count),
            *scan,
            Step(f"sort {items}: place", place, capacity, c, self.width + 1),
            Step(f"sort {items}: settle", settle),
        )


@dataclass(frozen=True)
class _Groups:
    """The groups of a level that machines are in: (n,) first machines, and lengths."""

    first: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, num_machines: int, levels: tuple[Level, ...]) -> _Groups:
        """After the splits of some levels."""
        first, length = np.zeros_like(ids), np.full_like(ids, num_machines)
        for level in levels:
            k = level.subgroups
            mine = ((ids - first + 1) * k - 1) // length
            begin, end = mine * length // k, (mine + 1) * length // k
            first, length = first + begin, end - begin
        return cls(first, length)

    def bounds(self, subgroups: int) -> np.ndarray:
        """(n, k + 1) where subgroups begin and end, from the first machine: floor(b length / k)."""
        return np.arange(subgroups + 1) * self.length[:, None] // subgroups


@dataclass(frozen=True)
class _Split:
    """One level of a sort: samples up, splitters down, items to their subgroups."""

    sort: SampleSort
    items: str
    number: int

    @property
    def level(self) -> Level:
        return self.sort.levels[self.number]

    @property
    def index(self) -> str:
        return f"{self.items}.index"

    @property
    def splitters(self) -> str:
        return f"{self.items}.splitters"

    def groups(self, ids: np.ndarray) -> _Groups:
        before = self.sort.levels[: self.number]
        return _Groups.of(ids, self.sort.layout.num_machines, before)

    def steps(self) -> tuple[Step, ...]:
        """2 h + 1 rounds for trees of h levels."""
        level, name = self.level, f"sort {self.items}: level {self.number}"
        k, width = level.subgroups, self.sort.width
        up = [
            Step(f"{name}: sample {height}", self._up(height), 1, k, 2 * hop.sends)
            for height, hop in enumerate(level.hops)
        ]
        down = [
            Step(f"{name}: splitters {height}", self._down(height), k - 1, 1, 2 * (k - 1))
            for height in reversed(range(len(level.hops)))
        ]
        fanout, recv = level.capacity, level.capacity_after
        return (*up, *down, Step(f"{name}: route", self._route, fanout, recv, width + 1))

    def _up(self, height: int):
        """Pass every t-th item or sample on, from a random offset."""
        level, hop = self.level, self.level.hops[height]

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            if height == 0:
                words, index = self.sort.gathered(self.items, ids, memory, inbox, self.number)
                memory = {**memory, self.items: words, self.index: index}
                keys = words[..., self.sort.column]
            else:
                keys, index = _merged(inbox)
            first = self.groups(ids).first
            place = ids - first
            offset = _random(self.sort.seed, ids, self.number, height) % np.uint64(hop.step)
            chosen = offset.astype(np.int64)[:, None] + np.arange(hop.sends) * hop.step
            exists = chosen < _count(index)[:, None]
            chosen = np.minimum(chosen, index.shape[1] - 1)
            samples = [np.take_along_axis(words, chosen, 1) * exists for words in (keys, index)]
            payload = np.stack(samples, -1).reshape(len(ids), 1, 2 * hop.sends)
            parent = first + place - place % level.subgroups ** (height + 1)
            is_node = place % level.subgroups**height == 0
            return memory, np.where(is_node, parent, -1)[:, None], payload

        return fn

    def _down(self, height: int):
        """Tell the children the splitters."""
        level, k = self.level, self.level.subgroups

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            groups = self.groups(ids)
            if height == len(level.hops) - 1:
                memory = {**memory, self.splitters: self._picked(groups, inbox)}
            else:
                memory = self._heard(memory, inbox)
            place = ids - groups.first
            child = place[:, None] + np.arange(1, k) * k**height
            sends = (place % k ** (height + 1) == 0)[:, None] & (child < groups.length[:, None])
            known = memory[self.splitters].reshape(len(ids), 1, -1)
            payload = np.broadcast_to(known, (len(ids), k - 1, known.shape[-1]))
            return memory, np.where(sends, groups.first[:, None] + child, -1), payload

        return fn

    def _picked(self, groups: _Groups, inbox: Inbox) -> np.ndarray:
        """(n, k - 1, 2) of samples at ranks in proportion to the subgroups: the last of each
        bucket; 0, before all items, where there is none, and on machines without samples."""
        keys, index = _merged(inbox)
        bounds = groups.bounds(self.level.subgroups)[:, 1:-1]
        rank = _count(index)[:, None] * bounds // groups.length[:, None]
        at = np.maximum(rank - 1, 0)
        picked = [np.take_along_axis(words, at, 1) for words in (keys, index)]
        return np.stack(picked, -1) * (rank > 0)[..., None]

    def _heard(self, memory: Memory, inbox: Inbox) -> Memory:
        known = memory[self.splitters]
        told = inbox.payload[:, 0].reshape(known.shape)
        return {
            **memory,
            self.splitters: np.where((inbox.count > 0)[:, None, None], told, known),
        }

    def _route(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """Deal the items of every bucket to the machines of its subgroup in turn."""
        memory = self._heard(memory, inbox)
        words, index, k = memory[self.items], memory[self.index], self.level.subgroups
        groups = self.groups(ids)
        ends = _num_up_to(memory[self.splitters], words[..., self.sort.column], index)
        begins = np.pad(ends, ((0, 0), (1, 0)))
        bounds = groups.bounds(k)
        # A subgroup without machines has an empty bucket.
        sizes = np.maximum(np.diff(bounds, axis=1), 1)
        # Labels below 0: no offset of a sample is used again.
        offset = _random(self.sort.seed, ids[:, None], -1 - self.number, np.arange(k)[None])
        offset = offset % sizes.astype(np.uint64)
        turn = offset.astype(np.int64) - begins
        bucket = _bucket(ends, index.shape[1])
        size = np.take_along_axis(sizes, bucket, 1)
        place = (np.take_along_axis(turn, bucket, 1) + np.arange(index.shape[1])) % size
        to = groups.first[:, None] + np.take_along_axis(bounds, bucket, 1) + place
        payload = np.concatenate([words, index[..., None]], -1)
        kept = _without(memory, {self.items, self.index, self.splitters})
        return kept, np.where(index > 0, to, -1), payload


def _order(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
    """(n, m) by key, then index; slots without an item last."""
    return np.lexsort((index, np.where(index > 0, keys, LAST)))


def _count(index: np.ndarray) -> np.ndarray:
    """(n,) items of each machine."""
    return np.count_nonzero(index, axis=1)


def _merged(inbox: Inbox) -> tuple[np.ndarray, np.ndarray]:
    """(n, samples) keys and indices + 1 of the samples received, in order, then zeros."""
    samples = inbox.payload.reshape(len(inbox.count), -1, 2)
    keys, index = samples[..., 0].copy(), samples[..., 1].copy()
    some = np.flatnonzero(inbox.count)  # Few machines are nodes.
    order = _order(keys[some], index[some])
    keys[some] = np.take_along_axis(keys[some], order, 1)
    index[some] = np.take_along_axis(index[some], order, 1)
    return keys, index


def _num_up_to(splitters: np.ndarray, keys: np.ndarray, index: np.ndarray) -> np.ndarray:
    """(n, k - 1) items of a row that are not after each splitter, by bisection."""
    low = np.zeros(splitters.shape[:2], dtype=np.int64)
    high = np.broadcast_to(_count(index)[:, None], low.shape)
    for _ in range(index.shape[1].bit_length()):
        middle = (low + high) // 2
        at = np.minimum(middle, index.shape[1] - 1)
        key, mine = np.take_along_axis(keys, at, 1), np.take_along_axis(index, at, 1)
        same = (key == splitters[..., 0]) & (mine <= splitters[..., 1])
        upto = (middle < high) & ((key < splitters[..., 0]) | same)
        low, high = np.where(upto, middle + 1, low), np.where(upto, high, middle)
    return low


def _bucket(ends: np.ndarray, num_slots: int) -> np.ndarray:
    """(n, slots) buckets that end at or before each slot."""
    num = len(ends)
    flat = ends + np.arange(num)[:, None] * (num_slots + 1)
    marks = np.bincount(flat.ravel(), minlength=num * (num_slots + 1))
    return marks.reshape(num, num_slots + 1)[:, :num_slots].cumsum(1)


def _random(seed: int, ids: np.ndarray, *labels: int | np.ndarray) -> np.ndarray:
    """64 bits for each machine and label, whoever else is asked (SplitMix64, Steele 2014)."""
    state = np.full_like(ids, seed & LAST).astype(np.uint64)
    for label in (ids, *labels):
        state = state + np.asarray(label, dtype=np.int64).astype(np.uint64)
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def _without(memory: Memory, names: set[str]) -> dict[str, np.ndarray]:
    return {name: field for name, field in memory.items() if name not in names}
