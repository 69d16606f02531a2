"""Queries see the past only: walk through time, reading before filling."""

from jaxtyping import Float
from torch import Tensor

from .buckets import Collisions, Order
from .full import block_sizes, fill, flat_buckets, read
from .pairs import pack, pair_weights, visible

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
    step, step_tables = block_sizes(collisions, width)
    for h in range(0, heads, step):
        block = collisions.heads(h, h + step)
        for t in range(0, collisions.num_tables, step_tables):
            part = block.tables(t, t + step_tables)
            _walk(value[h : h + step], part, sums[h : h + step], totals[h : h + step])
    return sums, totals


def chunks(order: Order, num_queries: int, num_keys: int) -> list[tuple[slice, slice]]:
    """Positions with queries, in pieces: (query rows, key rows) of each."""
    start = max(order.shift, 0)
    stop = order.shift + num_queries // order.query_group
    pieces = []
    for first in range(start, stop, CHUNK):
        last = min(first + CHUNK, stop)
        queries = slice(
            (first - order.shift) * order.query_group, (last - order.shift) * order.query_group
        )
        keys = slice(min(first * order.key_group, num_keys), min(last * order.key_group, num_keys))
        pieces.append((queries, keys))
    return pieces


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
    bags = flat_buckets(collisions.query_codes, num_buckets).transpose(1, 2).contiguous()
    places = flat_buckets(collisions.key_codes, num_buckets).transpose(1, 2).contiguous()
    packed = pack(collisions)
    pieces = chunks(order, collisions.num_queries, num_keys)
    allowed = visible(order, *pieces[0], value.device)
    for queries, keys in pieces:
        read_sums, read_counts = read(state, counts, bags[:, queries])
        sums[:, queries] += read_sums
        totals[:, queries] += read_counts
        num_new = keys.stop - keys.start
        if num_new == 0:
            continue
        own = allowed[: queries.stop - queries.start, :num_new]
        weights = pair_weights(packed, queries, keys, own, value.dtype)
        sums[:, queries] += weights @ value[:, keys]
        totals[:, queries] += weights.sum(-1)
        place = places[:, keys].flatten()
        rows = value[:, keys, None].expand(-1, -1, collisions.num_tables, -1)
        state.index_add_(0, place, rows.reshape(place.shape[0], width))
        counts.index_add_(0, place, counts.new_ones(place.shape))
