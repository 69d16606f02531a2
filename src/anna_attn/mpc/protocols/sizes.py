"""From N and eps to machines, items on each, and the parameters of trees and sorts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..primitives import Key, Layout, RadixSort, num_levels


@dataclass(frozen=True)
class Sizes:
    """What a protocol on N items plans with.

    Args:
        num_items: N.
        eps: machines have O(N^eps) words.
        per_machine: c; None = ceil(N^eps), at least 4.
    """

    num_items: int
    eps: float
    per_machine: int | None = None

    def __post_init__(self) -> None:
        if self.num_items < 0:
            raise ValueError(f"num_words must be >= 0, got {self.num_items}")
        if not 0.0 < self.eps < 1.0:
            raise ValueError(f"eps must lie in (0, 1), got {self.eps!r}")

    @property
    def layout(self) -> Layout:
        """c items on each of ceil(N / c) machines."""
        if self.per_machine is not None:
            return Layout(self.num_items, self.per_machine)
        return Layout(self.num_items, max(4, math.ceil(max(self.num_items, 1) ** self.eps)))

    @property
    def fan_in(self) -> int:
        """f = floor(sqrt c), at least 2: f children of sqrt c words fit in O(c)."""
        return max(2, math.isqrt(self.layout.per_machine))

    @property
    def num_levels(self) -> int:
        """ceil(log_f P) = O((1 - eps) / (eps / 2)): constant at fixed eps."""
        return num_levels(self.layout.num_machines, self.fan_in)

    def sort(self, width: int, keys: tuple[Key, ...]) -> RadixSort:
        """Sort items of `width` words by digits of log2 sqrt c bits."""
        return RadixSort.balanced(self.layout, width, keys)
