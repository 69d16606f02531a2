"""The attention protocols by name."""

from __future__ import annotations

import numpy as np

from anna_attn.mpc.protocols import (
    AttentionShape,
    SoftmaxShape,
    anna_attention,
    low_rank_attention,
    softmax_attention,
)

from . import sequential
from .cases import Case, Problem, equals

FEATURE_BITS = 8


def _tokens(words: np.ndarray | None, n: int, words_per_token: int) -> int:
    """Tokens of the input.

    Raises: ValueError where the words are no whole number of tokens.
    """
    if words is None:
        return n
    if len(words) % words_per_token:
        raise ValueError(f"a token has {words_per_token} words, got {len(words)} words")
    return len(words) // words_per_token


def _per_machine(num_tokens: int, eps: float, words_per_token: int) -> int:
    """Tokens that fill about N^eps words, at least one."""
    return max(1, round(num_tokens**eps / words_per_token))


def _anna(words, n, eps, options, seed) -> Problem:
    shape = AttentionShape(
        num_heads=int(options["heads"]),
        num_tables=int(options["tables"]),
        code_bits=int(options["code_bits"]),
        value_dim=int(options["value_dim"]),
        value_bits=FEATURE_BITS,
    )
    is_causal = bool(options["causal"])
    num_tokens = _tokens(words, n, shape.words_per_token)
    grid = (num_tokens, shape.num_heads, shape.num_tables)
    if words is None:
        generator = np.random.default_rng(seed)
        codes = generator.integers(0, 1 << shape.code_bits, (num_tokens, 2 * grid[1] * grid[2]))
        value = generator.integers(
            0, 1 << FEATURE_BITS, (num_tokens, shape.num_heads * shape.value_dim)
        )
        words = np.concatenate([codes, value], 1).reshape(-1)
    each = words.reshape(num_tokens, shape.words_per_token)
    query, key, value = np.split(each, [grid[1] * grid[2], 2 * grid[1] * grid[2]], axis=1)

    def answer() -> np.ndarray:
        values = value.reshape(num_tokens, shape.num_heads, shape.value_dim)
        return sequential.bucket_attention(
            query.reshape(grid), key.reshape(grid), values, is_causal=is_causal
        )

    # As many items as words: a record and a query of value_dim + 3 words for each head and table.
    size = shape.records_per_token * (shape.value_dim + 3) // 2
    per_machine = _per_machine(num_tokens, eps, size)
    protocol = anna_attention(num_tokens, per_machine, shape, is_causal=is_causal)
    return Problem(protocol, words, equals(answer))


def _softmax(words, n, eps, options, seed) -> Problem:
    head_dim, value_dim = int(options["head_dim"]), int(options["value_dim"])
    shape = SoftmaxShape(
        num_heads=int(options["heads"]),
        head_dim=head_dim,
        value_dim=value_dim,
        input_bits=FEATURE_BITS,
        value_bits=FEATURE_BITS,
        weight_bits=20,
        scale=2.0 ** (3 - 2 * FEATURE_BITS) * head_dim**-0.5 * 16,
    )
    is_causal = bool(options["causal"])
    num_tokens = _tokens(words, n, shape.words_per_token)
    if words is None:
        generator = np.random.default_rng(seed)
        words = generator.integers(0, 1 << FEATURE_BITS, num_tokens * shape.words_per_token)
    each, heads = words.reshape(num_tokens, shape.words_per_token), shape.num_heads
    query, key, value = np.split(each, [heads * head_dim, 2 * heads * head_dim], axis=1)

    def answer() -> np.ndarray:
        output = np.zeros((num_tokens, heads, value_dim), dtype=np.int64)
        for head in range(heads):
            q, k, v = (
                part.reshape(num_tokens, heads, part.shape[1] // heads)[:, head]
                for part in (query, key, value)
            )
            scores = shape.signed(q) @ shape.signed(k).T
            output[:, head] = sequential.softmax_average(
                scores, v, shape.weights, is_causal=is_causal
            )
        return output

    per_machine = _per_machine(num_tokens, eps, shape.words_per_token)
    fan_in = max(2, round(num_tokens ** (eps / 4)))
    protocol = softmax_attention(num_tokens, per_machine, shape, is_causal=is_causal, fan_in=fan_in)
    return Problem(protocol, words, equals(answer))


def _low_rank(words, n, eps, options, seed) -> Problem:
    rank, value_dim = int(options["rank"]), int(options["value_dim"])
    num_tokens = _tokens(words, n, 2 * rank + value_dim)
    if words is None:
        generator = np.random.default_rng(seed)
        words = generator.integers(0, 1 << FEATURE_BITS, num_tokens * (2 * rank + value_dim))
    each = words.reshape(num_tokens, 2 * rank + value_dim)
    query, key, value = np.split(each, [rank, 2 * rank], axis=1)
    protocol = low_rank_attention(
        num_tokens,
        _per_machine(num_tokens, eps, 2 * rank + value_dim),
        rank=rank,
        value_dim=value_dim,
        feature_bits=FEATURE_BITS,
        value_bits=FEATURE_BITS,
        fan_in=max(2, round(num_tokens ** (eps / 2))),
    )
    return Problem(protocol, words, equals(lambda: query @ (key.T @ value)))


ATTENTION_CASES = (
    Case(
        "low-rank-attention",
        "Q' (K'^T V) of N tokens",
        "2 ceil(log_f P)",
        _low_rank,
        {"rank": 4, "value_dim": 4},
    ),
    Case(
        "anna-attention",
        "averages over shared buckets of N tokens",
        "one sort by bucket + 2 ceil(log_f P) + 2",
        _anna,
        {"heads": 1, "tables": 4, "code_bits": 8, "value_dim": 4, "causal": False},
    ),
    Case(
        "softmax-attention",
        "all pairs of N tokens: the baseline, on N^2 machines",
        "trees along rows and columns of machines",
        _softmax,
        {"heads": 1, "head_dim": 4, "value_dim": 4, "causal": False},
    ),
)
