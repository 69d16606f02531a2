"""Recency weights exp(-decay (i - j)), in linear time and without overflow at any length."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from .buckets import Collisions
from .causal import chunks
from .full import block_sizes, flat_buckets
from .pairs import pack, visible

NEVER = float("-inf")


class Times(NamedTuple):
    """When rows count as having happened: the weight of a pair is exp(-decay (query - key)).

    query (H, Tq), key (H, Tk) float64; query >= key for every pair that collides.
    """

    query: Tensor
    key: Tensor


def decayed_average(
    value: Float[Tensor, "H Tk Dv"], collisions: Collisions, decay: Float[Tensor, "H"]
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """Averages weighted by exp(-decay (i - j)), and totals that are 0 where nothing is hit.

    A weight relative to the query's latest hit differs from the definition's by a factor that the
    average cancels; the latest hit then weighs 1, so that no total is 0/0 however old it is.
    """
    if collisions.num_keys == 0 or value.shape[0] == 0:
        empty = value.new_zeros(value.shape[0], collisions.num_queries)
        # Nothing times something keeps value and decay in the graph.
        return empty[..., None] * decay[:, None, None] + value.sum(1, keepdim=True), empty
    order = collisions.order
    assert order is not None
    position = torch.arange(collisions.num_keys, device=value.device) // order.key_group
    key_time = position.to(torch.float64).expand(value.shape[0], -1)
    latest = latest_hits(collisions, key_time)
    # Queries that hit nothing have no latest hit; any finite time does, their sums are 0.
    times = Times(latest.clamp(min=0.0), key_time)
    ones = value.new_ones(*value.shape[:2], 1)
    rows = torch.cat([value, ones], -1)
    sums = _sums_by_blocks(rows, decay, collisions, times)
    totals = sums[..., -1]
    missed = latest == NEVER
    result = sums[..., :-1] / totals.masked_fill(missed, 1.0)[..., None]
    return result, totals.detach().masked_fill(missed, 0.0)


def _sums_by_blocks(
    rows: Float[Tensor, "H Tk R"], decay: Float[Tensor, "H"], collisions: Collisions, times: Times
) -> Float[Tensor, "H Tq R"]:
    """`decayed_sums` over all tables, some at a time."""
    step, step_tables = block_sizes(collisions, rows.shape[2])
    parts = []
    for h in range(0, rows.shape[0], step):
        own = slice(h, h + step)
        block = collisions.heads(h, h + step)
        then = Times(times.query[own], times.key[own])
        part = rows.new_zeros(())
        for t in range(0, collisions.num_tables, step_tables):
            some = block.tables(t, t + step_tables)
            part = part + decayed_sums(rows[own], decay[own], some, then)
        parts.append(part)
    return torch.cat(parts)


def decayed_sums(
    value: Float[Tensor, "H Tk Dv"],
    decay: Float[Tensor, "H"],
    collisions: Collisions,
    times: Times,
) -> Float[Tensor, "H Tq Dv"]:
    """sum_j c_ij exp(-decay (time_i - time_j)) value_j, differentiable in value and decay."""
    result = _DecayedSums.apply(value, decay, collisions, times)
    assert isinstance(result, Tensor)
    return result


class _DecayedSums(torch.autograd.Function):
    """Its transpose exchanges roles and turns time round: times change their sign."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, value: Tensor, decay: Tensor, collisions: Collisions, times: Times
    ) -> Tensor:
        ctx.save_for_backward(value, decay)
        ctx.collisions, ctx.times = collisions, times
        with torch.autocast(value.device.type, enabled=False):
            return _walk(value, decay, collisions, times)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        value, decay = ctx.saved_tensors
        collisions, times = ctx.collisions, ctx.times
        grad_value = grad_decay = None
        if ctx.needs_input_grad[0]:
            back = collisions.transposed()
            turned = Times(-times.key.flip(-1), -times.query.flip(-1))
            grad_value = decayed_sums(grad.flip(-2), decay, back, turned).flip(-2)
        if ctx.needs_input_grad[1]:
            # d/d decay of a weight is -(time_i - time_j) times it. The difference of two sums
            # cancels their leading digits at large times, hence float64.
            exact, decay64 = value.double(), decay.double()
            moment = decayed_sums(exact * times.key[..., None], decay64, collisions, times)
            plain = decayed_sums(exact, decay64, collisions, times)
            slope = moment - times.query[..., None] * plain
            grad_decay = (grad.double() * slope).sum((-1, -2)).to(decay.dtype)
        return grad_value, grad_decay, None, None


