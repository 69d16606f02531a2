"""Hand every query what the records of its key amount to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout
from .neighbour import from_neighbour
from .segmented import segmented_scan, segmented_scan_memory
from .sort import RadixSort, place_by_slot
from .tree import Combine, num_levels

KEY, HOME = range(2)
"""First words of an item: its key, and where its answer goes + 1 (0 = nowhere: a record)."""


@dataclass(frozen=True)
class Join:
    """A plan to answer queries from records that have the same key.

    Items (key, home, values...) are sorted stably by `order`, which must bring items of one key
    together; a scan then gives each query the combination of the values of the records before it
    in its key's segment, and the answer goes home. So a query that stands after all records of its
    key gets them all, and one that stands among them gets the earlier ones.

    Args:
        sort: of the items, which have 2 + width words.
        homes: layout of the answers; at most one query has each home.
        width: words of a value and of an answer.
        combine, identity: of the values.
        same_key: word of a key -> what has to agree, when the key also holds an order.
    """

    sort: RadixSort
    homes: Layout
    width: int
    combine: Combine
    identity: np.ndarray
    same_key: Callable[[np.ndarray], np.ndarray] = lambda key: key

    @property
    def num_rounds(self) -> int:
        """A sort, a word from the neighbour, a scan, and the way home."""
        levels = num_levels(self.sort.layout.num_machines, self.sort.fan_in)
        return self.sort.num_rounds + 2 * levels + 2

    @property
    def memory_words(self) -> int:
        """The most a machine keeps or moves."""
        items, width = self.sort.layout.per_machine, self.width
        scan = segmented_scan_memory(self.sort.layout, self.sort.fan_in, width)
        keeps = items * (2 + width) + 1 + items * width + scan
        tree = (self.sort.fan_in - 1) * (2 * (width + 1) + 1)
        return max(self.sort.memory_words, keeps, tree, items * (width + 2))

    def steps(self, items: str, *, out: str) -> tuple[Step, ...]:
        """Steps that consume the field `items` (n, c, 2 + width) and write `out` (n, homes,
        width + 1): the answers, and a last word that is 1 where there was a query."""
        layout = self.sort.layout

        def last_key(ids: np.ndarray, memory: Memory) -> np.ndarray:
            return memory[items][:, -1:, KEY] + 1

        def begins(ids: np.ndarray, memory: Memory) -> np.ndarray:
            key = self.same_key(memory[items][..., KEY])
            left = memory[f"{items}.left"]
            # The first machine has no neighbour (0); its first item begins a segment.
            before = np.where(left > 0, self.same_key(left - 1), -1)
            return key != np.concatenate([before, key[:, :-1]], 1)

        def values(ids: np.ndarray, memory: Memory) -> np.ndarray:
            is_record = memory[items][..., HOME] == 0
            return np.where(is_record[..., None], memory[items][..., 2:], self.identity)

        def go_home(ids: np.ndarray, memory: Memory, inbox: Inbox):
            home = memory[items][..., HOME] - 1
            home = np.where(layout.valid(ids), home, -1)
            slot = self.homes.slot(home)[..., None]
            ones = np.ones_like(slot)
            payload = np.concatenate([memory[f"{items}.answer"], ones, slot], -1)
            scratch = {items, f"{items}.left", f"{items}.answer"}
            kept = {name: field for name, field in memory.items() if name not in scratch}
            return kept, self.homes.machine(home), payload

        def arrive(ids: np.ndarray, memory: Memory, inbox: Inbox):
            answers = place_by_slot(inbox, self.homes.per_machine, self.width + 1)
            return {**memory, out: answers}, None, None

        scan = segmented_scan(
            layout,
            begins,
            values,
            out=f"{items}.answer",
            width=self.width,
            combine=self.combine,
            identity=self.identity,
            fan_in=self.sort.fan_in,
        )
        return (
            *self.sort.steps(items),
            *from_neighbour(layout.num_machines, last_key, out=f"{items}.left", width=1, side=-1),
            *scan,
            Step(
                f"{items}: go home",
                go_home,
                layout.per_machine,
                self.homes.per_machine,
                self.width + 2,
            ),
            Step(f"{items}: arrive", arrive),
        )
