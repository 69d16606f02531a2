"""Tell every item what the values of its key amount to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Step
from .items import Layout
from .join import HOME, KEY
from .sort import RadixSort, place_by_slot
from .tree import exclusive_scan, num_levels, scan_memory, scan_traffic


@dataclass(frozen=True)
class GroupBy:
    """A plan to group items by key, and to send the combination of each group to all its items.

    Items (key, home, values...) are sorted by key. A group is then a stretch of slots, perhaps over
    several machines: each machine combines the stretches of its own, one scan tells it what those
    at its two ends amount to on other machines, and the answers go home. No machine sees more of a
    group than its own items, so one group may hold all items.

    Args:
        sort: of the items, which have 2 + width words.
        homes: layout of the answers; at most one item has each home. Homes are counted from 1; an
            item of home 0 is told nothing.
        width: k, words of a value and of an answer.
        combine: associative and commutative, as np.add, np.minimum, np.maximum.
        identity: of `combine`.
    """

    sort: RadixSort
    homes: Layout
    width: int
    combine: np.ufunc
    identity: int

    @property
    def num_rounds(self) -> int:
        """A sort, a word for both neighbours, a scan, and the way home."""
        levels = num_levels(self.sort.layout.num_machines, self.sort.fan_in)
        return self.sort.num_rounds + 2 * levels + 2

    @property
    def memory_words(self) -> int:
        """The most a machine keeps or moves."""
        items, words = self.sort.layout.per_machine, 2 * (self.width + 1)
        machines, fan_in = self.sort.layout.num_machines, self.sort.fan_in
        return max(
            self.sort.memory_words,
            items * (2 + self.width) + 2 + 2 * words + scan_memory(machines, fan_in, words),
            scan_traffic(machines, fan_in, words),
            max(items, self.homes.per_machine) * (self.width + 2),
            6,
        )

    def steps(self, items: str, *, out: str) -> tuple[Step, ...]:
        """Steps that consume the field `items` (n, c, 2 + width) and write `out` (n, homes,
        width): the answers; 0 at homes that no item has."""
        own, before, after = f"{items}.own", f"{items}.before", f"{items}.after"

        def summarise(ids: np.ndarray, memory: Memory, inbox: Inbox):
            memory = {**memory, f"{items}.around": _around(ids, inbox)}
            parts = self._stretches(ids, memory, items)
            return {**memory, own: parts.summary()}, None, None

        def go_home(ids: np.ndarray, memory: Memory, inbox: Inbox):
            parts = self._stretches(ids, memory, items)
            words = parts.whole(memory[before], memory[after])
            present = self.sort.present(ids, memory[items])
            home = np.where(present, memory[items][..., HOME] - 1, -1)
            slot = self.homes.slot(home)[..., None]
            scratch = {items, own, before, after, f"{items}.around"}
            kept = {name: field for name, field in memory.items() if name not in scratch}
            return kept, self.homes.machine(home), np.concatenate([words, slot], -1)

        def arrive(ids: np.ndarray, memory: Memory, inbox: Inbox):
            answers = place_by_slot(inbox, self.homes.per_machine, self.width)
            return {**memory, out: answers}, None, None

        layout, k = self.sort.layout, self.width
        nothing = np.array([0, *[self.identity] * k])
        scan = exclusive_scan(
            layout.num_machines,
            own,
            prefix=before,
            suffix=after,
            width=2 * (k + 1),
            combine=self._chain,
            identity=np.concatenate([nothing, nothing]),
            fan_in=self.sort.fan_in,
        )
        homes = self.homes.per_machine
        return (
            *self.sort.steps(items),
            Step(f"{items}: tell both neighbours", self._tell(items), 2, 2, 2),
            Step(f"{items}: combine", summarise),
            *scan,
            Step(f"{items}: go home", go_home, layout.per_machine, homes, k + 1),
            Step(f"{items}: arrive", arrive),
        )

    def _tell(self, items: str):
        """Send the first key to the machine before, and the last to the machine after."""
        machines = self.sort.layout.num_machines

        def fn(ids: np.ndarray, memory: Memory, inbox: Inbox):
            present = self.sort.present(ids, memory[items])
            key = np.where(present, memory[items][..., KEY] + 1, 0)
            to = np.stack([ids - 1, np.where(ids + 1 < machines, ids + 1, -1)], 1)
            side = np.broadcast_to([1, 0], (len(ids), 2))
            return memory, to, np.stack([key[:, [0, -1]], side], -1)

        return fn

    def _stretches(self, ids: np.ndarray, memory: Memory, items: str) -> _Stretches:
        words, around = memory[items], memory[f"{items}.around"]
        present = self.sort.present(ids, words)
        key = np.where(present, words[..., KEY] + 1, 0)
        values = np.where(present[..., None], words[..., 2:], self.identity)
        joined = np.stack([key[:, 0], key[:, -1]], 1)
        return _Stretches(key, values, (joined == around) & (joined > 0), self.combine)

    def _chain(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Two summaries of neighbouring machines: the stretch at the right end, then the left.

        A flag says that the stretch does not reach through to the other end.
        """
        k = self.width
        both = self.combine(left, right)
        ends = np.where(right[..., :1] > 0, right[..., 1 : k + 1], both[..., 1 : k + 1])
        starts = np.where(left[..., k + 1 : k + 2] > 0, left[..., k + 2 :], both[..., k + 2 :])
        cut = left | right
        return np.concatenate([cut[..., :1], ends, cut[..., k + 1 : k + 2], starts], -1)


