"""Positions added to the token embedding: none, learned or sinusoidal."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """Add a learned row for each position below `max_length`.

    Raises: ValueError on a longer sequence: it has no rows for it.
    """

    def __init__(self, max_length: int, width: int, generator: torch.Generator):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_length, width, generator=generator) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Add to x (B, T, width)."""
        if x.shape[1] > self.weight.shape[0]:
            raise ValueError(
                f"tokens have length {x.shape[1]}, but positions='learned' knows "
                f"max_length={self.weight.shape[0]}"
            )
        return x + self.weight[: x.shape[1]]


class SinusoidalPositions(nn.Module):
    """Add sin and cos of t / base^(2 d / width), d < width / 2; sines first. Any length.

    Source: Vaswani et al. 2017, with the two halves not interleaved.
    """

    def __init__(self, width: int, base: float):
        super().__init__()
        self.width = width
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        """Add to x (B, T, width)."""
        half = torch.arange(self.width // 2, device=x.device, dtype=torch.float32)
        frequency = torch.exp(half * (-2.0 * math.log(self.base) / self.width))
        angle = torch.arange(x.shape[1], device=x.device)[:, None] * frequency
        return x + torch.cat([angle.sin(), angle.cos()], dim=-1).to(x.dtype)
