"""Which side of the train / validation / test fence a sequence is on, decided by its content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

Split = Literal["train", "validation", "test"]
NUM_SHARES = 10
_SHARE_OF: dict[Split, int] = {"test": 0, "validation": 1}


def check_split(split: str) -> None:
    """Refuse a name that is not a split."""
    if split not in get_args(Split):
        raise ValueError(f"split is {split!r}; accepted: {', '.join(get_args(Split))}")


def _mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every input bit reaches every output bit (uint64, wraps)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def shares(rows: Tensor) -> Tensor:
    """Send each row to one of ten shares by a hash of its content.

    Args: rows (B, T) int64, in the canonical form of the task (equal rows = the same example).
    Returns: (B,) int64 in [0, 10); a function of the row alone, the same on every machine.
    """
    words = rows.cpu().numpy().astype(np.uint64)
    places = np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # Odd multipliers, one per place, so that the order of the tokens counts.
    mixed = _mix((words + np.uint64(1)) * (_mix(places) | np.uint64(1)))
    total = _mix(mixed.sum(axis=1, dtype=np.uint64))
    return torch.from_numpy((total % np.uint64(NUM_SHARES)).astype(np.int64))


def in_split(rows: Tensor, split: Split) -> Tensor:
    """Whether each row belongs to `split`: a tenth is test, a tenth validation, the rest train.

    Since the side is a function of the content, no example of one split can occur in another,
    however many are drawn: training may stream without limit.

    Returns: (B,) bool.
    """
    check_split(split)
    share = shares(rows)
    if split == "train":
        return share >= len(_SHARE_OF)
    return share == _SHARE_OF[split]


def draw_from_split(
    draw: Callable[[int], Tensor], canonical: Callable[[Tensor], Tensor], split: Split, num: int
) -> Tensor:
    """Draw sequences until `num` of them lie in `split` (rejection, so the law is unchanged).

    Args:
        draw: num -> (num, T) int64 fresh sequences.
        canonical: sequences -> the rows whose content decides.
        num: how many to return.
    Returns: (num, T) int64.
    """
    if num < 1:
        raise ValueError(f"batch_size is {num}; accepted: an integer >= 1")
    share = (NUM_SHARES - len(_SHARE_OF) if split == "train" else 1) / NUM_SHARES
    kept, missing = [], num
    while missing > 0:
        sequences = draw(int(1.2 * missing / share) + 8)
        sequences = sequences[in_split(canonical(sequences), split)]
        kept.append(sequences[:missing])
        missing -= len(kept[-1])
    return torch.cat(kept)
