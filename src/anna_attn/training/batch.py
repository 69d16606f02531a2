"""What a task hands to training: batches, and the samplers that draw them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Token sequences with the answers wanted at some of their positions.

    Args:
        tokens: (B, T) int64, the input.
        targets: (B, T) int64, the class wanted at each position; ignored where mask is False.
        mask: (B, T) bool, True where the position counts in the loss and in the error.
        key_mask: (B, T) bool, True where the position may be attended; None = everywhere.
    Raises:
        TypeError, ValueError: wrong dtype or shape, or a mask without any position that counts
            (its mean loss would be 0/0).
    """

    tokens: Tensor
    targets: Tensor
    mask: Tensor
    key_mask: Tensor | None = None

    def __post_init__(self) -> None:
        expected = {"tokens": torch.int64, "targets": torch.int64, "mask": torch.bool}
        given = {"tokens": self.tokens, "targets": self.targets, "mask": self.mask}
        if self.key_mask is not None:
            expected["key_mask"], given["key_mask"] = torch.bool, self.key_mask
        for name, tensor in given.items():
            if tensor.dtype != expected[name]:
                raise TypeError(f"{name} is {tensor.dtype}; accepted: {expected[name]}")
            if tensor.ndim != 2 or tensor.shape != self.tokens.shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}; accepted: (B, T), "
                    f"the same for all (tokens have {tuple(self.tokens.shape)})"
                )
        if not bool(self.mask.any()):
            raise ValueError("mask is False everywhere; accepted: at least one True")

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        key_mask = None if self.key_mask is None else self.key_mask.to(device)
        moved = (tensor.to(device) for tensor in (self.tokens, self.targets, self.mask))
        return Batch(*moved, key_mask=key_mask)


Sampler = Callable[[int, torch.Generator], Batch]
"""Draws a batch: sampler(batch_size, generator). All its randomness comes from the generator."""


@dataclass(frozen=True)
class Curriculum:
    """Several samplers one after the other within one stage, easiest first.

    One stage with a curriculum keeps one learning-rate schedule, one annealing and one optimizer
    state over all its parts; separate stages would start each of them again.

    Args:
        samplers: at least one.
        until: the progress in (0, 1) at which each sampler but the last gives way; ascending.
    Raises:
        ValueError: not one boundary fewer than samplers, or not ascending in (0, 1).
    """

    samplers: tuple[Sampler, ...]
    until: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samplers or len(self.until) != len(self.samplers) - 1:
            raise ValueError(
                f"until has {len(self.until)} boundaries for {len(self.samplers)} samplers; "
                "accepted: one fewer than samplers"
            )
        edges = (0.0, *self.until, 1.0)
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"until is {self.until}; accepted: ascending values in (0, 1)")

    def at(self, progress: float) -> Sampler:
        """The sampler in use at this progress of the stage."""
        return self.samplers[sum(progress >= boundary for boundary in self.until)]
