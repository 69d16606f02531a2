"""Attention protocols whose sizes are powers of N, with inputs and answers on all pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anna_attn.mpc import Protocol
from anna_attn.mpc.protocols import (
    AttentionShape,
    SoftmaxShape,
    anna_attention,
    softmax_attention,
)

VALUE_BITS = 8
CHUNK_PAIRS = 1 << 22
"""Pairs that the answers hold at once."""


def rounded(num_tokens: int, exponent: float) -> int:
    """The integer next to N^exponent, at least 1."""
    return max(1, round(num_tokens**exponent))


@dataclass(frozen=True)
class AnnaCase:
    """ANNA attention as in Theorem 4.2: one head of N^eps words, N^tables tables.

    A machine has N^(memory - eps - tables) tokens, so that their records fill O(N^memory) words.

    Args:
        eps: m H = N^eps words of a token.
        memory: eps', machines have O(N^eps') words.
        tables: 3 rho, L = N^(3 rho).
    Raises: ValueError unless 0 <= eps, 0 <= tables and eps + tables <= memory < 1: with less memory
        a token's records would not fit on its machine.
    """

    eps: float
    memory: float
    tables: float

    def __post_init__(self) -> None:
        if not (self.eps >= 0 and self.tables >= 0 and self.eps + self.tables <= self.memory < 1):
            raise ValueError(
                f"exponents are eps = {self.eps!r}, memory = {self.memory!r}, tables = "
                f"{self.tables!r}; accepted: 0 <= eps, 0 <= tables, eps + tables <= memory < 1"
            )

    @property
    def name(self) -> str:
        """Of the attention."""
        return "anna"

    @property
    def setting(self) -> str:
        """The exponents."""
        return f"ε = {self.eps:g}, ε' = {self.memory:g}, 3 rho = {self.tables:g}"

    @property
    def machines_exponent(self) -> float:
        """1 + eps - eps' + 3 rho."""
        return 1 + self.eps - self.memory + self.tables

    @property
    def memory_exponent(self) -> float:
        """eps'."""
        return self.memory

    def tokens_per_machine(self, num_tokens: int) -> int:
        """g."""
        return rounded(num_tokens, self.memory - self.eps - self.tables)

    def shape(self, num_tokens: int) -> AttentionShape:
        """Codes of log2 N bits: Theorem 3.4's buckets are about as many as tokens."""
        return AttentionShape(
            num_heads=1,
            num_tables=rounded(num_tokens, self.tables),
            code_bits=max(1, (num_tokens - 1).bit_length()),
            value_dim=rounded(num_tokens, self.eps),
            value_bits=VALUE_BITS,
        )

    def protocol(self, num_tokens: int) -> Protocol:
        """For N tokens."""
        per_machine = self.tokens_per_machine(num_tokens)
        return anna_attention(num_tokens, per_machine, self.shape(num_tokens))

    def words(self, num_tokens: int, seed: int) -> np.ndarray:
        """Codes drawn from about sqrt N buckets, so that queries hit about sqrt N keys a table."""
        shape, generator = self.shape(num_tokens), np.random.default_rng(seed)
        buckets = generator.integers(0, 1 << shape.code_bits, math.isqrt(num_tokens))
        codes = buckets[generator.integers(0, len(buckets), (num_tokens, 2 * shape.num_tables))]
        value = generator.integers(0, 1 << VALUE_BITS, (num_tokens, shape.value_dim))
        return np.concatenate([codes, value], 1).reshape(-1)

    def answer(self, num_tokens: int, words: np.ndarray) -> np.ndarray:
        """floor(sum_j c_ij v_j / sum_j c_ij), comparing every query with every key."""
        tables = self.shape(num_tokens).num_tables
        each = words.reshape(num_tokens, -1)
        query, key = (part.T.astype(np.int32) for part in np.split(each[:, : 2 * tables], 2, 1))
        # Products and sums stay below 2^53, where floats are exact and fast.
        value = _with_ones(each[:, 2 * tables :])
        totals = []
        for chunk in _chunks(num_tokens):
            hits = np.zeros((chunk.stop - chunk.start, num_tokens), dtype=np.int16)
            for table in range(tables):
                hits += query[table, chunk, None] == key[table]
            totals.append(hits @ value)
        return _averages(np.concatenate(totals))


