"""Exact-match attention: the mean of the values whose key equals the query."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anna_attn.lsh import Exact, HashTables

from . import checks
from .function import anna_attention

_FACTOR = -0x61C8864680B583EB
"""An odd 64-bit multiplier, 2^64 divided by the golden ratio."""


def exact_match_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    enable_gqa: bool = False,
    empty: str = "zero",
) -> Tensor:
    """Mean of the values whose key row equals the query row, coordinate for coordinate.

    Unlike `anna_attention` with the family `Exact`, which hashes rows, equality here is certain:
    rows are numbered so that two numbers agree exactly if the rows do.

    Args:
        query: (B, Hq, Tq, D), floats or integers. 0.0 equals -0.0, and NaN a NaN of the same
            bits.
        key: (B, Hkv, Tk, D), of the dtype of `query`.
        value: (B, Hkv, Tk, Dv), any float dtype.
        is_causal: query i sees key j only if j <= i + Tk - Tq.
        key_mask: (B, Tk) bool, True = may be attended. Masked keys and values may be NaN.
        enable_gqa: allow Hq to be a multiple of Hkv; query head h reads key head h // (Hq / Hkv).
        empty: what a query without an equal key receives: "zero", or "mean" of the values it sees.

    Returns: (B, Hq, Tq, Dv) in the dtype of `value`; differentiable in `value`.

    Cost: O(H N (D + Dv)) time and memory and a sort of the H N rows' numbers, N = Tq + Tk. The
        averages are those of `anna_attention` with one table, in float64.

    Raises:
        ValueError: wrong rank, shapes that disagree, or an unknown `empty`.
        TypeError: query and key of different dtypes, or a value that is not a float.

    Source: exact-match attention, as in the proof of Theorem 4.1.
    """
    checks.check_agreement(query, key, value, enable_gqa)
    if query.dtype != key.dtype:
        raise TypeError(f"query and key must share a dtype, got {query.dtype} and {key.dtype}")
    if not value.dtype.is_floating_point:
        raise TypeError(f"value must have a float dtype, got {value.dtype}")
    rows = torch.cat([query.flatten(0, 2), key.flatten(0, 2)])
    numbers = _number_rows(_words(rows.detach())).to(torch.float64)
    num_query_rows = math.prod(query.shape[:3])
    # One number per row: at width 1 the codes of `Exact` are injective, so nothing is left to luck.
    tables = HashTables(Exact(1), 1, 1, key.shape[1]).to(query.device)
    output = anna_attention(
        numbers[:num_query_rows].reshape(*query.shape[:3], 1),
        numbers[num_query_rows:].reshape(*key.shape[:3], 1),
        value.to(torch.float64),
        tables,
        is_causal=is_causal,
        key_mask=key_mask,
        enable_gqa=enable_gqa,
        empty=empty,
    )
    return output.to(value.dtype)


def _words(rows: Tensor) -> Tensor:
    """One int64 per coordinate, equal exactly where the coordinates are."""
    if not rows.dtype.is_floating_point:
        return rows.to(torch.int64)
    # Adding 0.0 turns -0.0 into 0.0; every narrower float is exact in float64.
    return (rows.to(torch.float64) + 0.0).contiguous().view(torch.int64)


def _number_rows(words: Tensor) -> Tensor:
    """(R, D) int64 -> (R,) int64 in [0, R), equal exactly for equal rows."""
    numbers = torch.unique(_hash_rows(words), return_inverse=True)[1]
    # Sharing a hash proves nothing: compare every row with one chosen member of its number.
    member = torch.zeros_like(numbers)
    member[numbers] = torch.arange(len(numbers), device=numbers.device)
    if torch.equal(words, words[member[numbers]]):
        return numbers
    return _number_by_columns(words)


def _hash_rows(words: Tensor) -> Tensor:
    code = torch.zeros_like(words[:, 0]) if words.shape[1] else words.new_zeros(len(words))
    for d in range(words.shape[1]):
        code = (code ^ words[:, d]) * _FACTOR
        # The product only carries upwards; bring its high bits back to the low ones.
        code = code ^ ((code >> 32) & 0xFFFFFFFF)
    return code


def _number_by_columns(words: Tensor) -> Tensor:
    """The same without hashing: number ever longer prefixes, one sort per column."""
    numbers = torch.zeros(len(words), dtype=torch.int64, device=words.device)
    for d in range(words.shape[1]):
        column = torch.unique(words[:, d], return_inverse=True)[1]
        # Both lie in [0, R), so the pair fits in 62 bits for every R that fits in memory.
        numbers = torch.unique(numbers * len(words) + column, return_inverse=True)[1]
    return numbers
