"""How a sample sort splits its machines, how much it samples, and what a machine must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .items import Layout
from .tree import num_levels

FAILURE = 1e-9
"""Probability that a sort of fixed items overflows a machine, over its random offsets."""


@dataclass(frozen=True)
class Hop:
    """One step of samples towards the first machine of a group.

    Args:
        holds: H, items or samples that a node has at most.
        step: t; a node passes every t-th on.
    """

    holds: int
    step: int

    @property
    def sends(self) -> int:
        """ceil(H / t), samples that a node passes on at most."""
        return -(-self.holds // self.step)


@dataclass(frozen=True)
class Level:
    """Groups of consecutive machines, each of which is split into k subgroups.

    Args:
        subgroups: k, also the fan-in of the trees inside a group.
        hops: h of the samples, from the machines up; no group has more than k^h machines.
        capacity: items that a machine holds at most.
        capacity_after: the same once they went to the subgroups.
    """

    subgroups: int
    hops: tuple[Hop, ...]
    capacity: int
    capacity_after: int

    @property
    def num_rounds(self) -> int:
        """Samples go up, splitters down, and items to their subgroups."""
        return 2 * len(self.hops) + 1

    def words(self, width: int) -> int:
        """The most that a machine keeps or moves, for items of `width` words."""
        k = self.subgroups
        samples = max(k * (2 * hop.sends + 1) for hop in self.hops)
        keeps = self.capacity * (width + 1) + 2 * (k - 1)
        items = max(self.capacity, self.capacity_after) * (width + 2)
        return max(keeps, items, samples, (k - 1) * (2 * (k - 1) + 1))


def plan_levels(layout: Layout, width: int, fan_in: int) -> tuple[Level, ...]:
    """The levels of a sample sort, with the least capacity that the bounds allow.

    There are L = ceil(log_f P) levels, and a group of level l has at most k^(L - l) machines with
    k <= f. A machine may receive as many words of samples as of items, so that more capacity means
    more samples and buckets of more even size; the capacity is the least, in steps of 1/32, that
    suffices for what it entails.

    Args:
        layout: of the items.
        width: words of an item.
        fan_in: f, subgroups of a group at most.
    Returns: L levels; none for one machine.
    Source: see `_unevenness` and `_spread`.
    """
    depth = num_levels(layout.num_machines, fan_in)
    if depth == 0:
        return ()
    # A level has for every item, and either size of a subgroup, the event that the bucket which
    # starts there is too large; and for every machine, that it receives too many.
    events = depth * (2 * layout.num_items + layout.num_machines)
    log = math.log(events / FAILURE)
    capacity = layout.per_machine
    while True:
        levels = _levels(layout, depth, capacity, capacity * (width + 2), log)
        if levels is not None:
            return levels
        capacity += max(1, capacity // 32)


def _levels(
    layout: Layout, depth: int, allowed: int, words: int, log: float
) -> tuple[Level, ...] | None:
    """Levels whose nodes receive so many words of samples; None where machines hold more items than
    allowed."""
    longest = shortest = layout.num_machines
    mean, capacity = float(layout.per_machine), layout.per_machine
    levels = []
    for left in range(depth, 0, -1):
        subgroups = root(longest, left)
        hops = _hops(subgroups, left, capacity, words)
        # Nested floors and ceilings: groups of a level differ by one machine at most.
        after, least = -(-longest // subgroups), max(1, shortest // subgroups)
        lengths = (longest, max(1, shortest))
        share = max(-(-length // subgroups) / length for length in lengths)
        mean += _unevenness(subgroups, longest, hops, share, log) / least
        spread = 0.0 if after == 1 else _spread(mean, longest, log)
        most = max(1, min(layout.num_items, math.ceil(mean + spread)))
        if most > allowed:
            return None
        levels.append(Level(subgroups, hops, capacity, most))
        longest, shortest, capacity = after, least, most
    return tuple(levels)


def _hops(fan_in: int, num: int, holds: int, words: int) -> tuple[Hop, ...]:
    """As many hops, each with the least step whose samples fit into the words that a node receives
    in one message from each child."""
    fits = max(1, (words // fan_in - 1) // 2)
    hops = []
    for _ in range(num):
        hop = Hop(holds, -(-holds // fits))
        hops.append(hop)
        holds = fan_in * hop.sends
    return tuple(hops)


def _unevenness(
    fan_in: int, longest: int, hops: tuple[Hop, ...], share: float, log: float
) -> float:
    """Items that a bucket has beyond its share of its group's, but for probability e^-log.

    A node that holds a sorted list and passes on every t-th of it, from a random offset, passes on
    floor or ceil of 1 / t of any interval, and 1 / t in expectation. So a sample stands for W_j =
    t_0 ... t_j items after hop j, and the samples in an interval, less a share s of all samples,
    are off by a sum of independent errors, each in a range of (1 + s) W_j: one for every node of
    every hop. This sum is below e = (1 + s) min(sum W_j, sqrt(log / 2 sum W_j^2)) (Hoeffding 1963).
    A bucket gets the samples of its share, rounded up. If it had more than share + W + e items, an
    interval of so many items would have no more samples than that: an event for each of its starts.
    """
    weight, ranges, squares = 1, 0, 0
    for height, hop in enumerate(hops):
        weight *= hop.step
        if hop.step > 1:
            nodes = -(-longest // fan_in**height)
            ranges += nodes * weight
            squares += nodes * weight**2
    return weight + (1 + share) * min(ranges, math.sqrt(squares * log / 2))


def _spread(mean: float, longest: int, log: float) -> float:
    """Items that a machine receives beyond the mean, but for probability e^-log.

    Each of G senders deals its items of a bucket to the subgroup's machines in turn, from a random
    offset: a machine gets floor or ceil of its part, whichever side in independent trials with a
    variance of at most 1/4 each, and of at most the mean together (Hoeffding 1963, Bernstein).
    """
    bernstein = log / 3 + math.sqrt(log**2 / 9 + 2 * mean * log)
    return min(longest, math.sqrt(longest * log / 2), bernstein)


def root(number: int, degree: int) -> int:
    """ceil(number^(1 / degree)), exactly."""
    root = max(1, round(number ** (1 / degree)) - 1)
    while root**degree < number:
        root += 1
    return root
