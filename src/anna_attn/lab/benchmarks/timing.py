"""Timing of alternatives against each other, fairly and reproducibly."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls; the median is the number to quote, the rest its spread."""

    median_s: float
    min_s: float
    max_s: float
    repeats: int


@contextmanager
def torch_threads(num_threads: int | None) -> Iterator[int]:
    """Use this many torch threads inside, and the previous number again afterwards.

    Args: num_threads: at least 1; None = leave as it is.
    Yields: the number in use.
    """
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"threads is {num_threads}; accepted: an integer >= 1, or None")
    before = torch.get_num_threads()
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def time_alternately(
    calls: Mapping[str, Callable[[], object]], *, repeats: int, warmups: int = 1
) -> dict[str, Timing]:
    """Time each call `repeats` times, in turn.

    In turn, since clock speed and neighbours on the machine drift over seconds: what is compared
    has to see the same drift. Warm-up calls come first and are not counted.

    Args:
        calls: name -> a call without arguments, complete when it returns (CPU).
        repeats: counted calls of each, at least 1.
        warmups: uncounted calls of each.
    Returns: name -> `Timing`.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; accepted: an integer >= 1")
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warmups + repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            if turn >= warmups:
                seconds[name].append(elapsed)
    return {
        name: Timing(statistics.median(taken), min(taken), max(taken), repeats)
        for name, taken in seconds.items()
    }


def load_per_core() -> float | None:
    """Processes that wanted a core over the last minute, per core; None where that is not known.

    Above about 0.5 before a run, somebody else is using the machine and its times mean little.
    """
    if not hasattr(os, "getloadavg"):
        return None
    return os.getloadavg()[0] / (os.cpu_count() or 1)
