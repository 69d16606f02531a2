"""ANNA attention by its definition: dense, quadratic, and the yardstick of every other backend."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from .poison import add_poison, split_poison

EMPTY_RULES = ("zero", "mean")


def attention_weights(
    query_codes: Int64[Tensor, "B Hq L Tq"],
    key_codes: Int64[Tensor, "B Hkv L Tk"],
    *,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "B Tk"] | None = None,
    decay: Float[Tensor, " Hq"] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "B Hq Tq Tk"]:
    """Weight of every key for every query.

    w_ij = c_ij / sum_j' c_ij', where c_ij is the number of tables in which query i and key j share
    a code, over the keys the query may see. A row that hits nothing is all zero: its whole weight
    lies on the null key (docs/decisions/0004-null-key.md). With `decay`, c_ij is replaced by
    c_ij exp(-decay (i - j)), both counted from the end of the sequence; each row is taken relative
    to its latest hit, so a row that hits something never becomes 0/0.

    Args:
        query_codes: codes of the queries; Hq is a multiple of Hkv, query head h reads key head
            h // (Hq / Hkv).
        key_codes: codes of the keys.
        is_causal: query i sees key j only if j <= i + Tk - Tq.
        key_mask: True = may be attended; masked keys have weight 0.
        decay: rate per position, per query head, causal only. Leaves Definition 3.3.
        dtype: of the weights and of all arithmetic.

    Returns: the weights, differentiable in `decay`.

    Cost: O(B Hq L Tq Tk) time, O(B Hq Tq Tk) memory.

    Raises:
        ValueError: Hq is not a multiple of Hkv, shapes disagree, or decay without is_causal.

    Source: the weights of Algorithm 1, as Definition 3.3 wants them.
    """
    _check_codes(query_codes, key_codes, key_mask)
    _check_decay(decay, query_codes.shape[1], is_causal)
    visible = _visible(query_codes, key_codes, is_causal, key_mask)
    weights = _collision_counts(query_codes, key_codes, dtype).masked_fill(~visible, 0.0)
    if decay is not None:
        weights = weights * _recency(weights, decay.to(dtype))
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, torch.ones_like(total))


def dense_attention(
    value: Float[Tensor, "B Hkv Tk Dv"],
    query_codes: Int64[Tensor, "B Hq L Tq"],
    key_codes: Int64[Tensor, "B Hkv L Tk"],
    *,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "B Tk"] | None = None,
    decay: Float[Tensor, " Hq"] | None = None,
    empty: str = "zero",
) -> Float[Tensor, "B Hq Tq Dv"]:
    """Weighted mean of the values, by the explicit weights of `attention_weights`.

    Args:
        value: any float dtype. Arithmetic is in float64 for float64 values, else in float32,
            whatever autocast says. Values under `key_mask` may be anything, NaN included.
        query_codes: as for `attention_weights`.
        key_codes: as for `attention_weights`.
        is_causal: as for `attention_weights`.
        key_mask: as for `attention_weights`.
        decay: as for `attention_weights`.
        empty: what a query that hits nothing receives: "zero" (the value of the null key), or
            "mean" of the values it may see (zero if it may see none).

    Returns: the outputs in the dtype of `value`; differentiable in `value` and `decay`.

    Cost: O(B Hq Tq Tk (L + Dv)) time, O(B Hq Tq Tk) memory.

    Raises:
        ValueError: an unknown `empty`, shapes that disagree, or decay without is_causal.

    Source: Definition 3.3 with the null key; the mean is ours.
    """
    if empty not in EMPTY_RULES:
        raise ValueError(f"empty must be one of {EMPTY_RULES}, got {empty!r}")
    _check_codes(query_codes, key_codes, key_mask)
    if value.shape[:3] != (*key_codes.shape[:2], key_codes.shape[3]):
        raise ValueError(
            "value (B, Hkv, Tk, Dv) and key_codes (B, Hkv, L, Tk) must agree, "
            f"got {tuple(value.shape)} and {tuple(key_codes.shape)}"
        )
    dtype = torch.float64 if value.dtype == torch.float64 else torch.float32
    with torch.autocast(value.device.type, enabled=False):
        rows = value.to(dtype)
        if key_mask is not None:
            # 0 times NaN is NaN, so a masked value has to be replaced, not weighed by 0.
            rows = rows.masked_fill(~key_mask[:, None, :, None], 0.0)
        rows, poison = split_poison(rows)

        def mixed(rows: Tensor, decay: Tensor | None) -> Tensor:
            weights = attention_weights(
                query_codes,
                key_codes,
                is_causal=is_causal,
                key_mask=key_mask,
                decay=decay,
                dtype=dtype,
            )
            if empty == "mean":
                visible = _visible(query_codes, key_codes, is_causal, key_mask).to(dtype)
                uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1.0)
                hit_nothing = (weights == 0).all(-1, keepdim=True)
                weights = torch.where(hit_nothing, uniform, weights)
            grouped = weights.unflatten(1, (rows.shape[1], -1)).flatten(2, 3)
            return _mix(grouped, rows).reshape(*weights.shape[:3], rows.shape[-1])

        output = mixed(rows, decay)
        if poison is not None:
            # An infinity that a query collides with is infinite however old: decay rounds to 0.
            output = add_poison(output, poison, lambda sign: mixed(sign, None))
    return output.to(value.dtype)


def _mix(weights: Tensor, rows: Tensor) -> Tensor:
    """Convex combinations of finite rows, which rounding must not carry over the largest number."""
    half = weights @ (rows * 0.5)
    limit = 0.5 * torch.finfo(rows.dtype).max
    # Taken off as a constant: the gradient of a clamp is 0 outside.
    half = half - (half - half.clamp(-limit, limit)).detach()
    return half * 2.0


def _collision_counts(query_codes: Tensor, key_codes: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, Hq, Tq, Tk), one table at a time to keep L out of the memory."""
    batch, kv_heads, num_tables, num_keys = key_codes.shape
    num_queries = query_codes.shape[3]
    query_codes = query_codes.unflatten(1, (kv_heads, -1))
    counts = torch.zeros(
        (batch, kv_heads, query_codes.shape[2], num_queries, num_keys),
        dtype=dtype,
        device=key_codes.device,
    )
    for table in range(num_tables):
        counts += query_codes[:, :, :, table, :, None] == key_codes[:, :, None, table, None, :]
    return counts.flatten(1, 2)


