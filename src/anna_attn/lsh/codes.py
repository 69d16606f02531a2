"""Turn rows into integer codes, given the drawn projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .drawing import OFFSET_BITS
from .families import CrossPolytope, Euclidean, Exact, Family, Hyperplane
from .rotations import GAUSSIAN_SCALE

PACKED_BITS = 24
"""Up to this many bits a code is packed by a float32 matrix product, which is then exact."""

GRID_BITS = 30
"""Bits of a row's largest entry that take part in a scale-invariant hash."""

CELL_LIMIT = float(2**52)
_MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)


def num_buckets(family: Family, hashes_per_table: int) -> int | None:
    """Codes lie in [0, this); None where codes are arbitrary int64 values (compact them first)."""
    if family.num_values is None or hashes_per_table * math.log2(family.num_values) > 62:
        return None
    return family.num_values**hashes_per_table


def code_rows(
    family: Family, rows: Tensor, buffers: dict[str, Tensor], num_tables: int, hashes_per_table: int
) -> Tensor:
    """Codes of rows that share their heads' hash functions.

    Args: rows (H, R, D) of any float dtype; buffers as `draw_buffers`, with `projection` present.
    Returns: (H, L, R) int64.
    """
    if isinstance(family, Exact):
        return _mix_rows(rows.to(torch.float64), buffers["mixers"]).transpose(1, 2)
    if isinstance(family, (Hyperplane, CrossPolytope)):
        rows = _to_grid(rows)
    rows = rows.to(torch.float64)
    projection = buffers["projection"].to(torch.float64)
    if isinstance(family, Hyperplane):
        # Hashes lead, so that the packed codes come out in the layout they are kept in.
        projected = projection @ rows.transpose(-1, -2)
        return _pack_bits(projected, num_tables, hashes_per_table)
    projected = rows @ projection.transpose(-1, -2)
    if isinstance(family, CrossPolytope):
        axes = projected.unflatten(-1, (num_tables, hashes_per_table, family.num_axes))
        return _join(_nearest_axis(axes), family.num_values).transpose(1, 2)
    if isinstance(family, Euclidean):
        scale = 1.0 / (GAUSSIAN_SCALE * family.width)
        shift = buffers["offset"].to(torch.float64) * 2.0**-OFFSET_BITS
        cells = torch.floor(projected * scale + shift[:, None])
        cells = cells.clamp(-CELL_LIMIT, CELL_LIMIT).to(torch.int64)
        cells = cells.unflatten(-1, (num_tables, hashes_per_table))
        return _join(cells, None).transpose(1, 2)
    raise TypeError(f"cannot hash with {type(family).__name__}")


def _to_grid(rows: Tensor) -> Tensor:
    """Rows as integers below 2^30, by a power of two of their own: for families without scale.

    Sums of such integers times integer projections are exact in float64. Unrounded, a sum that
    vanishes (equal entries meeting opposite signs) has a sign that depends on the order of the
    additions, so on the batch shape; and entries near float64's largest overflow.
    """
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.to(torch.float32)
    peak = rows.abs().amax(-1, keepdim=True)
    # frexp's mantissa lies in [1/2, 1), so this quotient is the power of two just below the peak.
    unit = peak / (2 * torch.frexp(peak).mantissa)
    return (rows / torch.where(peak > 0, unit, 1.0)).mul_(2.0 ** (GRID_BITS - 1)).round_()


def _pack_bits(projected: Tensor, num_tables: int, hashes_per_table: int) -> Tensor:
    """Signs of (H, L Z, R) as (H, L, R) codes, the first hash of a table in the lowest bit."""
    if hashes_per_table > PACKED_BITS:
        digits = (projected >= 0).unflatten(1, (num_tables, hashes_per_table)).to(torch.int64)
        return _join(digits.movedim(2, -1), 2)
    # Straight into floats: torch forms a bool and converts it at a third of the speed.
    bits = torch.empty_like(projected, dtype=torch.float32)
    torch.ge(projected, 0, out=bits)
    powers = 2.0 ** torch.arange(hashes_per_table, device=bits.device)
    pack = torch.kron(torch.eye(num_tables, device=bits.device), powers)
    return (pack @ bits).to(torch.int64)


def _nearest_axis(axes: Tensor) -> Tensor:
    """(..., n) -> 2 a + [the winning coordinate a is negative], the lowest a on ties."""
    winner = axes.abs().argmax(dim=-1, keepdim=True)
    negative = axes.gather(-1, winner) < 0
    return (2 * winner + negative).squeeze(-1)


def _join(values: Tensor, base: int | None) -> Tensor:
    """Combine a table's hashes, (..., Z) -> (...): digits if they fit in 62 bits, else a mix."""
    hashes = values.shape[-1]
    code = values[..., 0]
    if base is not None and hashes * math.log2(base) <= 62:
        # Little-endian digits, as the packed bits above.
        for z in range(1, hashes):
            code = code + values[..., z] * base**z
        return code
    code = _mix(code)
    for z in range(1, hashes):
        code = _mix(code * _MIX[0] + values[..., z])
    return code


def _mix(word: Tensor) -> Tensor:
    """Bijective scrambling of 64-bit words (the finaliser of splitmix64, Steele et al. 2014)."""
    word = (word ^ _shift_right(word, 30)) * _MIX[1]
    word = (word ^ _shift_right(word, 27)) * _MIX[2]
    return word ^ _shift_right(word, 31)


def _shift_right(word: Tensor, bits: int) -> Tensor:
    """Logical shift; torch's `>>` copies the sign of an int64."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _mix_rows(rows: Tensor, mixers: Tensor) -> Tensor:
    """(H, R, D) rows -> (H, R, L) codes; injective for D = 1, because each step is bijective."""
    words = (rows + 0.0).contiguous().view(torch.int64)
    code = mixers[:, None, :, 0].expand(-1, rows.shape[1], -1)
    for d in range(rows.shape[-1]):
        code = _mix(code * mixers[:, None, :, 1 + d] + words[..., d, None])
    return code
