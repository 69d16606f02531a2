"""What a collision problem is: codes in buckets, who may see whom, and its transpose."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Order:
    """Causal order of rows: key row j stands at j // key_group, query row i at i // query_group +
    shift, and a query sees the keys that do not stand after it.

    Rows of one group (query heads that share a key head) stand at the same position.
    """

    query_group: int
    key_group: int
    shift: int

    def transposed(self, num_queries: int, num_keys: int) -> "Order":
        """The order seen backwards in time, queries and keys exchanged."""
        shift = num_queries // self.query_group + self.shift - num_keys // self.key_group
        return Order(self.key_group, self.query_group, shift)


@dataclass(frozen=True)
class Collisions:
    """Codes of one set of heads, flattened over the batch.

    Args:
        query_codes (H, L, Tq), key_codes (H, L, Tk): int64 in [0, num_buckets).
        order: None = every query sees every key.
        method: "dense" compares all pairs, "tables" is Algorithm 1, "one_table" Algorithm 2.
    """

    query_codes: Tensor
    key_codes: Tensor
    num_buckets: int
    order: Order | None
    method: str

    @property
    def num_queries(self) -> int:
        """Query rows, all heads of a group counted."""
        return self.query_codes.shape[-1]

    @property
    def num_keys(self) -> int:
        """Key rows."""
        return self.key_codes.shape[-1]

    @property
    def num_tables(self) -> int:
        """L."""
        return self.key_codes.shape[1]

    def transposed(self) -> "Collisions":
        """Queries and keys exchanged, time reversed when causal: the operator's transpose."""
        if self.order is None:
            return replace(self, query_codes=self.key_codes, key_codes=self.query_codes)
        order = self.order.transposed(self.num_queries, self.num_keys)
        return replace(
            self,
            query_codes=self.key_codes.flip(-1),
            key_codes=self.query_codes.flip(-1),
            order=order,
        )

    def tables(self, start: int, stop: int) -> "Collisions":
        """The same problem for some of its tables."""
        block = slice(start, stop)
        return replace(
            self, query_codes=self.query_codes[:, block], key_codes=self.key_codes[:, block]
        )

    def heads(self, start: int, stop: int) -> "Collisions":
        """The same problem for some of its heads."""
        block = slice(start, stop)
        return replace(self, query_codes=self.query_codes[block], key_codes=self.key_codes[block])

    def in_time(self, rows: Tensor) -> Tensor:
        """Rows of a transposed problem, or back: reversed when causal."""
        return rows if self.order is None else rows.flip(-2)


def to_buckets(
    query_codes: Int[Tensor, "H L Tq"],
    key_codes: Int[Tensor, "H L Tk"],
    num_buckets: int | None,
    live_keys: Bool[Tensor, "H Tk"] | None,
) -> tuple[Int[Tensor, "H L Tq"], Int[Tensor, "H L Tk"], int]:
    """Codes as bucket ids whose number is bounded by the number of tokens.

    Codes that are unbounded, or of more values than twice the tokens, are ranked among the keys'
    codes of their table, so memory follows the tokens. Keys that are not live go to a bucket that
    no query reads, queries that no key shares a code with to a bucket that no key is in.

    The number of buckets depends on shapes alone: tables are summed in groups that fit the memory
    for them, and an order of summation that followed the codes would let a later key, or another
    row of the batch, change an output's last bit.

    Cost: O(H L (Tq + Tk) log Tk) time where codes are ranked, else O(H L Tk).
    """
    tokens = query_codes.shape[-1] + key_codes.shape[-1]
    if num_buckets is None or num_buckets > max(2 * tokens, 256):
        query_codes, key_codes, num_buckets = _rank(query_codes, key_codes)
    if live_keys is not None:
        key_codes = torch.where(live_keys[:, None], key_codes, num_buckets)
        num_buckets += 1
    return query_codes, key_codes, num_buckets


def _rank(
    query_codes: Int[Tensor, "H L Tq"], key_codes: Int[Tensor, "H L Tk"]
) -> tuple[Int[Tensor, "H L Tq"], Int[Tensor, "H L Tk"], int]:
    num_keys = key_codes.shape[-1]
    if num_keys == 0:
        return torch.zeros_like(query_codes), key_codes, 1
    ordered, order = torch.sort(key_codes, dim=-1)
    starts = torch.zeros_like(ordered)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    ranks = starts.cumsum(-1)
    ranked_keys = torch.zeros_like(key_codes).scatter_(-1, order, ranks)
    place = torch.searchsorted(ordered, query_codes.contiguous()).clamp_(max=num_keys - 1)
    found = ordered.gather(-1, place) == query_codes
    return torch.where(found, ranks.gather(-1, place), num_keys), ranked_keys, num_keys + 1
