"""Numbers that change over a stage: learning rates and annealed exponents.

A schedule maps the progress of a stage, 0 at its first step and 1 at its last, to a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]


def _check_share(share: float) -> None:
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share is {share}; accepted: a number in (0, 1]")


@dataclass(frozen=True)
class Constant:
    """The same value throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        """Value at this progress in [0, 1]."""
        return self.value


@dataclass(frozen=True)
class Linear:
    """From start to end in equal steps over the first `share` of the stage, then end.

    value(p) = start + (end - start) min(1, p / share).

    Raises: ValueError if share is not in (0, 1].
    """

    start: float
    end: float
    share: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.share)

    def __call__(self, progress: float) -> float:
        """Value at this progress in [0, 1]."""
        # Written so that the end is reached exactly: start + (end - start) may round beside it.
        fraction = min(1.0, progress / self.share)
        return self.start * (1.0 - fraction) + self.end * fraction


@dataclass(frozen=True)
class Geometric:
    """From start to end in equal ratios over the first `share` of the stage, then end.

    value(p) = start (end / start)^min(1, p / share).

    Raises: ValueError if start or end is not positive, or share is not in (0, 1].
    """

    start: float
    end: float
    share: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if self.start <= 0.0 or self.end <= 0.0:
            raise ValueError(f"start, end are {self.start}, {self.end}; accepted: positive numbers")

    def __call__(self, progress: float) -> float:
        """Value at this progress in [0, 1]."""
        fraction = min(1.0, progress / self.share)
        return self.end if fraction == 1.0 else self.start * (self.end / self.start) ** fraction


def progress_at(step: int, steps: int) -> float:
    """Progress of a stage at its step-th step (from 0): 0 at the first, 1 at the last."""
    return 1.0 if steps <= 1 else step / (steps - 1)


def learning_rate_at(
    step: int, steps: int, *, peak: float, warmup_steps: int, final_share: float
) -> float:
    """Linear warm-up, then half a cosine from the peak to `final_share` of it.

    With w = warmup_steps and s the step from 0: peak (s + 1) / w while s < w; afterwards
    peak (f + (1 - f) (1 + cos(pi u)) / 2), f = final_share, u = (s - w) / (steps - 1 - w).
    A stage no longer than its warm-up never reaches the cosine.

    Returns: the learning rate of that step; never 0 for a positive peak.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    remaining = steps - 1 - warmup_steps
    fraction = 1.0 if remaining <= 0 else (step - warmup_steps) / remaining
    cosine = 0.5 * (1.0 + math.cos(math.pi * fraction))
    return peak * (final_share + (1.0 - final_share) * cosine)
