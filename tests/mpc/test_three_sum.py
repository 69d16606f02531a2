"""3-SUM against all triples, and concurrent reads against numpy."""

import itertools
import math

import numpy as np
import pytest

from anna_attn.mpc import InProcess, Protocol
from anna_attn.mpc.primitives import Gather, Layout
from anna_attn.mpc.protocols import three_sum


def check(engine, words, eps, target, exists):
    protocol = three_sum(len(words), eps, target=target)
    result = engine.run(protocol, words)
    found, *three = result.output.tolist()
    assert bool(found) == exists
    if found:
        assert sum(three) == target
        assert sorted(three) == three
        left = words.tolist()
        for word in three:
            left.remove(word)  # At different places: a word given once is there only once.
    else:
        assert three == [0, 0, 0]
    assert result.trace.num_rounds == protocol.num_rounds
    assert result.trace.peak_memory_words <= protocol.local_memory
    assert result.trace.peak_message_words <= protocol.local_memory


def sums(words):
    return {sum(three) for three in itertools.combinations(words.tolist(), 3)}


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
@pytest.mark.parametrize("num_words", [0, 1, 2, 3, 9, 40])
def test_all_targets(engine, given, num_words, eps):
    for high in (2, 200):
        for words in given(num_words, high, seed=num_words).values():
            possible = sums(words)
            impossible = set(range(3 * high)) - possible
            for target in [*sorted(possible)[:1], *sorted(impossible)[-1:]]:
                check(engine, words, eps, target, target in possible)


def test_ties():
    """Equal words at the ends of blocks: a solution that is not at the first place of its pair."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        num_words, high = int(generator.integers(3, 60)), int(generator.choice([1, 2, 3, 4]))
        words = generator.integers(0, high, num_words)
        possible = sums(words)
        target = int(generator.integers(0, 3 * high))
        check(
            InProcess(), words, float(generator.choice([1 / 3, 1 / 2])), target, target in possible
        )


@pytest.mark.parametrize(("num_words", "eps"), [(2000, 1 / 3), (5000, 1 / 2), (20_000, 2 / 3)])
def test_large(num_words, eps):
    """Words of 3 x + 1: their sums are multiples of three, and only planted ones make 16."""
    words = 3 * np.random.default_rng(0).integers(10, 1 << 29, num_words) + 1
    check(InProcess(), words, eps, 3_000_001, exists=False)
    words[[5, num_words // 2, num_words - 1]] = [2, 10, 4]
    check(InProcess(), words, eps, 16, exists=True)
    check(InProcess(), np.sort(words)[::-1].copy(), eps, 16, exists=True)


@pytest.mark.slow
def test_twenty_thousand_words_on_machines_of_the_root():
    words = 3 * np.random.default_rng(0).integers(10, 1 << 29, 20_000) + 1
    check(InProcess(), words, 1 / 2, 3_000_001, exists=False)
    words[[5, 100, 19_999]] = [2, 10, 4]
    check(InProcess(), words, 1 / 2, 16, exists=True)


def most_rounds(eps, word_bits):
    """A bound that N is not in: B and f are at least N^(eps / 2) / 2 and N^(eps / 2)."""
    levels = math.ceil(2 * (2 - 2 * eps) / eps)
    sorting = math.ceil(word_bits / 2) * (2 * levels + 1)
    reading = math.ceil(4 / eps) * (2 * levels + 1) + 2 * levels + 2
    searches = math.ceil((1 - eps) / eps) + 1
    return sorting + (searches + 1) * reading + levels


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
def test_rounds_do_not_grow(eps):
    doublings = np.arange(10, 31)
    rounds = [three_sum(2 ** int(d), eps, target=0).num_rounds for d in doublings]
    assert max(rounds) <= most_rounds(eps, 32)
    if eps >= 1 / 2:
        assert np.polyfit(doublings, rounds, 1)[0] <= 0.1


def test_memory_and_machines_follow_their_exponents():
    doublings = np.arange(12, 31)
    plans = [three_sum(2 ** int(d), 1 / 2, target=0) for d in doublings]
    for words, exponent in (("local_memory", 1 / 2), ("num_machines", 1.0)):
        logs = np.log2([getattr(plan, words) for plan in plans])
        assert abs(np.polyfit(doublings, logs, 1)[0] - exponent) <= 0.02


def test_wide_words_are_refused():
    with pytest.raises(ValueError, match=r"word_bits must lie in 1\.\.60, got 61"):
        three_sum(4, 0.5, target=0, word_bits=61)


@pytest.mark.parametrize("kind", ["random", "one", "none"])
@pytest.mark.parametrize(("machines", "items", "requests"), [(1, 3, 2), (6, 20, 5), (9, 4, 1)])
def test_any_number_may_read_one_item(engine, kind, machines, items, requests):
    generator = np.random.default_rng(machines)
    layout = Layout(items, 4)
    words = generator.integers(0, 1000, items)
    addresses = {
        "random": generator.integers(0, items + 1, (machines, requests)),
        "one": np.full((machines, requests), items),
        "none": np.zeros((machines, requests), dtype=np.int64),
    }[kind]
    plan = Gather.of(layout, machines, requests)

    def init(ids, given):
        return {"words": given[:, :4], "address": addresses[ids]}

    protocol = Protocol(
        "gather", machines, plan.memory_words + 4, 20, items, 4, init,
        plan.steps("address", lambda memory: memory["words"], out="got"),
        lambda ids, memory: memory["got"], machines * requests,
    )  # fmt: skip
    result = engine.run(protocol, words)
    expected = np.concatenate([[0], words])[addresses]
    assert np.array_equal(result.output.reshape(expected.shape), expected)
    assert result.trace.num_rounds == plan.num_rounds
