"""Differentiable stand-ins for `anna_attention`, used to train queries and keys.

The hard operator counts in how many tables a query and a key share a bucket; counts have no
gradient. Their expectation has one: L p^Z, with p the probability that one hash agrees, a smooth
function of the angle. `expected_attention` uses it outright; `straight_through_attention` counts
hard in the forward pass and uses it in the backward pass only.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from anna_attn.lsh import Family, HashTables, Hyperplane

from . import checks

COSINE_SCALE = 0.9995
"""Cosines are scaled by this before acos, whose slope is infinite at 1."""

BLOCK_ELEMENTS = 1 << 20
"""Pairs counted at a time: one byte each, so comparison and sum stay in a core's cache."""


def expected_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: HashTables,
    *,
    exponent: float | Tensor,
    floor: float | Tensor = 0.3,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    enable_gqa: bool = False,
    decay: Tensor | None = None,
    unit_norm: bool = False,
) -> Tensor:
    """Average the values by the probability of sharing a bucket with the query.

    o_i = sum_j w_ij v_j / (floor + sum_j w_ij),  w_ij = p(i, j)^exponent [exp(-decay (i - j))].

    p is `tables.family.collision_probability` of one hash at the angle (of 0.9995 times the
    cosine) or distance between the rows. Only the family of `tables` matters, not its draw. With
    exponent = Z this is the ratio of expectations of the hard operator's two sums, up to `floor`,
    which keeps rows without a near key close to 0 as the hard operator does.

    Args:
        query: (B, H, Tq, D), of any float dtype; 16-bit ones are computed in float32.
        key: (B, H, Tk, D).
        value: (B, H, Tk, Dv), finite where not masked: a weight of 0 makes NaN of an infinity.
        tables: hash tables of the heads of `key`.
        exponent: above 0; a tensor must broadcast against (B, H, Tq, Tk).
        floor: at least 0; a row with nothing to see gives 0 also at floor = 0.
        is_causal: query i sees key j iff j <= i + Tk - Tq.
        key_mask: bool (B, Tk) or (B, 1, 1, Tk), True = may be attended.
        enable_gqa: allow query to have a multiple of the heads of key and value, which are then
            repeated, as are their hash functions.
        decay: (H,) non-negative, causal only: the recency weights of `anna_attention`.
        unit_norm: the rows of query and key have unit norm already (saves normalising them).
    Returns: (B, H, Tq, Dv), differentiable in everything but key_mask.
    Raises: ValueError, TypeError on shapes that do not fit, a family without a gradient, a decay
        that is not causal.
    Cost: O(B H Tq Tk (D + Dv)) time and O(B H Tq Tk) memory: it is for training, not for length.
    Source: ours; the family's probability is that of Definition 3.1 of Liu et al. 2025.
    """
    _check(query, key, value, tables, enable_gqa, exponent)
    key_mask = _check_options(query, key, is_causal, key_mask, decay)
    with torch.autocast(value.device.type, enabled=False):
        q, k, v = _prepare(query, key, value, key_mask)
        unit_norm = unit_norm and q.dtype == query.dtype  # 16-bit rows have rounded norms
        weights = _kernel(_closeness(q, k, tables.family, unit_norm), tables.family, exponent)
        visible = visible_pairs(q.shape[-2], k.shape[-2], is_causal, key_mask, q.device)
        if visible is not None:
            weights = weights * visible
        if decay is not None:
            weights = weights * torch.exp(-decay.to(q.dtype)[:, None, None] * _lag(q, k))
        total = weights.sum(-1, keepdim=True) + floor
        tiny = torch.finfo(q.dtype).tiny
        return ((weights @ v) / total.clamp(min=tiny)).to(value.dtype)


