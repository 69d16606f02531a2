"""Softmax attention on all pairs: a square of machines, one for each pair of blocks of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..model import LARGEST_WORD_BITS, Inbox, Memory, Protocol, Step
from ..primitives import Line, broadcast, reduce


@dataclass(frozen=True)
class SoftmaxShape:
    """What a token brings, and how scores become weights.

    Args:
        num_heads: H.
        head_dim: D, words of a query and of a key.
        value_dim: m, words of a value.
        input_bits: b; a word w of a query or key lies in [0, 2^b) and stands for w - 2^(b - 1).
        value_bits: values lie in [0, 2^value_bits): fixed point, with an offset for signs.
        weight_bits: F; the largest weight of a query is 2^F.
        scale: of a dot product of such integers before the exponential.
    Raises: ValueError for sizes below 1, or a scale that is negative or not finite.
    """

    num_heads: int
    head_dim: int
    value_dim: int
    input_bits: int
    value_bits: int
    weight_bits: int
    scale: float

    def __post_init__(self) -> None:
        sizes = ("num_heads", "head_dim", "value_dim", "input_bits", "value_bits", "weight_bits")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (math.isfinite(self.scale) and self.scale >= 0.0):
            raise ValueError(f"scale must be finite and >= 0, got {self.scale!r}")

    @property
    def words_per_token(self) -> int:
        """H D words of the query, H D of the key, H m of the value."""
        return self.num_heads * (2 * self.head_dim + self.value_dim)

    @property
    def score_offset(self) -> int:
        """D 2^(2 b - 2) + 1: added to a score it gives a word above 0, which means "not seen"."""
        return self.head_dim * (1 << 2 * (self.input_bits - 1)) + 1

    def signed(self, words: np.ndarray) -> np.ndarray:
        """The integers that words of queries and keys stand for."""
        return words - (1 << self.input_bits - 1)

    def weights(self, gap: np.ndarray) -> np.ndarray:
        """floor(2^F exp(-scale gap)) of integers gap >= 0."""
        with np.errstate(over="ignore"):
            fall = gap * self.scale
        # From F on the floor is 0, as 2 < e: no exponential that underflows is taken.
        fall = np.minimum(fall, float(self.weight_bits))
        return np.floor(np.exp(-fall) * 2.0**self.weight_bits).astype(np.int64)


def softmax_attention(
    num_tokens: int,
    tokens_per_machine: int,
    shape: SoftmaxShape,
    *,
    is_causal: bool = False,
    fan_in: int = 2,
) -> Protocol:
    """Average, for every token and head, all values by weights that are exponentials of scores.

    With integers q_i, k_j, scores s_ij = q_i . k_j and M_i = max_j s_ij over what token i sees:
    w_ij = floor(2^F exp(-scale (M_i - s_ij))) and o_i = floor(sum_j w_ij v_j / sum_j w_ij). The
    best key has the weight 2^F, so nothing is divided by 0. Sums are of integers, so the result is
    that of a plain computation on all pairs, word for word, whatever the order.

    Machines form a square of n x n; machine (a, b) has the number a n + b and works on the pairs of
    query block a and key block b. Token block b arrives on machine (0, b). Keys and values go down
    the columns; queries go to (a, 0) and along the rows. Each row finds its queries' best scores by
    a tree and tells all its machines, adds up weights and weighted values by another tree at
    (a, 0), and sends the answers to (0, a). When causal, the pairs above the diagonal are left out
    and their machines add nothing.

    Args:
        num_tokens: N.
        tokens_per_machine: g, tokens of a block.
        shape: of heads, queries, keys and values. For every token the input has its query (H, D),
            its key (H, D) and its value (H, m), in this order.
        is_causal: token i sees tokens j <= i.
        fan_in: f of the trees; a larger one than n counts as n.
    Returns: a protocol whose output are the values (N, H, m), flat.
    Cost: 5 ceil(log_f n) + 2 rounds, constant where f = N^delta, on n^2 machines, n = ceil(N / g),
        of max(g H (2 D + m + 2), 2 g H (m + 1), (f - 1)(g H (D + m) + 1)) words.
    Raises: ValueError for sizes below 1, a fan-in below 2, or scores or sums above 62 bits; in a
        run, for queries, keys or values out of range.
    Source: the baseline of Liu et al. 2025, Theorem 4.2: Sections 1.1 and 4.2 give standard
        transformers O(L) rounds, O(N^2) machines and O(N^(eps + delta)) words, from Sanford et al.
        2024. The square, its trees and the integer weights are ours, and so is taking g tokens a
        machine, which saves a factor g^2. The maximum takes a tree of its own where a running one
        would do, because rescaled integers would depend on the order.
    """
    if num_tokens < 0:
        raise ValueError(f"num_tokens must be at least 0, got {num_tokens}")
    if tokens_per_machine < 1:
        raise ValueError(f"tokens_per_machine must be at least 1, got {tokens_per_machine}")
    if fan_in < 2:
        raise ValueError(f"fan_in must be at least 2, got {fan_in}")
    side = max(1, -(-num_tokens // tokens_per_machine))
    square = _Square(num_tokens, tokens_per_machine, side, shape, is_causal)
    # No node of a line of n machines has more than n children.
    fan_in = min(fan_in, max(2, side))
    return Protocol(
        name="softmax_attention",
        num_machines=side * side,
        local_memory=square.memory_words(fan_in),
        word_bits=_word_bits(num_tokens, shape),
        num_words=num_tokens * shape.words_per_token,
        words_per_machine=tokens_per_machine * shape.words_per_token,
        init=square.receive_input,
        steps=square.steps(fan_in),
        output=lambda ids, memory: memory["output"],
        num_outputs=num_tokens * shape.num_heads * shape.value_dim,
    )


def _word_bits(num_tokens: int, shape: SoftmaxShape) -> int:
    """Bits of inputs, scores and sums.

    Raises: ValueError where scores or sums do not fit in 62.
    """
    scores = (2 * shape.score_offset - 1).bit_length()
    if scores > LARGEST_WORD_BITS:
        raise ValueError(
            f"scores need {scores} bits: head_dim {shape.head_dim}, queries and keys of "
            f"{shape.input_bits}; accepted: {LARGEST_WORD_BITS}"
        )
    sums = shape.weight_bits + shape.value_bits + num_tokens.bit_length()
    if sums > LARGEST_WORD_BITS:
        raise ValueError(
            f"sums need {sums} bits: weights of {shape.weight_bits}, values of "
            f"{shape.value_bits}, {num_tokens} tokens; accepted: {LARGEST_WORD_BITS}"
        )
    return max(shape.input_bits, scores, sums)


def _check_words(what: str, words: np.ndarray, bits: int) -> None:
    if words.size and int(words.max()) >= 1 << bits:
        raise ValueError(f"{what} must lie in [0, 2^{bits}), got {words.max()}")


@dataclass(frozen=True)
class _Square:
    """What machine (a, b) = a n + b does.

    Fields have a row for every machine of the square, so few are held at once, and scores, which
    cost nothing to compute again, are never held: one key of the block is taken after another.
    """

    num_tokens: int
    per_machine: int
    side: int
    shape: SoftmaxShape
    is_causal: bool

    @property
    def queries(self) -> int:
        """g H: queries of a block, all heads."""
        return self.per_machine * self.shape.num_heads

    def memory_words(self, fan_in: int) -> int:
        """The most a machine keeps or moves."""
        queries, dim, value_dim = self.queries, self.shape.head_dim, self.shape.value_dim
        # Beside the block: best scores, and those of a node of the tree. Then sums, and a node's.
        keeps = max(queries * (2 * dim + value_dim + 2), 2 * queries * (value_dim + 1))
        if self.side == 1:
            return keeps
        # Keys and values are the widest messages; sums have as many words at most.
        return max(keeps, (fan_in - 1) * (queries * (dim + value_dim) + 1))

    def steps(self, fan_in: int) -> tuple[Step, ...]:
        """5 ceil(log_f n) + 2 rounds."""
        row, column = Line(self.side), Line(self.side, stride=self.side)
        queries, shape = self.queries, self.shape
        query, pairs = queries * shape.head_dim, queries * (shape.head_dim + shape.value_dim)
        sums, output = queries * (shape.value_dim + 1), queries * shape.value_dim
        return (
            *broadcast(column, "key_value", out="key_value", width=pairs, fan_in=fan_in),
            Step("queries to their rows", self.queries_to_rows, 1, 1, query),
            Step("queries arrive", self.queries_arrive),
            *broadcast(row, "query", out="query", width=query, fan_in=fan_in),
            Step("best scores of a block", self.find_best),
            *reduce(
                row,
                "best",
                total="best",
                width=queries,
                combine=np.maximum,
                identity=np.zeros(queries, dtype=np.int64),
                fan_in=fan_in,
            ),
            Step("weigh values", self.weigh),
            *reduce(
                row,
                "sums",
                total="sums",
                width=sums,
                combine=np.add,
                identity=np.zeros(sums, dtype=np.int64),
                fan_in=fan_in,
                to_all=False,
            ),
            Step("answers go home", self.go_home, 1, 1, output),
            Step("answers arrive", self.arrive),
        )

    def receive_input(self, ids: np.ndarray, words: np.ndarray) -> Memory:
        """Queries apart from keys and values, which travel another way."""
        shape, keys = self.shape, self.shape.num_heads * self.shape.head_dim
        each = words.reshape(len(ids), self.per_machine, shape.words_per_token)
        _check_words("queries and keys", each[..., : 2 * keys], shape.input_bits)
        _check_words("values", each[..., 2 * keys :], shape.value_bits)
        rows = {"query": each[..., :keys], "key_value": each[..., keys:]}
        return {
            name: part.reshape(len(ids), math.prod(part.shape[1:])) for name, part in rows.items()
        }

    def queries_to_rows(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """(0, a) tells (a, 0)."""
        destination = np.where(ids < self.side, ids * self.side, -1)
        return memory, destination[:, None], memory["query"][:, None]

    def queries_arrive(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """The others' queries are overwritten when those of their row come along."""
        return {**memory, "query": inbox.payload[:, 0]}, None, None

    def find_best(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """Of every query of the block, over its keys; 0 where it sees none of them."""
        query, key, _ = self.parts(ids, memory)
        best = np.zeros(query.shape[:3], dtype=np.int64)
        for slot in range(self.per_machine):
            best = np.maximum(best, self.scores(ids, query, key, slot))
        return {**memory, "best": best.reshape(len(ids), self.queries)}, None, None

    def weigh(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """Weighted values and weights of every query of the block, added up over its keys."""
        query, key, value = self.parts(ids, memory)
        best = memory["best"].reshape(query.shape[:3])
        sums = np.zeros((*best.shape, self.shape.value_dim + 1), dtype=np.int64)
        for slot in range(self.per_machine):
            score = self.scores(ids, query, key, slot)
            weight = np.where(score > 0, self.shape.weights(best - score), 0)
            for word in range(self.shape.value_dim):
                sums[..., word] += weight * value[:, None, slot, :, word]
            sums[..., -1] += weight
        return {"sums": sums.reshape(len(ids), self.queries * sums.shape[-1])}, None, None

    def go_home(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """(a, 0) divides and tells (0, a)."""
        sums = memory["sums"].reshape(len(ids), self.queries, self.shape.value_dim + 1)
        # 0 off the first column, and where there are no tokens at all.
        answers = sums[..., :-1] // np.maximum(sums[..., -1:], 1)
        destination = np.where(ids % self.side == 0, ids // self.side, -1)
        return (
            {},
            destination[:, None],
            answers.reshape(len(ids), 1, self.queries * self.shape.value_dim),
        )

    def arrive(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        """On the first row, where the input was."""
        return {"output": inbox.payload[:, 0]}, None, None

    def parts(self, ids: np.ndarray, memory: Memory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries and keys (n, g, H, D), signed, and values (n, g, H, m)."""
        shape, grid = self.shape, (len(ids), self.per_machine, self.shape.num_heads)
        keys = shape.num_heads * shape.head_dim
        words = shape.words_per_token - keys
        each = memory["key_value"].reshape(len(ids), self.per_machine, words)
        key = each[..., :keys].reshape(*grid, shape.head_dim)
        value = each[..., keys:].reshape(*grid, shape.value_dim)
        query = memory["query"].reshape(*grid, shape.head_dim)
        return shape.signed(query), shape.signed(key), value

    def scores(self, ids: np.ndarray, query: np.ndarray, key: np.ndarray, slot: int) -> np.ndarray:
        """(n, g, H) scores of a block's queries with one key, offset above 0; 0 = not seen."""
        score = np.einsum("nqhd,nhd->nqh", query, key[:, slot]) + self.shape.score_offset
        at = (ids % self.side * self.per_machine + slot)[:, None]
        sees = np.broadcast_to(at < self.num_tokens, score.shape[:2])
        if self.is_causal:
            own = (ids // self.side)[:, None] * self.per_machine + np.arange(self.per_machine)
            sees = sees & (at <= own)
        return np.where(sees[..., None], score, 0)
