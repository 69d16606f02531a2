"""What an attention layer does with its queries and keys: four mechanisms, chosen by name.

Mechanisms are values. A training loop passes one to `forward` for each step; no module remembers
it, so a model cannot be left in the wrong mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def _check(name: str, value: float, zero_allowed: bool) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and (value > 0 or (zero_allowed and value == 0))):
        accepted = "a finite number >= 0" if zero_allowed else "a finite number > 0"
        raise ValueError(f"{name} must be {accepted}, got {value!r}")


@dataclass(frozen=True)
class Softmax:
    """softmax(beta q k^T) with unit-norm q and k: the paper's training surrogate.

    Args: beta: inverse temperature; 0 averages.
    """

    beta: float

    def __post_init__(self) -> None:
        _check("beta", self.beta, zero_allowed=True)


@dataclass(frozen=True)
class Expected:
    """Weights p^exponent / (sum + floor), p the collision probability of one hash.

    Args: exponent: Z for the kernel of the tables themselves, smaller = flatter; floor: see
        `expected_attention`.
    """

    exponent: float
    floor: float = 0.3

    def __post_init__(self) -> None:
        _check("exponent", self.exponent, zero_allowed=False)
        _check("floor", self.floor, zero_allowed=True)


@dataclass(frozen=True)
class StraightThrough:
    """Hard collision counts forward, L p^exponent backward.

    Args: exponent: as in `Expected`; stray: the chance that a pair shares one more bucket than it
        does, see `straight_through_attention`.
    """

    exponent: float
    stray: float = 0.0

    def __post_init__(self) -> None:
        _check("exponent", self.exponent, zero_allowed=False)
        _check("stray", self.stray, zero_allowed=True)
        if self.stray > 1:
            raise ValueError(f"stray must be a probability, got {self.stray!r}")


@dataclass(frozen=True)
class Hard:
    """ANNA itself: hard counts. Queries and keys get no gradient."""


Mechanism = Softmax | Expected | StraightThrough | Hard

MECHANISM_NAMES = ("softmax", "expected", "straight_through", "anna")
"""The names an `AttentionConfig` may use, in the order Softmax, Expected, StraightThrough, Hard."""
