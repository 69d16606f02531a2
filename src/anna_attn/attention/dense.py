"""All pairs compared: faster than tables for few tokens."""

import torch
from jaxtyping import Float
from torch import Tensor

from .buckets import Collisions, narrow
from .causal import pair_counts, visible

PAIRS_AT_A_TIME = 1 << 20


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
    query_codes = narrow(collisions.query_codes, collisions.num_buckets)
    key_codes = narrow(collisions.key_codes, collisions.num_buckets)
    allowed = None
    if collisions.order is not None:
        allowed = visible(collisions.order, slice(0, num_queries), slice(0, num_keys), value.device)
    step = max(1, PAIRS_AT_A_TIME // max(1, num_queries * num_keys))
    for h in range(0, heads, step):
        block = slice(h, h + step)
        pairs = pair_counts(query_codes[block], key_codes[block])
        if allowed is not None:
            pairs *= allowed
        weights = pairs.to(value.dtype)
        torch.matmul(weights, value[block], out=sums[block])
        totals[block] = weights.sum(-1)
    return sums, totals
