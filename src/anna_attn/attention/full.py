"""Every query sees every key: fill the tables, then read them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from .buckets import Collisions

STATE_ELEMENTS = 1 << 21
"""Table entries held at a time (8 MiB in float32), so that memory is O(N) at any L."""

BLOCK_TOKENS = 1 << 14
"""Heads are taken together up to this many rows: small problems then cost few calls."""

NUMPY_SORT_BUCKETS = 1 << 16
"""numpy sorts 16-bit words by radix, 25 times faster than torch.sort (0.6 against 15 ms for
16 x 16,384 codes on one Zen 4 core)."""


def full_sums(
    value: Float[Tensor, "H Tk Dv"], collisions: Collisions
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """Sums of the values in the queries' buckets over all tables, and how many they are.

    Bucket sums are bags of an order sorted by bucket, reads are bags of one bucket per table; both
    run in `embedding_bag`, which torch has tuned, in a fixed order of summation.

    Cost: O(H L (Tq + Tk) Dv) time.
    Source: Liu et al. 2025, Algorithm 1 (one table at a time: Remark 3.5's O(N m) memory).
    """
    heads, num_keys, width = value.shape
    num_queries = collisions.num_queries
    sums = value.new_zeros(heads, num_queries, width)
    totals = value.new_zeros(heads, num_queries)
    if sums.numel() == 0 or num_keys == 0:
        return sums, totals
    step, step_tables = block_sizes(collisions, width)
    step = max(1, min(step, BLOCK_TOKENS // num_keys))
    for h in range(0, heads, step):
        block = collisions.heads(h, h + step)
        for t in range(0, collisions.num_tables, step_tables):
            part = block.tables(t, t + step_tables)
            state, counts = fill(value[h : h + step], part.key_codes, collisions.num_buckets)
            bags = flat_buckets(part.query_codes, collisions.num_buckets).transpose(1, 2)
            read_sums, read_counts = read(state, counts, bags)
            sums[h : h + step] += read_sums
            totals[h : h + step] += read_counts
    return sums, totals


def block_sizes(collisions: Collisions, width: int) -> tuple[int, int]:
    """Heads and tables to take together within STATE_ELEMENTS.

    Depends on the shape of one head only, so that the order of summation does too.
    """
    per_table = max(1, collisions.num_buckets * width)
    step_tables = max(1, min(collisions.num_tables, STATE_ELEMENTS // per_table))
    if collisions.method == "one_table":
        step_tables = 1
    return max(1, STATE_ELEMENTS // (per_table * step_tables)), step_tables


def fill(
    value: Float[Tensor, "H Tk Dv"], key_codes: Int[Tensor, "H L Tk"], num_buckets: int
) -> tuple[Float[Tensor, "B Dv"], Float[Tensor, "B"]]:
    """Sum and count of the values in each bucket, B = H L num_buckets, values in order of time."""
    heads, num_tables, num_keys = key_codes.shape
    flat = flat_buckets(key_codes, num_buckets)
    counts = torch.bincount(flat.flatten(), minlength=heads * num_tables * num_buckets)
    offsets = counts.cumsum(0) - counts
    order = _argsort(key_codes, num_buckets)
    order = order + torch.arange(heads, device=order.device)[:, None, None] * num_keys
    rows = value.reshape(heads * num_keys, value.shape[2])
    state = embedding_bag(order.flatten(), rows, offsets, mode="sum")
    return state, counts.to(value.dtype)


def read(
    state: Float[Tensor, "B Dv"], counts: Float[Tensor, "B"], bags: Int[Tensor, "H Tq L"]
) -> tuple[Float[Tensor, "H Tq Dv"], Float[Tensor, "H Tq"]]:
    """What the queries' buckets hold, summed over tables."""
    shape = bags.shape[:2]
    flat = bags.flatten(0, 1)
    sums = embedding_bag(flat, state, mode="sum")
    totals = embedding_bag(flat, counts[:, None], mode="sum")
    return sums.unflatten(0, shape), totals[:, 0].unflatten(0, shape)


def flat_buckets(codes: Int[Tensor, "H L T"], num_buckets: int) -> Int[Tensor, "H L T"]:
    """Bucket ids in one row of all tables of all heads."""
    heads, num_tables, _ = codes.shape
    first = torch.arange(heads * num_tables, device=codes.device).view(heads, num_tables, 1)
    return codes + first * num_buckets


def _argsort(codes: Int[Tensor, "H L T"], num_buckets: int) -> Int[Tensor, "H L T"]:
    if codes.device.type == "cpu" and num_buckets <= NUMPY_SORT_BUCKETS:
        words = codes.numpy().astype("uint16")
        return torch.from_numpy(words.argsort(axis=-1, kind="stable"))
    return torch.sort(codes, dim=-1, stable=True).indices
