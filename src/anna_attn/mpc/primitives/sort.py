"""Stable radix sort: per digit one scan of histograms and one round of routing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout
from .tree import exclusive_scan, num_levels, scan_memory

_FAN_INS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)


@dataclass(frozen=True)
class Key:
    """Part of a sort key.

    Args:
        column: of the item's words.
        bits: the column's words lie in [0, 2^bits).
    """

    column: int
    bits: int


@dataclass(frozen=True)
class RadixSort:
    """A plan to sort items by key columns.

    Args:
        layout: of the items, before and after.
        width: k, words of an item.
        keys: the most significant first.
        digit_bits: log2 B, bits sorted in one pass.
        fan_in: f of the scans.
        optional: a slot whose first key column is 0 holds no item; items come first, in order, and
            slots of zeros after them. Otherwise the layout says which slots hold one.
    """

    layout: Layout
    width: int
    keys: tuple[Key, ...]
    digit_bits: int
    fan_in: int
    optional: bool = False

    @classmethod
    def balanced(
        cls, layout: Layout, width: int, keys: tuple[Key, ...], *, optional: bool = False
    ) -> RadixSort:
        """The plan whose rounds do not grow with N: B and f about sqrt c, so B f words fit in O(c).

        At fixed eps, c = N^eps: log_f P = O((1 - eps) / eps) levels, and O(1 / eps) passes for keys
        of O(log N) bits.
        """
        root = math.isqrt(layout.per_machine)
        digit_bits = max(1, root.bit_length() - 1)
        return cls(layout, width, keys, digit_bits, max(2, root), optional)

    @classmethod
    def within(
        cls,
        layout: Layout,
        width: int,
        keys: tuple[Key, ...],
        memory: int,
        *,
        optional: bool = False,
    ) -> RadixSort:
        """The plan of the fewest rounds that keeps and moves at most `memory` words.

        Where none does, the plan of the least memory. For `memory` = O(c) it is one of O(1) rounds;
        but small N get by with fewer than large ones, because constants count for more there.
        """
        plans = [
            cls(layout, width, keys, digit_bits, fan_in, optional)
            for digit_bits in range(1, max(key.bits for key in keys) + 1)
            for fan_in in _FAN_INS
        ]
        fitting = [plan for plan in plans if plan.memory_words <= memory]
        if not fitting:
            return min(plans, key=lambda plan: plan.memory_words)
        return min(fitting, key=lambda plan: (plan.num_rounds, plan.memory_words))

    @property
    def num_passes(self) -> int:
        """sum over keys of ceil(bits / log2 B)."""
        return sum(-(-key.bits // self.digit_bits) for key in self.keys)

    @property
    def num_rounds(self) -> int:
        """num_passes (2 ceil(log_f P) + 1)."""
        levels = num_levels(self.layout.num_machines, self.fan_in)
        return self.num_passes * (2 * levels + 1)

    @property
    def memory_words(self) -> int:
        """The most a machine keeps or moves while it sorts, its items included."""
        c, buckets = self.layout.per_machine, 1 << self.digit_bits
        scan = scan_memory(self.layout.num_machines, self.fan_in, buckets) + buckets
        # A parent sends its children prefix and total; items travel with slot and address.
        tree = (self.fan_in - 1) * (2 * buckets + 1)
        return max(c * self.width + scan, c * (self.width + 2), tree)

    def present(self, ids: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(n, c) bool: slots that hold an item."""
        return items[..., self.keys[0].column] > 0 if self.optional else self.layout.valid(ids)

    def steps(self, items: str) -> tuple[Step, ...]:
        """Steps that sort the field `items` (n, c, k) in place, stably."""
        steps: list[Step] = []
        for key in reversed(self.keys):
            for shift in range(0, key.bits, self.digit_bits):
                steps += self._pass(
                    items, key.column, shift, min(self.digit_bits, key.bits - shift)
                )
        return tuple(steps)

    def _pass(self, items: str, column: int, shift: int, bits: int) -> list[Step]:
        buckets = 1 << bits
        name = f"sort {items}"

        def digits(ids: np.ndarray, memory: Memory) -> np.ndarray:
            """(n, c) digit of each item; B where there is none, which sorts it last."""
            digit = (memory[items][:, :, column] >> shift) & (buckets - 1)
            return np.where(self.present(ids, memory[items]), digit, buckets)

        def count(ids: np.ndarray, memory: Memory, inbox: Inbox):
            histogram = _histogram(digits(ids, memory), buckets)
            return {**memory, f"{items}.histogram": histogram}, None, None

        def route(ids: np.ndarray, memory: Memory, inbox: Inbox):
            digit = digits(ids, memory)
            before = memory[f"{items}.before"]
            total = memory[f"{items}.total"]
            first = np.cumsum(total, 1) - total + before
            rank = _rank_among_equals(digit, memory[f"{items}.histogram"])
            place = np.take_along_axis(first, np.minimum(digit, buckets - 1), 1) + rank
            place = np.where(self.present(ids, memory[items]), place, -1)
            slot = self.layout.slot(place)
            payload = np.concatenate([memory[items], slot[..., None]], -1)
            scratch = {items, f"{items}.histogram", f"{items}.before", f"{items}.total"}
            kept = {key: field for key, field in memory.items() if key not in scratch}
            return kept, self.layout.machine(place), payload

        def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
            c = self.layout.per_machine
            return {**memory, items: place_by_slot(inbox, c, self.width)}, None, None

        scan = exclusive_scan(
            self.layout.num_machines,
            f"{items}.histogram",
            prefix=f"{items}.before",
            total=f"{items}.total",
            width=buckets,
            combine=np.add,
            identity=np.zeros(buckets, dtype=np.int64),
            fan_in=self.fan_in,
        )
        c = self.layout.per_machine
        return [
            Step(f"{name}: count", count),
            *scan,
            Step(f"{name}: route", route, c, c, self.width + 1),
            Step(f"{name}: settle", settle),
        ]


def place_by_slot(inbox: Inbox, slots: int, width: int) -> np.ndarray:
    """(n, slots, width) from messages whose last word says in which slot they belong."""
    placed = np.zeros((len(inbox.count), slots, width), dtype=np.int64)
    row, place = np.nonzero(inbox.present)
    words = inbox.payload[row, place]
    placed[row, words[:, -1]] = words[:, :-1]
    return placed


def _histogram(digit: np.ndarray, buckets: int) -> np.ndarray:
    num = len(digit)
    flat = digit + np.arange(num)[:, None] * (buckets + 1)
    counts = np.bincount(flat.ravel(), minlength=num * (buckets + 1))
    return counts.reshape(num, buckets + 1)[:, :buckets].astype(np.int64)


def _rank_among_equals(digit: np.ndarray, histogram: np.ndarray) -> np.ndarray:
    """(n, c) how many slots before a slot of its row hold the same digit."""
    order = np.argsort(digit, axis=1, kind="stable")
    ordered = np.take_along_axis(digit, order, 1)
    starts = np.cumsum(np.pad(histogram, ((0, 0), (1, 0))), 1)
    rank = np.arange(digit.shape[1]) - np.take_along_axis(starts, ordered, 1)
    result = np.empty_like(rank)
    np.put_along_axis(result, order, rank, 1)
    return result
