"""Softmax attention on a square of machines, against all pairs at once."""

from dataclasses import replace

import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import SoftmaxShape, softmax_attention

SHAPE = SoftmaxShape(
    num_heads=2, head_dim=3, value_dim=2, input_bits=5, value_bits=8, weight_bits=20, scale=0.02
)


def drawn(num_tokens, shape, seed=0):
    """Queries, keys (N, H, D) and values (N, H, m), as words."""
    generator = np.random.default_rng(seed)
    tokens = (num_tokens, shape.num_heads)
    query, key = generator.integers(0, 1 << shape.input_bits, (2, *tokens, shape.head_dim))
    return query, key, generator.integers(0, 1 << shape.value_bits, (*tokens, shape.value_dim))


def flat(query, key, value):
    each = [part.reshape(len(part), part[:1].size) for part in (query, key, value)]
    return np.concatenate(each, 1).reshape(-1)


def all_pairs(query, key, value, shape, is_causal):
    """The formula, without machines, offsets or blocks."""
    if len(query) == 0:
        return np.zeros(0, dtype=np.int64)
    half = 2 ** (shape.input_bits - 1)
    scores = np.einsum("ihd,jhd->hij", query - half, key - half)
    sees = np.tri(len(query), dtype=bool) if is_causal else np.ones(scores.shape[1:], dtype=bool)
    best = np.where(sees, scores, scores.min()).max(2, keepdims=True)
    gaps = np.where(sees, best - scores, 0)
    with np.errstate(over="ignore"):
        weights = np.floor(2.0**shape.weight_bits * np.exp(-(gaps * shape.scale)))
    weights = np.where(sees, weights, 0).astype(np.int64)
    totals = np.einsum("hij,jhm->ihm", weights, value)
    return (totals // weights.sum(2).T[..., None]).reshape(-1)


def levels(length, fan_in):
    """ceil(log_f n)."""
    return next(level for level in range(length + 1) if fan_in**level >= length)


def check(engine, parts, per_machine, shape=SHAPE, *, is_causal=False, fan_in=2):
    num_tokens = len(parts[0])
    protocol = softmax_attention(num_tokens, per_machine, shape, is_causal=is_causal, fan_in=fan_in)
    side = max(1, -(-num_tokens // per_machine))
    assert protocol.num_machines == side**2
    result = engine.run(protocol, flat(*parts))
    assert np.array_equal(result.output, all_pairs(*parts, shape, is_causal))
    trace = result.trace
    assert trace.num_rounds == protocol.num_rounds == 5 * levels(side, fan_in) + 2
    assert trace.peak_memory_words <= protocol.local_memory
    assert trace.peak_message_words <= protocol.local_memory
    return result


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("fan_in", [2, 3, 8])
@pytest.mark.parametrize("per_machine", [1, 3, 16])
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 7, 40, 130])
def test_all_pairs(engine, num_tokens, per_machine, fan_in, is_causal):
    parts = drawn(num_tokens, SHAPE, seed=num_tokens)
    check(engine, parts, per_machine, is_causal=is_causal, fan_in=fan_in)


def test_the_budget_is_what_is_used():
    """A word less of memory, or of messages, would be too little."""
    wide = replace(SHAPE, value_dim=9)
    for shape, per_machine, fan_in in ((SHAPE, 3, 2), (wide, 3, 2), (SHAPE, 3, 8)):
        trace = check(InProcess(), drawn(40, shape), per_machine, shape, fan_in=fan_in).trace
        assert max(trace.peak_memory_words, trace.peak_message_words) == trace.local_memory


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [0.7, 1e300])
def test_the_largest_scores_there_can_be(is_causal, scale):
    """The sharpest softmax returns the value of the best key; nothing overflows or warns."""
    shape = SoftmaxShape(
        num_heads=1, head_dim=2, value_dim=1, input_bits=30, value_bits=8, weight_bits=40,
        scale=scale,
    )  # fmt: skip
    query, key, value = drawn(40, shape)
    query[:20] = 0
    key[5], key[30] = 0, 2**30 - 1
    result = check(InProcess(), (query, key, value), 3, shape, is_causal=is_causal)
    if not is_causal:
        # The most negative query meets the most negative key: 2^60, the largest sum.
        assert np.array_equal(result.output[:20], np.full(20, value[5, 0, 0]))


@pytest.mark.parametrize("is_causal", [False, True])
def test_weights_below_one_unit_are_zero(is_causal):
    shape = SoftmaxShape(
        num_heads=1, head_dim=1, value_dim=1, input_bits=4, value_bits=8, weight_bits=1, scale=0.5
    )
    gaps = np.arange(6)
    assert shape.weights(gaps).tolist() == [2, 1, 0, 0, 0, 0]
    check(InProcess(), drawn(40, shape), 3, shape, is_causal=is_causal)


@pytest.mark.parametrize("scale", [0.0, 0.02])
def test_equal_scores_give_the_mean(engine, scale):
    shape = replace(SHAPE, scale=scale)
    query, key, value = drawn(40, shape)
    if scale > 0:
        key[:] = key[:1]
    result = check(engine, (query, key, value), 3, shape)
    mean = value.sum(0) // 40
    assert np.array_equal(result.output.reshape(value.shape), np.broadcast_to(mean, value.shape))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="num_heads must be at least 1, got 0"):
        replace(SHAPE, num_heads=0)
    for scale in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"scale must be finite and >= 0, got {scale}"):
            replace(SHAPE, scale=scale)
    with pytest.raises(ValueError, match="num_tokens must be at least 0, got -1"):
        softmax_attention(-1, 4, SHAPE)
    with pytest.raises(ValueError, match="tokens_per_machine must be at least 1, got 0"):
        softmax_attention(4, 0, SHAPE)
    with pytest.raises(ValueError, match="fan_in must be at least 2, got 1"):
        softmax_attention(4, 1, SHAPE, fan_in=1)
    with pytest.raises(ValueError, match="scores need 63 bits: head_dim 3, queries and keys of 31"):
        softmax_attention(4, 1, replace(SHAPE, input_bits=31))
    with pytest.raises(ValueError, match="sums need 63 bits: weights of 52, values of 8, 4 tokens"):
        softmax_attention(4, 1, replace(SHAPE, weight_bits=52))


def test_words_out_of_range_are_refused():
    """They would be other integers than the formula says, within the bits of a word."""
    words = flat(*drawn(4, SHAPE))
    for place, allowed, what in ((0, 5, "queries and keys"), (-1, 8, "values")):
        bad = words.copy()
        bad[place] = 2**allowed
        message = rf"{what} must lie in \[0, 2\^{allowed}\), got {2**allowed}"
        with pytest.raises(ValueError, match=message):
            InProcess().run(softmax_attention(4, 2, SHAPE), bad)
