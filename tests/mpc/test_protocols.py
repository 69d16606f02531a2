"""Protocols against sequential answers, with every limit enforced."""

import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import induction_heads, k_hop, prefix_sum, sort

SIZES = [0, 1, 2, 5, 63, 64, 500]
EXPONENTS = [1 / 3, 1 / 2, 2 / 3]


def check(protocol, engine, words, expected):
    result = engine.run(protocol, words)
    assert np.array_equal(result.output, expected)
    trace = result.trace
    assert trace.num_rounds == protocol.num_rounds
    assert trace.peak_memory_words <= protocol.local_memory
    assert trace.peak_message_words <= protocol.local_memory
    return trace


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("num_words", SIZES)
def test_sort(engine, given, num_words, eps):
    protocol = sort(num_words, eps, word_bits=20)
    for words in given(num_words, 1 << 20).values():
        check(protocol, engine, words, np.sort(words))


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("num_words", SIZES)
def test_prefix_sum(engine, given, num_words, eps):
    protocol = prefix_sum(num_words, eps)
    for words in given(num_words, 1 << 40).values():
        check(protocol, engine, words, np.cumsum(words))


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("num_words", SIZES)
@pytest.mark.parametrize("hops", [1, 2, 3, 6, 16])
def test_k_hop(engine, given, hop_reference, num_words, eps, hops):
    protocol = k_hop(num_words, eps, num_symbols=5, hops=hops)
    for words in given(num_words, 5).values():
        check(protocol, engine, words, hop_reference(words, hops, 5))


def test_twenty_thousand_words(hop_reference):
    words = np.random.default_rng(0).integers(0, 1000, 20_000)
    for eps in EXPONENTS:
        check(sort(20_000, eps, word_bits=10), InProcess(), words, np.sort(words))
        expected = hop_reference(words, 3, 1000)
        protocol = k_hop(20_000, eps, num_symbols=1000, hops=3)
        check(protocol, InProcess(), words, expected)


MAKERS = {
    "sort": sort,
    "prefix_sum": prefix_sum,
    "induction_heads": lambda num_words, eps: induction_heads(num_words, eps, num_symbols=4),
}


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("eps", EXPONENTS)
def test_rounds_do_not_grow_with_the_input(name, eps):
    """They go up and down as N^(eps / 2) is rounded; a line through them does not rise."""
    doublings = np.arange(10, 31)
    rounds = [MAKERS[name](2 ** int(d), eps).num_rounds for d in doublings]
    slope = np.polyfit(doublings, rounds, 1)[0]
    assert slope <= 0.1


def test_hops_cost_two_rounds_a_bit():
    base = k_hop(4096, 0.5, num_symbols=4, hops=1).num_rounds
    for hops in range(2, 70):
        extra = k_hop(4096, 0.5, num_symbols=4, hops=hops).num_rounds - base
        assert 2 * (hops.bit_length() - 1) <= extra <= 2 * hops.bit_length()


def test_a_million_words(hop_reference):
    words = np.random.default_rng(0).integers(0, 1 << 32, 1_000_000)
    check(sort(1_000_000, 0.5), InProcess(), words, np.sort(words))


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match=r"eps must lie in \(0, 1\), got 1.5"):
        sort(10, 1.5)
    with pytest.raises(ValueError, match="hops and num_symbols must be at least 1, got 0, 4"):
        k_hop(10, 0.5, num_symbols=4, hops=0)
    with pytest.raises(ValueError, match=r"symbols must lie in \[0, 2\), got 3"):
        InProcess().run(k_hop(4, 0.5, num_symbols=2, hops=1), np.array([0, 1, 3, 1]))