def straight_through_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: HashTables,
    *,
    exponent: float | Tensor,
    stray: float = 0.0,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
    enable_gqa: bool = False,
    decay: Tensor | None = None,
    unit_norm: bool = False,
) -> Tensor:
    """Average by hard collision counts, with the gradient of their expectation.

    C_ij = c_ij + L (p_ij^exponent - stop_gradient(p_ij^exponent)),  o_i = sum_j C_ij v_j / sum c_ij

    c_ij counts the tables in which i and j share a code, so the value equals that of
    `anna_attention(..., empty="zero")` up to rounding. A row that collides with nothing gives 0 and
    has no gradient. The gradient to `value` and `decay` is exact.

    With `decay`, a row's weights are taken relative to its latest colliding key, so nothing
    underflows. The stand-in gradient of a key later than that one, which does not collide, is
    weighed as if it were there: exp(decay gap) would otherwise be unbounded.

    The arguments are those of `expected_attention`; exponent may differ from Z, and a smaller one
    gives wider gradients.

    With stray > 0, c_ij is one more than it is with that probability, independently for every
    pair, and o no longer that of `anna_attention`. Every draw of tables has a few collisions of
    pairs that are far apart, each pair so rarely that training may never see it; strays show all
    of them. They are drawn from the seed of `tables`, and so are part of the draw.

    Returns: (B, H, Tq, Dv).
    Raises: as `expected_attention`; ValueError for a stray that is no probability, or for tables
        whose seed is not known.
    Cost: O(B H Tq Tk (L + D + Dv)) time, of which L at one byte per pair; O(B H Tq Tk) memory.
    Source: ours; straight-through estimation as in Bengio et al. 2013 (arXiv:1308.3432).
    """
    _check(query, key, value, tables, enable_gqa, exponent)
    key_mask = _check_options(query, key, is_causal, key_mask, decay)
    if not 0.0 <= stray <= 1.0:
        raise ValueError(f"stray must lie in [0, 1], got {stray!r}")
    with torch.autocast(value.device.type, enabled=False):
        q, k, v = _prepare(query, key, value, key_mask)
        unit_norm = unit_norm and q.dtype == query.dtype  # 16-bit rows have rounded norms
        codes = _grouped_codes(q, tables), _grouped_codes(k, tables)
        counts = collision_counts(*codes, num_buckets=tables.num_buckets).to(q.dtype)
        if stray > 0.0:
            counts += _strays(counts, stray, tables)
        visible = visible_pairs(q.shape[-2], k.shape[-2], is_causal, key_mask, q.device)
        if visible is not None:
            counts = counts.mul_(visible)
        weights = counts
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad):
            closeness = _closeness(q, k, tables.family, unit_norm)
            weights = _with_gradient(closeness, counts, visible, tables, exponent)
        if decay is not None:
            weights = weights * _relative_recency(counts, decay.to(q.dtype), _lag(q, k))
        total = weights.sum(-1, keepdim=True)
        safe = torch.where(total > 0, total, torch.full_like(total, math.inf))
        return ((weights @ v) / safe).to(value.dtype)