def latest_hits(collisions: Collisions, key_time: Tensor) -> Tensor:
    """(H, Tq) time of the latest key each query collides with; -inf where there is none."""
    order, num_buckets = collisions.order, collisions.num_buckets
    assert order is not None
    heads, num_tables, num_keys = collisions.key_codes.shape
    latest = key_time.new_full((heads * num_tables * num_buckets,), NEVER)
    result = key_time.new_full((heads, collisions.num_queries), NEVER)
    places = flat_buckets(collisions.key_codes, num_buckets)
    reads = flat_buckets(collisions.query_codes, num_buckets)
    packed = pack(collisions)
    done = 0
    for queries, keys in chunks(order, collisions.num_queries, num_keys):
        done = _mark(latest, places, key_time, done, keys.start)
        result[:, queries] = latest[reads[..., queries]].amax(1)
        if keys.start == keys.stop:
            continue
        hit = packed.counts(queries, keys) > 0
        hit &= visible(order, queries, keys, hit.device)
        times = torch.where(hit, key_time[:, None, keys], NEVER).amax(-1)
        result[:, queries] = torch.maximum(result[:, queries], times)
    return result


def _mark(latest: Tensor, places: Tensor, key_time: Tensor, start: int, stop: int) -> int:
    """Enter keys start to stop into their buckets' latest times."""
    if stop > start:
        place = places[..., start:stop]
        time = key_time[:, None, start:stop].expand_as(place)
        latest.scatter_reduce_(0, place.flatten(), time.flatten(), "amax")
    return max(start, stop)


def _walk(value: Tensor, decay: Tensor, collisions: Collisions, times: Times) -> Tensor:
    """Tables hold sums relative to each bucket's latest time: nothing grows, and what fades to 0
    is nothing beside the latest."""
    order, num_buckets = collisions.order, collisions.num_buckets
    assert order is not None
    heads, num_tables, num_keys = collisions.key_codes.shape
    width = value.shape[-1]
    result = value.new_zeros(heads, collisions.num_queries, width)
    state = value.new_zeros(heads * num_tables * num_buckets, width)
    latest = times.key.new_full((state.shape[0],), NEVER)
    places = flat_buckets(collisions.key_codes, num_buckets)
    reads = flat_buckets(collisions.query_codes, num_buckets)
    packed = pack(collisions)
    rate = decay.to(torch.float64)[:, None]
    done = 0
    for queries, keys in chunks(order, collisions.num_queries, num_keys):
        while done < keys.start:
            upto = min(keys.start, done + (keys.stop - keys.start or num_keys))
            _enter(
                state,
                latest,
                places[..., done:upto],
                value[:, done:upto],
                times.key[:, done:upto],
                rate,
            )
            done = upto
        bags = reads[..., queries].transpose(1, 2).reshape(-1, num_tables)
        since = times.query[:, queries].reshape(-1, 1) - latest[bags]
        per_row = rate.expand(heads, queries.stop - queries.start).reshape(-1, 1)
        weights = _fade(per_row, since).to(value.dtype)
        part = embedding_bag(bags, state, per_sample_weights=weights, mode="sum")
        result[:, queries] = part.unflatten(0, (heads, -1))
        if keys.start == keys.stop:
            continue
        pairs = packed.counts(queries, keys)
        pairs *= visible(order, queries, keys, pairs.device)
        gap = times.query[:, queries, None] - times.key[:, None, keys]
        weights = _fade(rate[..., None], gap.masked_fill(pairs == 0, float("inf")))
        result[:, queries] += (weights * pairs).to(value.dtype) @ value[:, keys]
    return result


def _enter(
    state: Tensor, latest: Tensor, places: Tensor, value: Tensor, time: Tensor, rate: Tensor
) -> None:
    """Add keys to their buckets, whose sums are first brought to their new latest times."""
    place = places.flatten()
    spread = time[:, None].expand_as(places).flatten()
    rates = rate[:, None].expand_as(places).flatten()
    before = latest[place]
    latest.scatter_reduce_(0, place, spread, "amax")
    now = latest[place]
    # Several keys of one bucket write the same row here: the same numbers, whatever the order.
    faded = state[place] * _fade(rates, now - before).to(state.dtype)[:, None]
    state.index_copy_(0, place, faded)
    rows = value[:, None].expand(-1, places.shape[1], -1, -1).reshape(place.shape[0], -1)
    rows = rows * _fade(rates, now - spread).to(state.dtype)[:, None]
    state.index_add_(0, place.to(torch.int32), rows)


def _fade(rate: Tensor, gap: Tensor) -> Tensor:
    """exp(-rate gap), 0 for an infinite gap (a bucket that is empty) even where rate is 0."""
    never = gap == float("inf")
    return torch.exp(-rate * gap.masked_fill(never, 0.0).clamp(min=0.0)).masked_fill(never, 0.0)
