"""The averages over shared buckets, in plain torch, on bucket ids, with exact gradients."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .buckets import Collisions, Order
from .causal import causal_sums
from .decay import decayed_average
from .dense import dense_sums
from .full import full_sums
from .poison import add_poison, split_poison


def average(
    value: Float[Tensor, "H Tk Dv"],
    collisions: Collisions,
    decay: Float[Tensor, "H"] | None,
    fallback: Float[Tensor, "H #Tq Dv"] | None,
) -> Float[Tensor, "H Tq Dv"]:
    """Average the values in each query's buckets; differentiable in value and decay.

    Args:
        value: in the type to sum in; masked rows 0.
        decay: of each head, causal only.
        fallback: what a query that hits nothing gets; None = 0.
    """
    value, poison = split_poison(value)

    def mean(rows: Tensor) -> tuple[Tensor, Tensor]:
        if decay is not None:
            return decayed_average(rows, collisions, decay)
        sums, totals = collision_sums(rows, collisions)
        return sums / totals.clamp(min=1.0)[..., None], totals

    result, totals = _with_headroom(mean, value, collisions.num_tables)
    if poison is not None:
        result = add_poison(result, poison, lambda sign: _sums(sign, collisions)[0])
    if fallback is not None:
        result = torch.where(totals[..., None] > 0, result, fallback)
    return result


def collision_sums(
    value: Float[Tensor, "H Tk Dv"], collisions: Collisions
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """Sums of the values in each query's buckets (differentiable) and their number (not)."""
    result = _CollisionSums.apply(value, collisions)
    assert isinstance(result, tuple)
    return result


class _CollisionSums(torch.autograd.Function):
    """Linear in value, so its derivative is its transpose: the same operator, roles exchanged."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, value: Tensor, collisions: Collisions
    ) -> tuple[Tensor, Tensor]:
        ctx.collisions = collisions
        with torch.autocast(value.device.type, enabled=False):
            sums, totals = _sums(value, collisions)
        ctx.mark_non_differentiable(totals)
        return sums, totals

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor, _totals: Tensor
    ) -> tuple[Tensor, None]:
        back = ctx.collisions.transposed()
        sums, _ = collision_sums(back.in_time(grad), back)
        return back.in_time(sums), None


def visible_mean(
    value: Float[Tensor, "H Tk Dv"],
    live: Bool[Tensor, "H Tk"] | None,
    order: Order | None,
    num_queries: int,
) -> Float[Tensor, "H #Tq Dv"]:
    """Mean of the values each query may see, 0 where it may see none; masked values are 0."""
    heads, num_keys, width = value.shape
    if num_keys == 0:
        return value.new_zeros(heads, num_queries, width)
    seen = value.new_ones(heads, num_keys) if live is None else live.to(value.dtype)

    def mean(rows: Tensor) -> tuple[Tensor, Tensor]:
        if order is None:
            return rows.sum(1, keepdim=True) / seen.sum(1).clamp(min=1.0)[:, None, None], seen
        return rows.cumsum(1) / seen.cumsum(1).clamp(min=1.0)[..., None], seen

    value, poison = split_poison(value)
    means, _ = _with_headroom(mean, value, 1)
    if poison is not None:
        means = add_poison(means, poison, lambda sign: mean(sign)[0])
    if order is None:
        return means
    position = torch.arange(num_queries, device=value.device) // order.query_group + order.shift
    return means[:, position.clamp(0, num_keys - 1)].masked_fill((position < 0)[:, None], 0.0)


def _with_headroom(
    mean: Callable[[Tensor], tuple[Tensor, Tensor]], value: Tensor, num_tables: int
) -> tuple[Tensor, Tensor]:
    """`mean(value)`, a convex combination and its totals, also where its sums would overflow.

    Whether any sum may overflow depends on all values, those of the future included, so rows whose
    own sums do not overflow keep the bits that they have without the detour.
    """
    exponent = _headroom(value, num_tables)
    if exponent == 0:
        return mean(value)
    scaled, totals = mean(value * 2.0**-exponent)
    # Rounding may carry an average of the largest numbers over the largest number. Taken off as a
    # constant, because the gradient of a clamp is 0 outside.
    limit = torch.finfo(value.dtype).max * 2.0**-exponent
    scaled = scaled - (scaled - scaled.clamp(-limit, limit)).detach()
    result = scaled * 2.0**exponent
    with torch.no_grad():
        plain, _ = mean(value)
        correction = torch.where(plain.isfinite(), plain - result, 0.0)
    return result + correction, totals


def _sums(value: Tensor, collisions: Collisions) -> tuple[Tensor, Tensor]:
    if collisions.method == "dense":
        return dense_sums(value, collisions)
    if collisions.order is None:
        return full_sums(value, collisions)
    return causal_sums(value, collisions)


def _headroom(value: Tensor, num_tables: int) -> int:
    """Power of two to divide by so that no bucket sum overflows; 0 unless needed.

    Dividing by a power of two is exact but for numbers near the smallest.
    """
    if value.numel() == 0:
        return 0
    low, high = value.detach().aminmax()
    largest = max(-float(low), float(high))
    terms = value.shape[1] * num_tables
    if largest <= torch.finfo(value.dtype).max / (2 * terms):
        return 0
    return math.ceil(math.log2(2 * terms))