def collision_counts(
    query_codes: Tensor, key_codes: Tensor, *, num_buckets: int | None = None
) -> Tensor:
    """Count, for every query and key, the tables in which their codes agree.

    Args:
        query_codes: (B, H, L, Tq) int64.
        key_codes: (B, H, L, Tk) int64.
        num_buckets: codes lie in [0, num_buckets), which allows narrower comparisons; None = any.
    Returns: (B, H, Tq, Tk) in the narrowest integer dtype that holds L.
    Cost: O(B H L Tq Tk). Codes are compared as bytes where they fit, 64 to a vector register.
    """
    if query_codes.shape[:3] != key_codes.shape[:3]:
        raise ValueError(
            "query_codes and key_codes must agree in (B, H, L), got "
            f"{tuple(query_codes.shape)} and {tuple(key_codes.shape)}"
        )
    batch, heads, num_tables, num_queries = query_codes.shape
    num_keys = key_codes.shape[-1]
    dtype = _narrow(num_tables, num_buckets)
    queries, keys = _narrowed(query_codes, key_codes, num_buckets, dtype)
    queries, keys = queries.flatten(0, 1), keys.flatten(0, 1)
    counts = torch.zeros(batch * heads, num_queries, num_keys, dtype=dtype, device=keys.device)
    step = max(1, BLOCK_ELEMENTS // max(1, num_queries * num_keys * dtype.itemsize))
    # Comparing into an integer buffer takes torch's vectorised path; into a bool one it does not
    # (four times slower). Cutting blocks at the cache size keeps buffer and sum in it.
    buffer = torch.empty_like(counts[:step])
    for start in range(0, batch * heads, step):
        block = counts[start : start + step]
        q, k = queries[start : start + step], keys[start : start + step]
        equal = buffer[: block.shape[0]]
        for t in range(num_tables):
            torch.eq(q[:, t, :, None], k[:, t, None, :], out=equal)
            block.add_(equal)
    return counts.view(batch, heads, num_queries, num_keys)


def _strays(counts: Tensor, stray: float, tables: HashTables) -> Tensor:
    """1 for the pairs that collide once more, else 0, in the shape of `counts`."""
    if tables.seed is None:
        raise ValueError("stray draws from the seed of tables, which is not known after loading")
    generator = torch.Generator(counts.device).manual_seed(tables.seed)
    drawn = torch.rand(counts.shape, generator=generator, device=counts.device)
    return (drawn < stray).to(counts.dtype)


def visible_pairs(
    num_queries: int,
    num_keys: int,
    is_causal: bool,
    key_mask: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """Which keys each query may attend: bool, broadcastable to (B, H, Tq, Tk); None = all."""
    visible = None
    if is_causal:
        visible = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
        visible = visible.tril(num_keys - num_queries)
    if key_mask is not None:
        keys = key_mask[:, None, None, :]
        visible = keys if visible is None else visible & keys
    return visible


def _narrow(num_tables: int, num_buckets: int | None) -> torch.dtype:
    """Smallest dtype for both the codes and the counts."""
    if num_buckets is not None and num_buckets <= 256 and num_tables < 256:
        return torch.uint8
    if num_buckets is not None and num_buckets <= 1 << 15 and num_tables < 1 << 15:
        return torch.int16
    return torch.int32


def _narrowed(
    query_codes: Tensor, key_codes: Tensor, num_buckets: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    if num_buckets is None or num_buckets > 1 << 31:
        # Arbitrary int64 codes are numbered first; equality is all that counts.
        both = torch.cat([query_codes, key_codes], dim=-1)
        numbers = torch.unique(both, return_inverse=True)[1].to(dtype)
        query_codes, key_codes = numbers.split([query_codes.shape[-1], key_codes.shape[-1]], dim=-1)
    return query_codes.to(dtype).contiguous(), key_codes.to(dtype).contiguous()


def _prepare(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None):
    """Lift 16-bit rows to float32 and empty the masked ones, whose content must not matter."""
    if query.dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    if key_mask is not None:
        hidden = ~key_mask[:, None, :, None]
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
    if query.shape[1] != key.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return query, key, value


def _grouped_codes(x: Tensor, tables: HashTables) -> Tensor:
    """Hash rows of Hq heads, neighbours of which share the functions of one head of `tables`."""
    groups = x.shape[1] // tables.num_heads
    if groups == 1:
        return tables(x)
    length = x.shape[2]
    joined = x.unflatten(1, (tables.num_heads, groups)).flatten(2, 3)
    return tables(joined).unflatten(3, (groups, length)).movedim(3, 2).flatten(1, 2)


def _closeness(query: Tensor, key: Tensor, family: Family, unit_norm: bool) -> Tensor:
    """Cosine of every pair, or for a distance family the distance: (B, H, Tq, Tk)."""
    if family.measure == "distance":
        squares = (query**2).sum(-1)[..., :, None] + (key**2).sum(-1)[..., None, :]
        squares = squares - 2 * query @ key.transpose(-1, -2)
        # The root's slope at 0 is infinite; a millionth of a distance changes no probability.
        return (squares.clamp(min=0.0) + 1e-12).sqrt()
    if not unit_norm:
        query, key = F.normalize(query, dim=-1, eps=1e-6), F.normalize(key, dim=-1, eps=1e-6)
    return query @ key.transpose(-1, -2)


def _kernel(closeness: Tensor, family: Family, exponent: float | Tensor) -> Tensor:
    """p^exponent for every pair, differentiable."""
    if isinstance(family, Hyperplane) and not isinstance(exponent, Tensor):
        kernel: Any = _HyperplaneKernel.apply(closeness, float(exponent))
        return kernel
    if family.measure == "distance":
        return family.collision_probability(closeness) ** exponent
    angle = torch.acos((closeness * COSINE_SCALE).clamp(-COSINE_SCALE, COSINE_SCALE))
    # A probability of 0 has an infinite slope under exponents below 1.
    return family.collision_probability(angle).clamp(min=1e-12) ** exponent


def _with_gradient(
    closeness: Tensor,
    counts: Tensor,
    visible: Tensor | None,
    tables: HashTables,
    exponent: float | Tensor,
) -> Tensor:
    """The hard counts in value, L p^exponent in gradient."""
    family, scale = tables.family, float(tables.num_tables)
    if isinstance(family, Hyperplane) and not isinstance(exponent, Tensor):
        weights: Any = _HyperplaneCounts.apply(closeness, counts, visible, float(exponent), scale)
        return weights
    soft = _kernel(closeness, family, exponent) * scale
    if visible is not None:
        soft = soft * visible
    return counts + (soft - soft.detach())


def _lag(query: Tensor, key: Tensor) -> Tensor:
    """How far key j lies behind query i when aligned at the end; (Tq, Tk), 0 for the future."""
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    last = torch.arange(num_queries, device=query.device) + (num_keys - num_queries)
    lag = last[:, None] - torch.arange(num_keys, device=query.device)
    return lag.clamp(min=0).to(query.dtype)


def _relative_recency(counts: Tensor, decay: Tensor, lag: Tensor) -> Tensor:
    """exp(-decay (lag - lag of the latest colliding key)), at most 1."""
    if counts.shape[-1] == 0:
        return torch.exp(-decay[:, None, None] * lag)
    with torch.no_grad():
        far = torch.full_like(counts, math.inf)
        latest = torch.where(counts > 0, lag, far).amin(-1, keepdim=True)
        latest = torch.where(latest.isfinite(), latest, torch.zeros_like(latest))
    # The factor exp(decay * latest) cancels between sum and total, so it needs no gradient.
    return torch.exp(-decay[:, None, None] * (lag - latest).clamp(min=0.0))


def _hyperplane_slope(cosine: Tensor, log_agree: Tensor, exponent: float, scale: float) -> Tensor:
    """d/d cosine of scale * p^exponent, p = 1 - acos(0.9995 cosine) / pi."""
    slope = torch.rsqrt(1.0 - _inside(cosine).square_())
    slope *= scale * exponent * COSINE_SCALE / math.pi
    return slope.mul_(torch.exp_(log_agree * (exponent - 1.0)))


def _log_agree(cosine: Tensor) -> Tensor:
    return torch.log1p_(torch.acos_(_inside(cosine)).mul_(-1.0 / math.pi))


def _inside(cosine: Tensor) -> Tensor:
    """Scale off the ends of [-1, 1]; rounded unit rows may have a cosine beyond them."""
    return (cosine * COSINE_SCALE).clamp_(-COSINE_SCALE, COSINE_SCALE)


class _HyperplaneKernel(torch.autograd.Function):
    """p^exponent with its slope in closed form: a third of the passes autograd would make."""

    @staticmethod
    def forward(ctx: Any, cosine: Tensor, exponent: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        log_agree = _log_agree(cosine)
        ctx.save_for_backward(cosine, log_agree)
        ctx.exponent = exponent
        return torch.exp(log_agree * exponent)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        cosine, log_agree = ctx.saved_tensors
        return _hyperplane_slope(cosine, log_agree, ctx.exponent, 1.0).mul_(grad), None


class _HyperplaneCounts(torch.autograd.Function):
    """Hard counts forward, the slope of L p^exponent backward; p is not needed before that."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        cosine: Tensor,
        counts: Tensor,
        visible: Tensor | None,
        exponent: float,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(cosine, visible)
        ctx.exponent, ctx.scale = exponent, scale
        return counts.view_as(counts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        cosine, visible = ctx.saved_tensors
        slope = _hyperplane_slope(cosine, _log_agree(cosine), ctx.exponent, ctx.scale)
        slope.mul_(grad)
        if visible is not None:
            slope.mul_(visible)
        return slope, None, None, None, None


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: HashTables,
    enable_gqa: bool,
    exponent: float | Tensor,
) -> None:
    checks.check_agreement(query, key, value, enable_gqa)
    checks.check_one_dtype(query, key, value)
    if tables.family.measure == "equality":
        raise ValueError(
            f"{tables.family} has no gradient; accepted: hyperplane, cross_polytope, euclidean"
        )
    if (tables.num_heads, tables.family.dim) != (key.shape[1], key.shape[3]):
        raise ValueError(
            f"tables are for {tables.num_heads} heads of width {tables.family.dim}, "
            f"got key {tuple(key.shape)}"
        )
    if not isinstance(exponent, Tensor) and not 0.0 < exponent < math.inf:
        raise ValueError(f"exponent must be positive and finite, got {exponent!r}")


def _check_options(
    query: Tensor, key: Tensor, is_causal: bool, key_mask: Tensor | None, decay: Tensor | None
) -> Tensor | None:
    """The mask as (B, Tk)."""
    checks.check_flag("is_causal", is_causal)
    checks.check_decay(decay, query, is_causal)
    return checks.checked_mask(key_mask, query, key)
