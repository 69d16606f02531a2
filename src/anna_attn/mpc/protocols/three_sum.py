"""3-SUM: do three of the words add up to a target?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Gather, Key, Layout, RadixSort, reduce
from .sizes import Sizes


def three_sum(num_words: int, eps: float, *, target: int, word_bits: int = 32) -> Protocol:
    """Three words at different places with x + y + z = target, if there are any.

    The words are sorted into B = ceil(N / b) blocks of b. Of three blocks t <= t + d <= t + e that
    move together, the sums of later places are no less than those of earlier ones; so for each of
    the B (B + 1) / 2 pairs d <= e only the first place whose greatest sum reaches the target can
    hold a solution, up to ties. A machine for each pair finds the place by reading greatest words
    of blocks, b places at a time; reads the three blocks; and looks for a solution among them.

    Ties: if a solution lies at a later place of its pair, the blocks between hold its words too,
    and there is another in blocks of a lesser sum of numbers; so the least solution is found.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        target: of the sum; for signed words add an offset to them and thrice that to the target.
        word_bits: p; words lie in [0, 2^p), p <= 60.
    Returns: a protocol with four words of output on its first machine: 1, x, y, z with x <= y <= z,
        or zeros.
    Cost: a sort, ceil(log_b B) + 1 concurrent reads and a reduction: O(1) rounds at fixed eps, on
        about N^(2 - 2 eps) / 8 machines, with b = 2 N^eps. Local work is O(b^2) a machine.
    Raises: ValueError for word_bits outside 1..60.
    Source: Hajiaghayi, Lattanzi, Seddighin, Stein 2019 (arXiv:1905.01748), Theorem 3.1, for
        constant rounds with N^(1/2) words a machine; the machine for each pair of shifts is ours.
    """
    if not 1 <= word_bits <= 60:
        raise ValueError(f"word_bits must lie in 1..60, got {word_bits}")
    per_machine = 2 * Sizes(num_words, eps).layout.per_machine
    plan = _Plan.of(Layout(num_words, per_machine), target, word_bits)

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        return {"items": words[..., None]}

    def begin(ids: np.ndarray, memory: Memory, inbox: Inbox):
        _, e = plan.shifts(ids)
        places = np.where(e < plan.num_blocks, plan.num_blocks - e, 0)
        span = np.stack([np.zeros_like(places), places], 1)
        return {"words": memory["items"][..., 0], "span": span}, None, None

    def show(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {"result": memory["best"]}, None, None

    best = reduce(
        plan.num_machines,
        "found",
        total="best",
        width=4,
        combine=lambda left, right: np.where(left[..., :1] > 0, left, right),
        identity=np.zeros(4, dtype=np.int64),
        fan_in=plan.gather.group.sort.fan_in,
        to_all=False,
    )
    searches = [step for level in range(plan.num_searches) for step in plan.narrow(level)]
    return Protocol(
        name="three_sum",
        num_machines=plan.num_machines,
        local_memory=plan.memory_words,
        word_bits=plan.word_bits,
        num_words=num_words,
        words_per_machine=per_machine,
        init=init,
        steps=(
            *plan.sort.steps("items"),
            Step("all places", begin),
            *searches,
            *plan.read_blocks(),
            Step("look", plan.look),
            *best,
            Step("show", show),
        ),
        output=lambda ids, memory: memory["result"],
        num_outputs=4,
    )


@dataclass(frozen=True)
class _Plan:
    """Blocks, their machines and those of the pairs of shifts, which are the same."""

    blocks: Layout
    target: int
    bits: int
    num_machines: int
    sort: RadixSort
    gather: Gather

    @classmethod
    def of(cls, blocks: Layout, target: int, word_bits: int) -> _Plan:
        b, num = blocks.per_machine, blocks.num_machines
        machines = num * (num + 1) // 2
        gather = Gather.of(blocks, machines, 3 * b)
        sort = RadixSort.balanced(blocks, 1, (Key(0, word_bits),))
        return cls(blocks, target, word_bits, machines, sort, gather)

    @property
    def num_blocks(self) -> int:
        return self.blocks.num_machines

    @property
    def num_searches(self) -> int:
        """Until one place is left of B and `none of them`, of which b are probed at a time."""
        searches, left = 0, self.num_blocks
        while left > 0:
            searches, left = searches + 1, -(-left // (self.blocks.per_machine + 1)) - 1
        return searches

    @property
    def memory_words(self) -> int:
        b = self.blocks.per_machine
        fan_in = self.gather.group.sort.fan_in
        reading = self.gather.memory_words + b + 2
        return max(self.sort.memory_words, reading + 4 * b, 5 * (fan_in - 1), 6 * b + 12)

    @property
    def word_bits(self) -> int:
        homes = self.gather.group.homes.num_items
        return max(self.bits, homes.bit_length() + 1, self.blocks.num_items.bit_length() + 1, 2)

    def shifts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) d and e: machine e (e + 1) / 2 + d has the pair d <= e."""
        e = ((np.sqrt(8.0 * ids + 1.0) - 1.0) / 2.0).astype(np.int64)
        # A root of floating point may be one off.
        e -= e * (e + 1) // 2 > ids
        e += (e + 1) * (e + 2) // 2 <= ids
        return ids - e * (e + 1) // 2, e

    def narrow(self, level: int) -> tuple[Step, ...]:
        """Probe b places: their greatest sums are those of the last words of three blocks."""
        b = self.blocks.per_machine

        def probes(memory: Memory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            low, high = memory["span"][:, :1], memory["span"][:, 1:]
            stride = -(-(high - low) // (b + 1))
            place = low + stride * np.arange(1, b + 1) - 1
            return place, place < high, stride

        def ask(ids: np.ndarray, memory: Memory, inbox: Inbox):
            place, is_probe, _ = probes(memory)
            d, e = self.shifts(ids)
            block = place[:, None] + np.stack([np.zeros_like(d), d, e], 1)[..., None]
            last = np.minimum((block + 1) * b, self.blocks.num_items)
            address = np.where(is_probe[:, None], last, 0).reshape(len(ids), -1)
            return {**memory, "address": address}, None, None

        def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
            _, is_probe, stride = probes(memory)
            sums = memory["got"].reshape(len(ids), 3, b).sum(1)
            short = (is_probe & (sums < self.target)).sum(1, keepdims=True)
            low, high = memory["span"][:, :1], memory["span"][:, 1:]
            low = np.minimum(low + stride * short, high)
            high = np.minimum(low + np.maximum(stride - 1, 0), high)
            return {"words": memory["words"], "span": np.concatenate([low, high], 1)}, None, None

        return (
            Step(f"search {level}: ask", ask),
            *self.gather.steps("address", lambda memory: memory["words"], out="got"),
            Step(f"search {level}: narrow", settle),
        )

    def read_blocks(self) -> tuple[Step, ...]:
        """The three blocks at the place that is left, if there is one."""

        def ask(ids: np.ndarray, memory: Memory, inbox: Inbox):
            block, exists = self._blocks(ids, memory)
            word = block[..., None] * self.blocks.per_machine + np.arange(self.blocks.per_machine)
            exists = exists[:, None, None] & (word < self.blocks.num_items)
            return (
                {
                    **memory,
                    "address": np.where(exists, word + 1, 0).reshape(len(ids), -1),
                },
                None,
                None,
            )

        return (
            Step("ask for blocks", ask),
            *self.gather.steps("address", lambda memory: memory["words"], out="got"),
        )

    def _blocks(self, ids: np.ndarray, memory: Memory) -> tuple[np.ndarray, np.ndarray]:
        """(n, 3) numbers of blocks, and (n,) whether they exist."""
        d, e = self.shifts(ids)
        place = memory["span"][:, 0]
        return place[:, None] + np.stack([np.zeros_like(d), d, e], 1), place + e < self.num_blocks

    def look(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """Two pointers for every word of the first block: up the second, down the third."""
        b = self.blocks.per_machine
        block, exists = self._blocks(ids, memory)
        size = np.clip(self.blocks.num_items - block * b, 0, b) * exists[:, None]
        words = memory["got"].reshape(len(ids), 3, b)
        found = np.zeros((len(ids), 4), dtype=np.int64)
        rows = np.flatnonzero(exists)
        for part in np.array_split(rows, max(1, len(rows) * b // _CHUNK)):
            found[part] = _solutions(words[part], block[part], size[part], self.target)
        return {"found": found}, None, None


_CHUNK = 1 << 16
"""Pairs of pointers at a time; they stay in cache."""


def _solutions(words: np.ndarray, block: np.ndarray, size: np.ndarray, target: int) -> np.ndarray:
    """(n, 4) found, x, y, z from three sorted blocks (n, 3, b) each, of which some may be one."""
    num, _, b = words.shape
    first = np.broadcast_to(np.arange(b), (num, b))
    row = np.broadcast_to(np.arange(num)[:, None], (num, b))
    # In the same block the second word comes after the first, and the third after the second.
    up = np.where(block[:, :1] == block[:, 1:2], first + 1, 0).reshape(-1)
    down = np.broadcast_to(size[:, 2:] - 1, (num, b)).reshape(-1)
    row, first = row.reshape(-1), first.reshape(-1)
    result = np.zeros((num, 4), dtype=np.int64)
    live = first < size[row, 0]
    row, first, up, down = row[live], first[live], up[live], down[live]
    x, twins = words[row, 0, first], block[row, 1] == block[row, 2]
    ends = size[row, 1]
    while len(row):
        going = (up < ends) & (down >= 0) & ~(twins & (up >= down)) & (result[row, 0] == 0)
        if not going.all():
            row, up, down, x = row[going], up[going], down[going], x[going]
            twins, ends = twins[going], ends[going]
        y, z = words[row, 1, up], words[row, 2, down]
        total = x + y + z
        hits = np.flatnonzero(total == target)
        if len(hits):
            # The last assignment to a row counts: written from the back, it is the first hit.
            hits = hits[::-1]
            result[row[hits]] = np.stack([np.ones_like(hits), x[hits], y[hits], z[hits]], 1)
        up, down = up + (total <= target), down - (total > target)
    return result
