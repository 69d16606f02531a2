"""Items spread over machines: item g of N lies on machine g // c in slot g % c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Layout:
    """Where items lie.

    Args:
        num_items: N.
        per_machine: c.
    """

    num_items: int
    per_machine: int

    @property
    def num_machines(self) -> int:
        """P = ceil(N / c), at least 1."""
        return max(1, -(-self.num_items // self.per_machine))

    def index(self, ids: np.ndarray) -> np.ndarray:
        """(n, c) index of the item in each slot."""
        return ids[:, None] * self.per_machine + np.arange(self.per_machine)

    def valid(self, ids: np.ndarray) -> np.ndarray:
        """(n, c) bool: slots that hold an item."""
        return self.index(ids) < self.num_items

    def machine(self, index: np.ndarray) -> np.ndarray:
        """Machine of an item; -1 for the index -1."""
        return np.where(index < 0, -1, index // self.per_machine)

    def slot(self, index: np.ndarray) -> np.ndarray:
        """Its slot; 0 for the index -1."""
        return np.where(index < 0, 0, index % self.per_machine)
