"""All pairs compared: faster than tables for few tokens."""

from jaxtyping import Float
from torch import Tensor

from .buckets import Collisions
from .pairs import PackedCodes, pack, pair_weights, visible

PAIRS_AT_A_TIME = 1 << 17
"""Counts held at a time: 1 MiB of words stays in a core's cache."""


def dense_sums(
    value: Float[Tensor, "H Tk Dv"], collisions: Collisions
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """As `full_sums` or `causal_sums`, by counting the collisions of every pair.

    Cost: O(H Tq Tk (L + Dv)) time; memory is bounded by taking some heads at a time.
    """
    heads, num_keys, width = value.shape
    num_queries = collisions.num_queries
    sums = value.new_zeros(heads, num_queries, width)
    totals = value.new_zeros(heads, num_queries)
    packed = pack(collisions)
    queries, keys = slice(0, num_queries), slice(0, num_keys)
    allowed = None
    if collisions.order is not None:
        allowed = visible(collisions.order, queries, keys, value.device)
    step = max(1, PAIRS_AT_A_TIME // max(1, num_queries * num_keys))
    for h in range(0, heads, step):
        block = slice(h, h + step)
        part = PackedCodes(packed.query[block], packed.key[block], packed.lane_bits)
        weights = pair_weights(part, queries, keys, allowed, value.dtype)
        sums[block] = weights @ value[block]
        totals[block] = weights.sum(-1)
    return sums, totals
