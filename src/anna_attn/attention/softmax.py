"""Softmax attention with the masks and lengths of `anna_attention`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from . import checks


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    beta: float | None = None,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(beta q k^T) v, computed by torch's `scaled_dot_product_attention`.

    Args:
        query: (B, Hq, Tq, D).
        key: (B, Hkv, Tk, D).
        value: (B, Hkv, Tk, Dv).
        beta: inverse temperature; None = 1 / sqrt(D).
        is_causal: query i sees key j only if j <= i + Tk - Tq, so that the last query sees all
            keys. torch's own flag aligns at the first row instead when Tq != Tk.
        key_mask: bool (B, Tk) or (B, 1, 1, Tk), True = may be attended. Masked keys and values may
            be NaN; an infinite value that is not masked reaches rows that cannot see it.
        enable_gqa: allow Hq to be a multiple of Hkv; query head h reads key head h // (Hq / Hkv).

    Returns: (B, Hq, Tq, Dv). A row that may see no key is 0 with zero gradient, never NaN.

    Cost: O(Tq Tk (D + Dv)) time. Memory is linear in the lengths for a full call, and for a causal
        one with Tq = Tk and no mask; otherwise one bool (B, Tq, Tk).

    Raises:
        ValueError: wrong rank or shapes that disagree, or a beta that is not finite.
        TypeError: dtypes that differ, or a key_mask that is not bool.
    """
    checks.check_agreement(query, key, value, enable_gqa)
    checks.check_one_dtype(query, key, value)
    if beta is not None and not math.isfinite(beta):
        raise ValueError(f"beta must be finite or None (1 / sqrt(D)), got {beta!r}")
    checks.check_flag("is_causal", is_causal)
    key_mask = checks.checked_mask(key_mask, query, key)
    num_queries, num_keys = query.shape[2], key.shape[2]
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
    if num_queries == 0 or num_keys == 0:
        return _nothing(query, key, value)
    scale = 1.0 / math.sqrt(max(query.shape[3], 1)) if beta is None else float(beta)
    # A single query sees every key under either alignment.
    triangular = is_causal and num_queries > 1
    if key_mask is None and (not triangular or num_queries == num_keys):
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=triangular, scale=scale, enable_gqa=enable_gqa
        )
    mask = _visible(num_queries, num_keys, triangular, key_mask, query.device)
    # Let a blind row see everything and empty it afterwards: its softmax is 0/0 otherwise.
    blind = ~mask.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask | blind, scale=scale, enable_gqa=enable_gqa
    )
    return output.masked_fill(blind, 0.0)


def _visible(
    num_queries: int,
    num_keys: int,
    is_causal: bool,
    key_mask: Tensor | None,
    device: torch.device,
) -> Tensor:
    """Bool mask, broadcastable to (B, H, Tq, Tk); Tk is full, Tq may be 1."""
    mask = torch.ones((1, 1, 1, num_keys), dtype=torch.bool, device=device)
    if is_causal:
        mask = mask.expand(1, 1, num_queries, num_keys).tril(diagonal=num_keys - num_queries)
    return mask if key_mask is None else mask & key_mask[:, None, None, :]


def _nothing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Zeros of the right shape that keep their place in the autograd graph."""
    groups = query.shape[1] // key.shape[1] if key.shape[1] else 1
    key, value = (rows.repeat_interleave(groups, dim=1) for rows in (key, value))
    return query @ key.transpose(-1, -2) @ value
