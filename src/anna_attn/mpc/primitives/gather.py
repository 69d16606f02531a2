"""Reading items by address, however many read the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step
from .group import GroupBy
from .items import Layout
from .sort import Key, RadixSort


@dataclass(frozen=True)
class Gather:
    """A plan to read one word each at many addresses: concurrent reads, as a PRAM has them.

    `fetch` asks the owner, which must not be asked too often. Here the items and the requests for
    them are grouped by address, and a group is spread over as many machines as it needs.

    Args:
        items: layout of what is read; its machines are the first of all.
        num_requests: of a machine.
        group: of items and requests together.
    """

    items: Layout
    num_requests: int
    group: GroupBy

    @classmethod
    def of(cls, items: Layout, num_machines: int, num_requests: int) -> Gather:
        """The plan for `num_requests` on each of `num_machines` machines."""
        slots = items.per_machine + num_requests
        homes = Layout(slots * num_machines, slots)
        key = Key(0, items.num_items.bit_length() or 1)
        sort = RadixSort.balanced(homes, 3, (key,), optional=True)
        return cls(items, num_requests, GroupBy(sort, homes, 1, np.add, 0))

    @property
    def num_rounds(self) -> int:
        """Those of a grouping."""
        return self.group.num_rounds

    @property
    def memory_words(self) -> int:
        """The most a machine keeps or moves for it."""
        return self.group.memory_words

    def steps(
        self, addresses: str, words: Callable[[Memory], np.ndarray], *, out: str
    ) -> tuple[Step, ...]:
        """Steps that read.

        Args:
            addresses: field (n, num_requests) of item indices + 1, 0 = nothing; it is consumed.
            words: of memory, the items' words (n, c); those of slots without an item do not matter.
            out: field (n, num_requests) that is written; 0 where nothing was asked.
        """
        c = self.items.per_machine

        def ask(ids: np.ndarray, memory: Memory, inbox: Inbox):
            own = np.where(self.items.valid(ids), self.items.index(ids) + 1, 0)
            key = np.concatenate([own, memory[addresses]], 1)
            home = self.group.homes.index(ids) + 1
            home[:, :c] = 0
            value = np.concatenate([words(memory), np.zeros_like(memory[addresses])], 1)
            kept = {name: field for name, field in memory.items() if name != addresses}
            return {**kept, f"{out}.items": np.stack([key, home, value], -1)}, None, None

        def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
            kept = {name: field for name, field in memory.items() if name != f"{out}.got"}
            return {**kept, out: memory[f"{out}.got"][:, c:, 0]}, None, None

        return (
            Step(f"gather {addresses}: ask", ask),
            *self.group.steps(f"{out}.items", out=f"{out}.got"),
            Step(f"gather {addresses}: settle", settle),
        )
