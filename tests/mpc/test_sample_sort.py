"""The sample sort against numpy, on inputs that crowd buckets, with every limit enforced."""

from dataclasses import replace

import numpy as np
import pytest

from anna_attn.mpc import InProcess, Protocol
from anna_attn.mpc.errors import InDegreeExceeded
from anna_attn.mpc.primitives import Layout, SampleSort
from anna_attn.mpc.protocols import sort

SIZES = [0, 1, 2, 5, 63, 64, 500]
EXPONENTS = [1 / 3, 1 / 2, 2 / 3]
ROUNDS = {1 / 3: 29, 1 / 2: 11, 2 / 3: 6}
HIGH = 1 << 61


def kinds(given, num_words, per_machine):
    """What other sorts are tested on; few words, and machines with the same words each."""
    words = given(num_words, HIGH)
    words["few"] = words["random"] % 5
    order = np.argsort(np.arange(num_words) % per_machine, kind="stable")
    words["alike"] = np.empty_like(words["sorted"])
    words["alike"][order] = words["sorted"]
    return words


def check(protocol, engine, words, expected):
    result = engine.run(protocol, words)
    assert np.array_equal(result.output, expected)
    trace = result.trace
    assert trace.num_rounds == protocol.num_rounds
    assert trace.peak_memory_words <= protocol.local_memory
    assert trace.peak_message_words <= protocol.local_memory
    return trace


def of_pairs(layout, plan, word_bits=62):
    """A protocol that sorts items (key, payload)."""
    return Protocol(
        "sort pairs",
        layout.num_machines,
        plan.memory_words,
        word_bits,
        2 * layout.num_items,
        2 * layout.per_machine,
        init=lambda ids, words: {"pairs": words.reshape(len(ids), -1, 2)},
        steps=plan.steps("pairs"),
        output=lambda ids, memory: memory["pairs"].reshape(len(ids), -1),
        num_outputs=2 * layout.num_items,
    )


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("num_words", SIZES)
def test_sort(engine, given, num_words, eps):
    protocol = sort(num_words, eps, word_bits=61, algorithm="sample")
    for words in kinds(given, num_words, protocol.words_per_machine).values():
        check(protocol, engine, words, np.sort(words))


@pytest.mark.parametrize("eps", EXPONENTS)
def test_twenty_thousand_words(given, eps):
    protocol = sort(20_000, eps, word_bits=61, algorithm="sample", seed=5)
    for words in kinds(given, 20_000, protocol.words_per_machine).values():
        check(protocol, InProcess(), words, np.sort(words))


@pytest.mark.parametrize("machines", range(1, 21))
def test_few_machines_of_four_words(machines):
    for num_words in {4 * machines - 3, 4 * machines}:
        layout = Layout(num_words, 4)
        plan = SampleSort(layout, 2)
        keys = np.random.default_rng(machines).integers(0, 10, num_words)
        pairs = np.stack([keys, np.arange(num_words)], 1)
        result = InProcess(check_locality=True).run(of_pairs(layout, plan), pairs.ravel())
        assert np.array_equal(result.output.reshape(-1, 2), pairs[np.argsort(keys, kind="stable")])
        assert result.trace.num_rounds == plan.num_rounds


@pytest.mark.parametrize("num_keys", [1, 2, 7, 100])
def test_equal_keys_keep_their_order(engine, num_keys):
    layout = Layout(500, 12)
    keys = np.random.default_rng(num_keys).integers(HIGH - num_keys, HIGH, 500)
    pairs = np.stack([np.arange(500)[::-1], keys], 1)
    protocol = of_pairs(layout, SampleSort(layout, 2, column=1))
    found = engine.run(protocol, pairs.ravel()).output.reshape(-1, 2)
    assert np.array_equal(found, pairs[np.argsort(keys, kind="stable")])


@pytest.mark.parametrize("num_items", [0, 1, 2, 63, 250, 300])
def test_items_that_are_none_are_dropped(engine, num_items):
    generator = np.random.default_rng(num_items)
    layout = Layout(300, 9)
    keys = np.zeros(300, dtype=np.int64)
    keys[generator.permutation(300)[:num_items]] = generator.integers(1, 40, num_items)
    pairs = np.stack([keys, np.arange(1, 301)], 1)
    protocol = of_pairs(layout, SampleSort(layout, 2, optional=True))
    found = engine.run(protocol, pairs.ravel()).output.reshape(-1, 2)
    real = pairs[keys > 0]
    assert np.array_equal(found[:num_items], real[np.argsort(real[:, 0], kind="stable")])
    assert not found[num_items:].any()


@pytest.mark.parametrize("eps", EXPONENTS)
def test_rounds_grow_neither_with_the_input_nor_with_the_keys(eps):
    doublings = np.arange(10, 31)
    rounds = [sort(2 ** int(d), eps, algorithm="sample").num_rounds for d in doublings]
    assert np.polyfit(doublings, rounds, 1)[0] <= 0.1
    assert max(rounds) == ROUNDS[eps]
    for bits in (1, 20, 62):
        protocol = sort(1 << 20, eps, word_bits=bits, algorithm="sample")
        assert protocol.num_rounds == ROUNDS[eps]


@pytest.mark.parametrize(("eps", "most"), [(1 / 3, 13.0), (1 / 2, 5.5), (2 / 3, 3.8)])
def test_a_machine_uses_a_constant_times_its_share(eps, most):
    """And less of it, the larger the share: bounds on deviations weigh less."""
    shares = []
    for doublings in range(20, 41, 4):
        protocol = sort(1 << doublings, eps, algorithm="sample")
        shares.append(protocol.local_memory / protocol.words_per_machine)
    assert max(shares) == shares[0] <= most
    assert min(shares) < 0.9 * shares[0]


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2])
def test_no_seed_overflows_a_machine(given, eps):
    words = kinds(given, 2000, 13)
    for seed in range(40):
        protocol = sort(2000, eps, word_bits=61, algorithm="sample", seed=seed)
        for name in ("sorted", "equal", "alike"):
            check(protocol, InProcess(), words[name], np.sort(words[name]))


def test_another_seed_sends_items_on_other_ways():
    words = np.random.default_rng(0).integers(0, HIGH, 2000)
    traces = [
        InProcess().run(sort(2000, 0.5, word_bits=61, algorithm="sample", seed=seed), words).trace
        for seed in (0, 0, 1)
    ]
    assert traces[0] == traces[1] != traces[2]


def test_an_overflow_has_a_name():
    """Machines that are allowed no more than their share cannot hold uneven buckets."""
    layout = Layout(2000, 45)
    plan = SampleSort(layout, 2)
    vars(plan)["levels"] = tuple(replace(level, capacity_after=45) for level in plan.levels)
    pairs = np.random.default_rng(0).integers(0, HIGH, 4000)
    with pytest.raises(InDegreeExceeded, match="route"):
        InProcess().run(of_pairs(layout, plan), pairs)


def test_a_million_wide_words():
    words = np.random.default_rng(0).integers(0, 1 << 62, 1_000_000)
    protocol = sort(1_000_000, 0.5, word_bits=62, algorithm="sample")
    check(protocol, InProcess(), words, np.sort(words))


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match='algorithm must be "radix" or "sample", got \'quick\''):
        sort(10, 0.5, algorithm="quick")
    with pytest.raises(ValueError, match=r"column must lie in 0\.\.1, got 2"):
        SampleSort(Layout(10, 4), 2, column=2)