@dataclass(frozen=True)
class _Stretches:
    """Slots of one key, side by side on one machine.

    Attributes:
        key (n, c), values (n, c, k): of the slots.
        joined (n, 2): whether the first goes on before this machine, and the last after it.
        combine: of values.
    """

    key: np.ndarray
    values: np.ndarray
    joined: np.ndarray
    combine: np.ufunc

    def _totals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(S, k) of every stretch, the stretch of every slot, and the first stretch of each row.

        Slots after the last item count to its stretch, with the identity.
        """
        begins = np.ones(self.key.shape, dtype=bool)
        begins[:, 1:] = (self.key[:, 1:] != self.key[:, :-1]) & (self.key[:, 1:] > 0)
        starts = np.flatnonzero(begins)
        totals = self.combine.reduceat(self.values.reshape(-1, self.values.shape[-1]), starts)
        which = np.cumsum(begins.reshape(-1)) - 1
        which = which.reshape(self.key.shape)
        return totals, which, which[:, 0]

    def summary(self) -> np.ndarray:
        """(n, 2 (k + 1)): flag and total of the last stretch, flag and total of the first."""
        totals, which, first = self._totals()
        last = which[:, -1]
        several = last > first
        cut = (several[:, None] | ~self.joined).astype(np.int64)
        return np.concatenate([cut[:, :1], totals[last], cut[:, 1:], totals[first]], 1)

    def whole(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """(n, c, k) what each slot's key amounts to, other machines included."""
        totals, which, first = self._totals()
        last, k = which[:, -1], self.values.shape[-1]
        goes_on = self.joined[:, 0]
        totals[first[goes_on]] = self.combine(totals[first[goes_on]], before[goes_on, 1 : k + 1])
        goes_on = self.joined[:, 1]
        totals[last[goes_on]] = self.combine(totals[last[goes_on]], after[goes_on, k + 2 :])
        return totals[which]


def _around(ids: np.ndarray, inbox: Inbox) -> np.ndarray:
    """(n, 2) the last key + 1 of the machine before, and the first of the machine after."""
    around = np.zeros((len(ids), 2), dtype=np.int64)
    row, place = np.nonzero(inbox.present)
    words = inbox.payload[row, place]
    around[row, words[:, 1]] = words[:, 0]
    return around
