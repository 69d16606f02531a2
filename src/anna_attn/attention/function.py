"""anna_attention: check, hash, choose a backend, average."""

import functools
import itertools
import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from anna_attn.lsh import HashTables

from . import checks
from .buckets import Collisions, Order, to_buckets
from .reference import EMPTY_RULES, dense_attention
from .torch_ops import average, visible_mean

BACKENDS = ("auto", "torch", "torch_one_table", "reference")

DENSE_UP_TO_FULL = 128
DENSE_UP_TO_CAUSAL = 256
"""Up to this many tokens (the geometric mean of Tq and Tk) comparing all pairs is faster. Measured
on one Zen 4 core with L=16, 256 buckets, D=64, float32, 1 to 64 heads: milliseconds for 8 heads,
pairs against tables, 0.4 and 0.6 at 64 tokens, 1.1 and 0.8 at 128, 4.3 and 1.1 at 256; causal 1.2
and 2.7 at 128, 5.0 and 5.2 at 256, 11 and 8 at 384. With 64 heads the crossing lies near 200."""


@dataclass(frozen=True)
class _Hashed:
    """Inputs after hashing: value (B, Hkv, Tk, Dv), query_codes (B, Hkv, L, G, Tq) with G query
    heads to a key head, key_codes (B, Hkv, L, Tk), live (B, Tk) or None."""

    value: Tensor
    query_codes: Tensor
    key_codes: Tensor
    live: Tensor | None
    num_buckets: int | None

    def parts(self, lengths: list[int]) -> list["_Hashed"]:
        """Packed sequences of these lengths, which add up to all rows.

        Cut in one operation: the gradient of a slice is as long as the whole, S of them quadratic.
        """
        values = self.value.split(lengths, 2)
        queries, keys = self.query_codes.split(lengths, -1), self.key_codes.split(lengths, -1)
        live = [None] * len(lengths) if self.live is None else self.live.split(lengths, 1)
        return [
            _Hashed(*rows, self.num_buckets)
            for rows in zip(values, queries, keys, live, strict=True)
        ]


def anna_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: HashTables,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    enable_gqa: bool = False,
    decay: Tensor | None = None,
    empty: str = "zero",
    backend: str = "auto",
    check_finite: bool = True,
) -> Tensor:
    """Average, for each query, the values whose keys share a bucket with it.

    o_i = sum_j c_ij v_j / sum_j c_ij, with c_ij the number of tables in which query i and key j
    have one code. A query that hits nothing attends a null key of value 0.

    Args:
        query: (B, Hq, Tq, D) float64, float32, bfloat16 or float16, any strides.
        key: (B, Hkv, Tk, D), query's dtype (under autocast dtypes may differ).
        value: (B, Hkv, Tk, Dv). An infinity or NaN reaches the queries that collide with it and no
            others.
        tables: hash functions for D and Hkv heads.
        is_causal: query i sees key j only if j <= i + Tk - Tq. What stands later has no influence
            on any bit of the output.
        key_mask: bool (B, Tk) or (B, 1, 1, Tk), True = may be attended. Masked keys and values may
            hold anything, NaN included.
        cu_seqlens: (S + 1,) int, offsets of S packed sequences that do not see each other; needs
            B = 1 and Tq = Tk. Rows after the last offset see nothing and give 0.
        enable_gqa: allow Hq to be a multiple of Hkv; query head h then reads key head
            h // (Hq / Hkv) and is hashed by its functions.
        decay: (Hq,) >= 0, causal only: weights c_ij exp(-decay (i - j)). Leaves Definition 3.3.
        empty: what a query that hits nothing gets: "zero", or "mean" of the values it may see.
        backend: "torch" (Algorithm 1), "torch_one_table" (Algorithm 2), "reference" (the dense
            definition), or "auto": pairs for few tokens, else "torch".
        check_finite: refuse NaN and infinity in live queries and keys, at the cost of a sum each.
            With False they are hashed like any number, to an arbitrary bucket.

    Returns: (B, Hq, Tq, Dv) in value's dtype; sums are formed in float32 at least. Differentiable
        in value and decay. Codes have no gradient: where query or key require one, a warning, once
        a process, names the surrogates to train with.

    Raises:
        TypeError: no tensor, no HashTables, no bool, or dtypes that are not accepted.
        ValueError: shapes, heads, mask, offsets, decay or names that are not accepted; NaN.

    Cost: O(H L N (Z D + Dv)) time and O(H N (L + Dv)) memory, N = Tq + Tk.

    Source: Liu et al. 2025, Algorithms 1 and 2. The null key, "mean" and decay are ours.
    """
    checks.check_tensors(query, key, value, tables, enable_gqa)
    checks.check_flag("is_causal", is_causal)
    checks.check_flag("enable_gqa", enable_gqa)
    checks.check_choice("empty", empty, EMPTY_RULES)
    checks.check_choice("backend", backend, BACKENDS)
    checks.check_decay(decay, query, is_causal)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        _warn_of_missing_gradient()
    live = checks.checked_mask(key_mask, query, key)
    offsets = checks.checked_offsets(cu_seqlens, query, key)
    num_rows = query.shape[2]
    with torch.autocast(query.device.type, enabled=False):
        if offsets is not None:
            query, key, value = (x[:, :, : offsets[-1]] for x in (query, key, value))
            live = None if live is None else live[:, : offsets[-1]]
        hashed = _hash(query, key, value, tables, live, check_finite)
        if offsets is None:
            return _attend(hashed, is_causal, decay, empty, backend)
        lengths = [stop - start for start, stop in itertools.pairwise(offsets)]
        parts = [
            _attend(part, is_causal, decay, empty, backend)
            for part in hashed.parts([length for length in lengths if length > 0])
        ]
        after = value.new_zeros(1, query.shape[1], num_rows - offsets[-1], value.shape[3])
        # Sums of nothing keep value and decay in the graph where there are no other parts.
        after = after + value[:, :, :0].sum()
        if decay is not None:
            after = after + decay[:0].sum().to(value.dtype)
        return torch.cat([*parts, after], dim=2)