@dataclass(frozen=True)
class SoftmaxCase:
    """Softmax attention on a square of machines, one head of N^eps words, fan-in N^delta.

    Args:
        eps: queries, keys and values have N^eps words.
        memory: eps'; a machine has N^(eps' - eps - delta) tokens of a block, which fill O(N^eps')
            words together with what a tree moves. None = `block` tokens whatever N is.
        delta: fan-in N^delta, so that the rounds do not grow with N.
        block: tokens of a machine where `memory` is None.
    Raises: ValueError unless 0 <= eps, 0 < delta and eps + delta <= memory < 1.
    """

    eps: float
    memory: float | None
    delta: float = 0.125
    block: int = 16

    def __post_init__(self) -> None:
        memory = self.memory_exponent
        if not (self.eps >= 0 and self.delta > 0 and self.eps + self.delta <= memory < 1):
            raise ValueError(
                f"exponents are eps = {self.eps!r}, memory = {memory!r}, delta = {self.delta!r}; "
                "accepted: 0 <= eps, 0 < delta, eps + delta <= memory < 1"
            )

    @property
    def name(self) -> str:
        """Of the attention."""
        return "softmax"

    @property
    def setting(self) -> str:
        """The exponents, or the size of a block."""
        if self.memory is None:
            return f"{self.block} tokens a machine"
        return f"ε = {self.eps:g}, ε' = {self.memory:g}, δ = {self.delta:g}"

    @property
    def memory_exponent(self) -> float:
        """eps', or eps + delta where blocks do not grow."""
        return self.eps + self.delta if self.memory is None else self.memory

    @property
    def machines_exponent(self) -> float:
        """2 (1 + eps + delta - eps'): 2 where blocks do not grow."""
        return 2 * (1 + self.eps + self.delta - self.memory_exponent)

    def tokens_per_machine(self, num_tokens: int) -> int:
        """g."""
        if self.memory is None:
            return self.block
        return rounded(num_tokens, self.memory - self.eps - self.delta)

    def shape(self, num_tokens: int) -> SoftmaxShape:
        """A scale at which some tens of keys share most of a query's weight."""
        width = rounded(num_tokens, self.eps)
        return SoftmaxShape(
            num_heads=1,
            head_dim=width,
            value_dim=width,
            input_bits=8,
            value_bits=VALUE_BITS,
            weight_bits=20,
            scale=1 / (512 * math.sqrt(width)),
        )

    def protocol(self, num_tokens: int) -> Protocol:
        """For N tokens."""
        return softmax_attention(
            num_tokens,
            self.tokens_per_machine(num_tokens),
            self.shape(num_tokens),
            # Rounded up: the rounds are at most 5 / delta + 2 then.
            fan_in=max(2, math.ceil(num_tokens**self.delta - 1e-9)),
        )

    def words(self, num_tokens: int, seed: int) -> np.ndarray:
        """Random queries, keys and values."""
        shape, generator = self.shape(num_tokens), np.random.default_rng(seed)
        size = (num_tokens, shape.words_per_token)
        return generator.integers(0, 1 << min(shape.input_bits, VALUE_BITS), size).reshape(-1)

    def answer(self, num_tokens: int, words: np.ndarray) -> np.ndarray:
        """The formula of `softmax_attention`, on every query with every key."""
        shape, each = self.shape(num_tokens), words.reshape(num_tokens, -1).astype(np.float64)
        half = 2.0 ** (shape.input_bits - 1)
        query = each[:, : shape.head_dim] - half
        key = each[:, shape.head_dim : 2 * shape.head_dim] - half
        # All numbers are integers below 2^53, so floats are exact.
        value = _with_ones(each[:, 2 * shape.head_dim :])
        totals = []
        for chunk in _chunks(num_tokens):
            scores = query[chunk] @ key.T
            gaps = scores.max(1, keepdims=True) - scores
            weights = np.floor(2.0**shape.weight_bits * np.exp(-(gaps * shape.scale)))
            totals.append(weights @ value)
        return _averages(np.concatenate(totals))


Case = AnnaCase | SoftmaxCase


def _chunks(num_tokens: int) -> list[slice]:
    """Queries whose pairs fit in CHUNK_PAIRS."""
    size = max(1, CHUNK_PAIRS // num_tokens)
    starts = range(0, num_tokens, size)
    return [slice(start, min(start + size, num_tokens)) for start in starts]


def _with_ones(value: np.ndarray) -> np.ndarray:
    return np.concatenate([value, np.ones((len(value), 1))], 1).astype(np.float64)


def _averages(totals: np.ndarray) -> np.ndarray:
    """Sums of weighted values by sums of weights, as integers; 0 where there is no weight."""
    whole = totals.astype(np.int64)
    return (whole[:, :-1] // np.maximum(whole[:, -1:], 1)).reshape(-1)
