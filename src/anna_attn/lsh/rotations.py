"""Random linear maps with integer entries: the shared first half of every projection hash.

Entries are integers and so are the rows they meet (codes.py), so sums formed in float64 are exact,
whatever order a matrix product adds them in. A row's code therefore does not move when the batch
shape, the thread count or the BLAS kernel does. Integer buffers also survive `module.half()`, which
would round floating ones. See docs/decisions.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

GAUSSIAN_SCALE = 2048
"""Gaussian entries are stored as round(GAUSSIAN_SCALE * g): 16 sigma fit in int16."""

MIN_PADDED_DIM = 16
"""Below this width, three rounds of signs and Hadamard reach too few distinct rotations."""


def padded_dim(dim: int) -> int:
    """Width at which Hadamard rounds rotate a `dim`-wide row: the next power of two, >= 16."""
    return max(MIN_PADDED_DIM, 1 << (dim - 1).bit_length())


def generator_for(seed: int, *spawn_key: int) -> torch.Generator:
    """Make an explicit CPU generator for one named stream of `seed`; streams are independent.

    Source: numpy's SeedSequence, whose spawn keys guarantee well-separated streams.
    """
    state = np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & 0x7FFF_FFFF_FFFF_FFFF)


def gaussian_projection(num_rows: int, dim: int, generator: torch.Generator) -> Tensor:
    """Draw `num_rows` independent standard normal rows, in units of 1 / GAUSSIAN_SCALE.

    Returns: (num_rows, dim) int16.
    """
    normal = torch.randn(num_rows, dim, generator=generator, dtype=torch.float64)
    return (normal * GAUSSIAN_SCALE).round_().clamp_(-32767, 32767).to(torch.int16)


def draw_signs(num_panels: int, dim: int, generator: torch.Generator) -> Tensor:
    """Draw the signs of `num_panels` rotations that share their first two rounds.

    Returns: (2 + num_panels, padded_dim(dim)) int8 of -1 and 1.
    """
    shape = (2 + num_panels, padded_dim(dim))
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8) * 2 - 1


def hadamard_matrix(size: int) -> Tensor:
    """Sylvester's matrix of order `size` (a power of two), entries -1 and 1, float64."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    block = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    for _ in range(int(math.log2(size))):
        matrix = torch.kron(block, matrix)
    return matrix


def hadamard_projection(signs: Tensor, dim: int) -> Tensor:
    """Multiply out the panels H D3 H D2 H D1, restricted to the first `dim` columns.

    H is Sylvester's Hadamard matrix of order n = padded_dim(dim), D1 and D2 the shared sign
    diagonals and D3 the panel's own. Each full panel is n^{3/2} times an orthogonal matrix, with
    integer entries of about +-n.

    Args: signs (H, 2 + P, n) int8, as `draw_signs` gives per head.
    Returns: (H, P, n, dim) int32, on the device of `signs`.
    Cost: O(H P n^2 dim), once per draw; kernels apply the rounds by fast transforms instead.
    Source: Andoni et al. 2015 (arXiv:1509.02897), section 3.1, pseudo-random rotations.
    """
    matrix = hadamard_matrix(signs.shape[-1]).to(signs.device)
    rounds = signs.to(torch.float64)
    first = matrix[:, :dim] * rounds[:, 0, None, :dim]
    second = matrix @ (rounds[:, 1, :, None] * first)
    panels = matrix @ (rounds[:, 2:, :, None] * second[:, None])
    return panels.to(torch.int32)