def count_empty(
    query: Tensor,
    key: Tensor,
    tables: HashTables,
    *,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    enable_gqa: bool = False,
    backend: str = "auto",
    check_finite: bool = True,
) -> Tensor:
    """Count the queries that hit nothing.

    Args: as for `anna_attention`. Rows after the last offset are not counted.
    Returns: (B, Hq) int64.
    Raises: as `anna_attention`.
    Cost: as `anna_attention` with values of width 1.
    """
    ones = torch.ones_like(key[..., :1]) if isinstance(key, Tensor) and key.dim() == 4 else key
    with torch.no_grad():
        hits = anna_attention(
            query.detach() if isinstance(query, Tensor) else query,
            key.detach() if isinstance(key, Tensor) else key,
            ones,
            tables,
            is_causal=is_causal,
            key_mask=key_mask,
            cu_seqlens=cu_seqlens,
            enable_gqa=enable_gqa,
            backend=backend,
            check_finite=check_finite,
        )
    if cu_seqlens is not None:
        hits = hits[:, :, : int(cu_seqlens[-1])]
    return (hits[..., 0] == 0).sum(-1)


def _hash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: HashTables,
    live: Tensor | None,
    check_finite: bool,
) -> _Hashed:
    if live is not None:
        # Overwritten rather than weighed by 0: 0 times NaN is NaN.
        dead = ~live[:, None, :, None]
        key, value = key.masked_fill(dead, 0.0), value.masked_fill(dead, 0.0)
    if check_finite:
        checks.refuse_non_finite("query", query)
        checks.refuse_non_finite("key", key)
    batch, heads, num_queries, dim = query.shape
    group = heads // key.shape[1] if key.shape[1] else 1
    rows = query.reshape(batch, key.shape[1], group * num_queries, dim)
    query_codes = tables(rows).unflatten(-1, (group, num_queries))
    return _Hashed(value, query_codes, tables(key), live, tables.num_buckets)


def _attend(
    hashed: _Hashed, is_causal: bool, decay: Tensor | None, empty: str, backend: str
) -> Tensor:
    """Attend among rows that may see each other, by the backend of that name."""
    query_codes = hashed.query_codes
    group = query_codes.shape[3]
    if backend == "reference":
        codes = query_codes.transpose(2, 3).flatten(1, 2)
        return dense_attention(
            hashed.value,
            codes,
            hashed.key_codes,
            is_causal=is_causal,
            key_mask=hashed.live,
            decay=decay,
            empty=empty,
        )
    if decay is None or group == 1:
        return _average(hashed, is_causal, decay, empty, backend)
    # Query heads with rates of their own fade the same table differently.
    heads = [
        _average(
            _Hashed(
                hashed.value,
                query_codes[:, :, :, g : g + 1],
                hashed.key_codes,
                hashed.live,
                hashed.num_buckets,
            ),
            is_causal,
            decay[g::group],
            empty,
            backend,
        )
        for g in range(group)
    ]
    return torch.stack(heads, dim=2).flatten(1, 2)


def _average(
    hashed: _Hashed, is_causal: bool, decay: Tensor | None, empty: str, backend: str
) -> Tensor:
    batch, kv_heads, num_tables, group, num_queries = hashed.query_codes.shape
    num_keys, width = hashed.value.shape[2:]
    flat = batch * kv_heads
    # Position-major: the rows of one position lie together, as walking through time needs them.
    query_rows = hashed.query_codes.transpose(3, 4).reshape(flat, num_tables, num_queries * group)
    key_rows = hashed.key_codes.reshape(flat, num_tables, num_keys)
    live = hashed.live
    if live is not None:
        live = live[:, None].expand(batch, kv_heads, num_keys).reshape(flat, num_keys)
    query_rows, key_rows, num_buckets = to_buckets(query_rows, key_rows, hashed.num_buckets, live)
    order = Order(group, 1, num_keys - num_queries) if is_causal else None
    method = _method(backend, num_queries, num_keys, is_causal)
    collisions = Collisions(query_rows, key_rows, num_buckets, order, method)
    dtype = torch.float64 if hashed.value.dtype == torch.float64 else torch.float32
    value = hashed.value.reshape(flat, num_keys, width).to(dtype)
    fallback = None
    if empty == "mean":
        fallback = visible_mean(value, live, order, num_queries * group)
    rates = None if decay is None else decay.to(dtype).expand(batch, kv_heads).reshape(flat)
    result = average(value, collisions, rates, fallback)
    result = result.reshape(batch, kv_heads, num_queries, group, width).transpose(2, 3)
    return result.reshape(batch, kv_heads * group, num_queries, width).to(hashed.value.dtype)


def _method(backend: str, num_queries: int, num_keys: int, is_causal: bool) -> str:
    if backend == "torch_one_table":
        return "one_table"
    limit = DENSE_UP_TO_CAUSAL if is_causal else DENSE_UP_TO_FULL
    if backend == "auto" and math.sqrt(num_queries * num_keys) <= limit:
        return "dense"
    return "tables"


@functools.cache
def _warn_of_missing_gradient() -> None:
    warnings.warn(
        "anna_attention gives query and key no gradient: hash codes have none. To train them use "
        "a surrogate of anna_attn.nn: the mechanisms Softmax, Expected or StraightThrough "
        "(softmax_attention, expected_attention, straight_through_attention). "
        "Detach query and key if this is meant.",
        UserWarning,
        stacklevel=3,
    )
