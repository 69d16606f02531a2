"""Draw the random state of hash tables: what is stored, and the projection multiplied out of it."""

from __future__ import annotations

import torch
from torch import Tensor

from . import rotations
from .families import CrossPolytope, Euclidean, Exact, Family, Hyperplane

OFFSET_BITS = 30
"""Euclidean offsets are stored as integers in [0, 2^30): offset = width * stored / 2^30."""


def draw_buffers(
    family: Family, num_tables: int, hashes_per_table: int, num_heads: int, seed: int
) -> dict[str, Tensor]:
    """Draw integer buffers for all heads, each head from its own stream of `seed`.

    Returns, by name, with the heads leading:
        signs (H, 2 + P, n) int8 for Hadamard rotations (P panels of n = padded dim rows);
        projection (H, rows, D) int16 for Gaussian maps, in units of 1 / GAUSSIAN_SCALE;
        offset (H, rows) int32 for Euclidean; mixers (H, L, 1 + D) int64 for Exact.
    """
    per_head = [
        _draw_head(family, num_tables, hashes_per_table, rotations.generator_for(seed, head))
        for head in range(num_heads)
    ]
    return {name: torch.stack([head[name] for head in per_head]) for name in per_head[0]}


def _draw_head(
    family: Family, num_tables: int, hashes_per_table: int, generator: torch.Generator
) -> dict[str, Tensor]:
    num_hashes = num_tables * hashes_per_table
    if isinstance(family, Exact):
        shape = (num_tables, 1 + family.dim)
        mixers = torch.randint(-(2**62), 2**62, shape, generator=generator)
        return {"mixers": mixers * 2 + 1}
    if isinstance(family, Euclidean):
        offset = torch.randint(0, 1 << OFFSET_BITS, (num_hashes,), generator=generator)
        projection = rotations.gaussian_projection(num_hashes, family.dim, generator)
        return {"projection": projection, "offset": offset.to(torch.int32)}
    if not isinstance(family, (Hyperplane, CrossPolytope)):
        raise TypeError(f"cannot draw hashes of {type(family).__name__}")
    if family.rotation == "gaussian":
        rows = num_hashes * (family.num_axes if isinstance(family, CrossPolytope) else 1)
        return {"projection": rotations.gaussian_projection(rows, family.dim, generator)}
    panels = num_panels(family, num_tables, hashes_per_table)
    return {"signs": rotations.draw_signs(panels, family.dim, generator)}


def num_panels(family: Hyperplane | CrossPolytope, num_tables: int, hashes_per_table: int) -> int:
    """Rotations needed per head; a table of sign bits straddles two panels only if it must."""
    if isinstance(family, CrossPolytope):
        return num_tables * hashes_per_table
    size = rotations.padded_dim(family.dim)
    if hashes_per_table <= size:
        return -(-num_tables // (size // hashes_per_table))
    return num_tables * -(-hashes_per_table // size)


def multiply_out(
    family: Hyperplane | CrossPolytope, signs: Tensor, num_tables: int, hashes_per_table: int
) -> Tensor:
    """Turn the signs of Hadamard rotations into one dense integer projection.

    Returns: (H, rows, D) int32; rows are num_tables x hashes_per_table (x axes) in that order.
    """
    panels = rotations.hadamard_projection(signs, family.dim)
    heads, count, size, dim = panels.shape
    if isinstance(family, CrossPolytope):
        return panels.reshape(heads, count * size, dim)
    if hashes_per_table <= size:
        used = panels[:, :, : size // hashes_per_table * hashes_per_table]
        return used.reshape(heads, -1, dim)[:, : num_tables * hashes_per_table].contiguous()
    tables = panels.reshape(heads, num_tables, -1, dim)[:, :, :hashes_per_table]
    return tables.reshape(heads, num_tables * hashes_per_table, dim)
