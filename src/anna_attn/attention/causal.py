"""Queries see the past only: walk through time, reading before filling."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .buckets import Collisions, Order, narrow
from .full import STATE_ELEMENTS, fill, flat_buckets, read

CHUNK = 64
"""Positions taken together. Inside, all pairs are compared; 64 balances that against call costs."""


def causal_sums(
    value: Float[Tensor, "H Tk Dv"], collisions: Collisions
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """As `full_sums`, of the keys that do not stand after the query.

    Chunks of positions in order: a chunk reads the tables as earlier chunks left them, adds its own
    keys by comparing pairs, then fills the tables. No sum ever contains a later value, so a change
    of the future leaves every earlier bit as it was, which differences of prefix sums do not.

    Cost: O(H L N (Dv + CHUNK)) time.
    Source: Liu et al. 2025, Algorithm 1, with the causal mask of section 3.
    """
    heads, num_keys, width = value.shape
    sums = value.new_zeros(heads, collisions.num_queries, width)
    totals = value.new_zeros(heads, collisions.num_queries)
    if sums.numel() == 0 or num_keys == 0:
        return sums, totals
    per_table = collisions.num_buckets * width
    step_tables = max(1, min(collisions.num_tables, STATE_ELEMENTS // per_table))
    if collisions.method == "one_table":
        step_tables = 1
    step = max(1, STATE_ELEMENTS // (per_table * step_tables))
    for h in range(0, heads, step):
        block = collisions.heads(h, h + step)
        for t in range(0, collisions.num_tables, step_tables):
            part = block.tables(t, t + step_tables)
            _walk(value[h : h + step], part, sums[h : h + step], totals[h : h + step])
    return sums, totals


def chunks(order: Order, num_queries: int, num_keys: int) -> list[tuple[slice, slice, slice]]:
    """Positions with queries, in pieces: (query rows, key rows, positions) of each."""
    start = max(order.shift, 0)
    stop = order.shift + num_queries // order.query_group
    pieces = []
    for first in range(start, stop, CHUNK):
        last = min(first + CHUNK, stop)
        queries = slice(
            (first - order.shift) * order.query_group, (last - order.shift) * order.query_group
        )
        keys = slice(min(first * order.key_group, num_keys), min(last * order.key_group, num_keys))
        pieces.append((queries, keys, slice(first, last)))
    return pieces


def visible(order: Order, queries: slice, keys: slice, device: torch.device) -> Bool[Tensor, "Q K"]:
    """Which of these rows see which, by their positions."""
    query_rows = torch.arange(queries.start, queries.stop, device=device)
    key_rows = torch.arange(keys.start, keys.stop, device=device)
    position = query_rows // order.query_group + order.shift
    return key_rows // order.key_group <= position[:, None]


def pair_counts(
    query_codes: Int[Tensor, "H L Q"], key_codes: Int[Tensor, "H L K"]
) -> Int[Tensor, "H Q K"]:
    """Tables in which each pair shares a code."""
    heads, num_tables, num_queries = query_codes.shape
    dtype = torch.uint8 if num_tables <= 255 else torch.int32
    device = query_codes.device
    counts = torch.zeros(heads, num_queries, key_codes.shape[-1], dtype=dtype, device=device)
    for t in range(num_tables):
        counts += query_codes[:, t, :, None] == key_codes[:, t, None, :]
    return counts


def _walk(
    value: Float[Tensor, "H Tk Dv"],
    collisions: Collisions,
    sums: Float[Tensor, "H Tq Dv"],
    totals: Float[Tensor, "H Tq"],
) -> None:
    """Add this block's sums and counts to `sums` and `totals`."""
    order, num_buckets = collisions.order, collisions.num_buckets
    assert order is not None
    num_keys, width = value.shape[1:]
    prefix = min(max(order.shift, 0) * order.key_group, num_keys)
    state, counts = fill(value[:, :prefix], collisions.key_codes[..., :prefix], num_buckets)
    # 32-bit indices: torch then adds rows one by one, in order, without starting its threads, which
    # for so few rows cost more than they save.
    places = flat_buckets(collisions.key_codes, num_buckets).to(torch.int32)
    query_codes = narrow(collisions.query_codes, num_buckets)
    key_codes = narrow(collisions.key_codes, num_buckets)
    for queries, keys, _ in chunks(order, collisions.num_queries, num_keys):
        read_sums, read_counts = read(
            state, counts, collisions.query_codes[..., queries], num_buckets
        )
        sums[:, queries] += read_sums
        totals[:, queries] += read_counts
        if keys.start == keys.stop:
            continue
        pairs = pair_counts(query_codes[..., queries], key_codes[..., keys])
        pairs *= visible(order, queries, keys, pairs.device)
        weights = pairs.to(value.dtype)
        sums[:, queries] += weights @ value[:, keys]
        totals[:, queries] += weights.sum(-1)
        place = places[..., keys].flatten()
        rows = value[:, None, keys].expand(-1, collisions.num_tables, -1, -1).reshape(-1, width)
        state.index_add_(0, place, rows)
        counts.index_add_(0, place, counts.new_ones(place.shape))