def _visible(
    query_codes: Tensor, key_codes: Tensor, is_causal: bool, key_mask: Tensor | None
) -> Tensor:
    """Which keys a query may attend: bool, broadcastable to (B, Hq, Tq, Tk), last two exact."""
    visible = torch.ones(
        (1, 1, query_codes.shape[3], key_codes.shape[3]), dtype=torch.bool, device=key_codes.device
    )
    if is_causal:
        visible = visible.tril(diagonal=key_codes.shape[3] - query_codes.shape[3])
    if key_mask is not None:
        visible = visible & key_mask[:, None, None, :]
    return visible


def _recency(counts: Tensor, decay: Tensor) -> Tensor:
    """exp(-decay (lag - lag of the row's latest hit)), at most 1 where there is a hit."""
    num_queries, num_keys = counts.shape[-2:]
    queries = torch.arange(num_queries, device=counts.device) + (num_keys - num_queries)
    lag = (queries[:, None] - torch.arange(num_keys, device=counts.device)).to(counts.dtype)
    if num_keys == 0:
        return torch.exp(-decay[:, None, None] * lag)
    latest = lag.expand_as(counts).masked_fill(counts == 0, torch.inf).amin(-1, keepdim=True)
    # Keys without a hit have weight 0 whatever stands here; 0 keeps inf out of the gradient.
    beyond = (lag - latest).masked_fill(counts == 0, 0.0)
    # The factor exp(decay * latest) cancels in the normalisation, so it owes no gradient.
    return torch.exp(-decay[:, None, None] * beyond)


def _check_codes(query_codes: Tensor, key_codes: Tensor, key_mask: Tensor | None) -> None:
    shapes = f"{tuple(query_codes.shape)} and {tuple(key_codes.shape)}"
    if query_codes.dim() != 4 or key_codes.dim() != 4:
        raise ValueError(f"query_codes and key_codes must be (B, H, L, T), got {shapes}")
    if query_codes.shape[0] != key_codes.shape[0] or query_codes.shape[2] != key_codes.shape[2]:
        raise ValueError(
            f"query_codes and key_codes must share their batch and tables, got {shapes}"
        )
    if key_codes.shape[1] == 0 or query_codes.shape[1] % key_codes.shape[1]:
        raise ValueError(
            f"query_codes must have a multiple of the heads of key_codes, got {shapes}"
        )
    expected = (key_codes.shape[0], key_codes.shape[3])
    if key_mask is not None and (key_mask.dtype != torch.bool or key_mask.shape != expected):
        raise ValueError(
            f"key_mask must be bool (B, Tk) = {expected}, True = may be attended, "
            f"got {key_mask.dtype} {tuple(key_mask.shape)}"
        )


def _check_decay(decay: Tensor | None, num_heads: int, is_causal: bool) -> None:
    if decay is None:
        return
    if not is_causal:
        raise ValueError("decay weighs by recency and needs is_causal=True, got False")
    if decay.shape != (num_heads,):
        raise ValueError(f"decay must be (Hq,) = ({num_heads},), got {tuple(decay.shape)}")
