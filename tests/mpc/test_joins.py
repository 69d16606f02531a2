"""Match2 and ANNA attention: joins of queries with the records of their bucket."""

import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import AttentionShape, anna_attention, match2


def run(engine, protocol, words):
    result = engine.run(protocol, words)
    assert result.trace.num_rounds == protocol.num_rounds
    assert result.trace.peak_memory_words <= protocol.local_memory
    assert result.trace.peak_message_words <= protocol.local_memory
    return result.output


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
@pytest.mark.parametrize("num_words", [0, 1, 2, 5, 63, 64, 500])
@pytest.mark.parametrize("modulus", [1, 2, 37, 1000])
def test_match2(engine, given, num_words, eps, modulus):
    protocol = match2(num_words, eps, modulus=modulus)
    for words in given(num_words, modulus).values():
        residues = set(words.tolist())
        expected = [int((modulus - word) % modulus in residues) for word in words.tolist()]
        assert run(engine, protocol, words).tolist() == expected


def test_match2_refuses():
    with pytest.raises(ValueError, match="modulus must be at least 1, got 0"):
        match2(4, 0.5, modulus=0)
    with pytest.raises(ValueError, match=r"words must lie in \[0, 5\), got 5"):
        InProcess().run(match2(2, 0.5, modulus=5), np.array([1, 5]))


def flat(query, key, value):
    """Words of all tokens."""
    num_tokens = len(query)
    parts = [part.reshape(num_tokens, int(np.prod(part.shape[1:]))) for part in (query, key, value)]
    return np.concatenate(parts, 1).reshape(-1)


def attend(query, key, value, is_causal):
    """All pairs compared."""
    output = np.zeros_like(value)
    for head in range(query.shape[1]):
        counts = (query[:, None, head] == key[None, :, head]).sum(-1)
        counts = np.tril(counts) if is_causal else counts
        total = counts.sum(1, keepdims=True)
        output[:, head] = counts @ value[:, head] // np.maximum(total, 1)
    return output


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tokens_per_machine", [1, 3, 16])
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 7, 40, 200])
@pytest.mark.parametrize("codes", ["random", "one bucket", "no hit"])
def test_anna_attention(engine, num_tokens, tokens_per_machine, is_causal, codes):
    shape = AttentionShape(num_heads=2, num_tables=3, code_bits=4, value_dim=2, value_bits=10)
    generator = np.random.default_rng(num_tokens)
    query, key = generator.integers(0, 16, (2, num_tokens, 2, 3))
    if codes == "one bucket":
        query, key = np.full_like(query, 5), np.full_like(key, 5)
    if codes == "no hit":
        query, key = query | 1, key & ~1
    value = generator.integers(0, 1024, (num_tokens, 2, 2))
    protocol = anna_attention(num_tokens, tokens_per_machine, shape, is_causal=is_causal)
    output = run(engine, protocol, flat(query, key, value))
    expected = attend(query, key, value, is_causal)
    assert np.array_equal(output.reshape(expected.shape), expected)
    if codes == "no hit" or num_tokens >= 40:
        assert bool(expected.any()) == (codes != "no hit")


def test_anna_attention_costs_as_much_causal_and_no_more_rounds_when_longer():
    shape = AttentionShape(num_heads=2, num_tables=4, code_bits=8, value_dim=4, value_bits=16)
    rounds = []
    for doublings in range(10, 21):
        per_machine = round(2 ** (doublings / 2 - 4))
        full = anna_attention(2**doublings, per_machine, shape)
        causal = anna_attention(2**doublings, per_machine, shape, is_causal=True)
        assert (full.num_rounds, full.local_memory) == (causal.num_rounds, causal.local_memory)
        rounds.append(full.num_rounds)
    assert np.polyfit(range(10, 21), rounds, 1)[0] <= 0.1


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="num_tables must be at least 1, got 0"):
        AttentionShape(1, 0, 4, 2, 8)
