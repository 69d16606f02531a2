"""Rotary positions with learned frequencies, for queries and keys and for values."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Rotation(nn.Module):
    """Rotate pairs of coordinates by angles proportional to the position.

    With P frequencies, coordinates d and d + P of the last 2 P are one pair, rotated at position t
    by frequency_d * t (radians); the coordinates before them pass through. Rotated queries and keys
    have an inner product that depends on their positions through the difference alone.

    Args:
        frequencies: (H, P) initial values, radians per token, one row per head.
        learnable: train the frequencies.
    Source: Su et al. 2021 (arXiv:2104.09864); learned frequencies and values are additions.
    """

    frequencies: Tensor

    def __init__(self, frequencies: Tensor, learnable: bool = True):
        super().__init__()
        if frequencies.dim() != 2:
            raise ValueError(f"frequencies must be (H, P), got {tuple(frequencies.shape)}")
        frequencies = frequencies.detach().clone()
        if learnable:
            self.frequencies = nn.Parameter(frequencies)
        else:
            self.register_buffer("frequencies", frequencies)

    def angles(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the angles at positions 0..length-1, each (H, T, P).

        In float32 at least: a 16-bit product of position and frequency is off by whole radians.
        """
        frequencies = self.frequencies
        if frequencies.dtype in (torch.float16, torch.bfloat16):
            frequencies = frequencies.float()
        steps = torch.arange(length, device=frequencies.device, dtype=frequencies.dtype)
        angle = steps[None, :, None] * frequencies[:, None, :]
        return angle.cos(), angle.sin()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], *, backwards: bool = False):
        """Rotate x (B, H, T, D), D >= 2 P, by `angles(T)`; `backwards` undoes it. Same shape."""
        cosine, sine = angles[0].to(x.dtype), angles[1].to(x.dtype)
        if backwards:
            sine = -sine
        pairs = cosine.shape[-1]
        kept, first, second = x.split([x.shape[-1] - 2 * pairs, pairs, pairs], dim=-1)
        rotated = [first * cosine - second * sine, first * sine + second * cosine]
        return torch.cat([kept, *rotated] if kept.shape[-1] else rotated, dim=-1)

    def extra_repr(self) -> str:
        """Show the number of heads and pairs."""
        return f"heads={self.frequencies.shape[0]}, pairs={self.frequencies.shape[1]}"
