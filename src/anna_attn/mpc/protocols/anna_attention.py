"""One layer of ANNA attention on hashed tokens: a sort and a scan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Key, Layout
from ..primitives.join import HOME, KEY, Join
from .sizes import Sizes


@dataclass(frozen=True)
class AttentionShape:
    """What a token brings.

    Args:
        num_heads, num_tables: H and L.
        code_bits: codes lie in [0, 2^code_bits).
        value_dim: m, words of a value.
        value_bits: values lie in [0, 2^value_bits): fixed point, with an offset for signs.
    """

    num_heads: int
    num_tables: int
    code_bits: int
    value_dim: int
    value_bits: int

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_tables", "code_bits", "value_dim", "value_bits"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def words_per_token(self) -> int:
        """H L codes of the query, H L of the key, H m words of the value."""
        return self.num_heads * (2 * self.num_tables + self.value_dim)

    @property
    def records_per_token(self) -> int:
        """A record and a query for every head and table."""
        return 2 * self.num_heads * self.num_tables

    @property
    def key_bits(self) -> int:
        """Of (head, table, code, kind)."""
        groups = self.num_heads * self.num_tables
        return (groups - 1).bit_length() + self.code_bits + 1


def anna_attention(
    num_tokens: int, tokens_per_machine: int, shape: AttentionShape, *, is_causal: bool = False
) -> Protocol:
    """Average, for every token and head, the values whose keys share a bucket with its query.

    o_i = floor(sum_j c_ij v_j / sum_j c_ij), with c_ij the tables in which query i and key j have
    one code; 0 where nothing is hit. Sums are of integers, so the result is that of the operator
    on fixed-point values, whatever the order.

    A token's machine makes a record (head, table, code; value, 1) and a query (head, table, code)
    for every head and table. They are sorted by head, table and code, records before queries when
    full, in the order of time when causal; one segmented scan of sums and counts hands every query
    its bucket, whole or its past; answers go home, where tables are added up.

    Hashing is local to a token and free in this model, so the input is hashed already: for every
    token the codes of its query (H, L), of its key (H, L), and its value (H, m), in this order.

    Args:
        num_tokens: N.
        tokens_per_machine: g; a machine has to hold its tokens' records.
        shape: of heads, tables, codes and values.
        is_causal: token i sees tokens j <= i.
    Returns: a protocol whose output are the values (N, H, m), flat.
    Cost: ceil(key bits / log2 B) (2 ceil(log_f P) + 1) + 2 ceil(log_f P) + 2 rounds on
        P = ceil(N / g) machines of O(g H L (m + 3)) words, f and B about the root of its records.
    Source: Liu et al. 2025, Theorem 4.2; the scan that serves as the join is ours. Where s is less
        than the H L (m + 3) words of one token, the theorem spreads them over machines; this does
        not.
    """
    per_machine = tokens_per_machine * shape.records_per_token // 2
    homes = Layout(num_tokens * shape.records_per_token // 2, per_machine)
    records = Sizes(num_tokens * shape.records_per_token, 0.5, 2 * per_machine)
    width = shape.value_dim + 1
    join = Join(
        sort=records.sort(2 + width, (Key(KEY, shape.key_bits),)),
        homes=homes,
        width=width,
        combine=np.add,
        identity=np.zeros(width, dtype=np.int64),
        same_key=lambda key: key >> 1,
    )
    tokens = Layout(num_tokens, tokens_per_machine)

    def to_items(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {"items": _items(ids, memory["words"], tokens, shape, is_causal)}, None, None

    def add_tables(ids: np.ndarray, memory: Memory, inbox: Inbox):
        found = memory["found"][..., :width]
        by_table = found.reshape(
            len(ids), tokens_per_machine, shape.num_heads, shape.num_tables, width
        )
        totals = by_table.sum(3)
        return {"output": totals[..., :-1] // np.maximum(totals[..., -1:], 1)}, None, None

    sums = shape.value_bits + max(1, num_tokens).bit_length() + shape.num_tables.bit_length()
    return Protocol(
        name="anna_attention",
        num_machines=tokens.num_machines,
        local_memory=max(join.memory_words, tokens_per_machine * shape.words_per_token),
        word_bits=max(shape.key_bits, sums, (homes.num_items + 1).bit_length()),
        num_words=num_tokens * shape.words_per_token,
        words_per_machine=tokens_per_machine * shape.words_per_token,
        init=lambda ids, words: {"words": words},
        steps=(
            Step("records", to_items),
            *join.steps("items", out="found"),
            Step("add tables", add_tables),
        ),
        output=lambda ids, memory: memory["output"].reshape(len(ids), -1),
        num_outputs=num_tokens * shape.num_heads * shape.value_dim,
    )


def _items(
    ids: np.ndarray, words: np.ndarray, tokens: Layout, shape: AttentionShape, is_causal: bool
) -> np.ndarray:
    """(n, 2 g H L, 3 + m) items of a machine's tokens, in the order of time."""
    heads, tables = shape.num_heads, shape.num_tables
    grid = (len(ids), tokens.per_machine, heads, tables)
    each = words.reshape(len(ids), tokens.per_machine, shape.words_per_token)
    query, key, value = np.split(each, [heads * tables, 2 * heads * tables], axis=2)
    group = np.arange(heads * tables).reshape(heads, tables) << shape.code_bits
    query, key = query.reshape(grid) + group, key.reshape(grid) + group
    value = np.broadcast_to(value.reshape(*grid[:3], 1, shape.value_dim), (*grid, shape.value_dim))
    home = tokens.index(ids)[..., None, None] * heads * tables
    home = home + np.arange(heads * tables).reshape(heads, tables) + 1
    items = np.zeros((*grid[:2], heads, tables, 2, 3 + shape.value_dim), dtype=np.int64)
    items[..., 0, KEY], items[..., 1, KEY] = 2 * key, 2 * query + (not is_causal)
    items[..., 1, HOME] = home
    items[..., 0, 2:-1], items[..., 0, -1] = value, 1
    return np.where(tokens.valid(ids)[..., None, None, None, None], items, 0).reshape(
        len(ids), -1, 3 + shape.value_dim
    )
