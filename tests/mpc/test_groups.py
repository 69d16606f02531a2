"""Grouping by key, and sorts whose slots may be empty."""

import numpy as np
import pytest

from anna_attn.mpc import Protocol, Step
from anna_attn.mpc.primitives import GroupBy, Key, Layout, RadixSort


def run(engine, num_slots, per_machine, words, steps, init, output, width, memory):
    layout = Layout(num_slots, per_machine)
    protocol = Protocol(
        "group", layout.num_machines, memory, 32, len(words), len(words) // layout.num_machines,
        init, steps, lambda ids, m: m[output], num_slots * width,
    )  # fmt: skip
    result = engine.run(protocol, words)
    return result.output.reshape(-1, width), result.trace


KEYS = {
    "random": lambda g, n: g.integers(0, 6, n),
    "one group": lambda g, n: np.full(n, 3),
    "all apart": lambda g, n: g.permutation(n) + 1,
    "sorted": lambda g, n: np.sort(g.integers(0, 6, n)),
    "nothing": lambda g, n: np.zeros(n, dtype=np.int64),
}


@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("combine", [np.add, np.minimum, np.maximum])
@pytest.mark.parametrize(("machines", "per_machine"), [(1, 1), (1, 6), (5, 4), (12, 9)])
def test_groups(engine, kind, optional, combine, machines, per_machine):
    num_slots = machines * per_machine
    generator = np.random.default_rng(num_slots)
    keys = KEYS[kind](generator, num_slots)
    homes = generator.permutation(num_slots) + 1
    values = generator.integers(0, 1000, (num_slots, 2))
    layout = Layout(num_slots, per_machine)
    identity = 1 << 20 if combine is np.minimum else 0
    sort = RadixSort(layout, 4, (Key(0, 8),), 3, 3, optional)
    group = GroupBy(sort, layout, 2, combine, identity)
    items = np.concatenate([keys[:, None], homes[:, None], values], 1)

    def init(ids, words):
        return {"items": words.reshape(len(ids), per_machine, 4)}

    steps = group.steps("items", out="answer")
    got, trace = run(
        engine, num_slots, per_machine, items.reshape(-1), steps, init, "answer", 2,
        group.memory_words,
    )  # fmt: skip
    expected = np.zeros((num_slots, 2), dtype=np.int64)
    for slot in range(num_slots):
        if keys[slot] or not optional:
            expected[homes[slot] - 1] = combine.reduce(values[keys == keys[slot]], 0)
    assert np.array_equal(got, expected)
    assert trace.num_rounds == group.num_rounds
    assert trace.peak_memory_words <= group.memory_words


@pytest.mark.parametrize("digit_bits", [1, 3, 8])
def test_empty_slots_go_last(engine, digit_bits):
    generator = np.random.default_rng(0)
    keys = generator.integers(0, 20, 60) * (generator.random(60) < 0.5)
    items = np.stack([keys, np.arange(60)], 1)
    sort = RadixSort(Layout(60, 5), 2, (Key(0, 5),), digit_bits, 2, optional=True)
    got, _ = run(
        engine, 60, 5, items.reshape(-1), sort.steps("items"),
        lambda ids, words: {"items": words.reshape(len(ids), 5, 2)}, "items", 2, sort.memory_words,
    )  # fmt: skip
    real = items[keys > 0]
    real = real[np.argsort(real[:, 0], kind="stable")]
    assert np.array_equal(got[: len(real)], real)
    assert not got[len(real) :].any()


def test_plans_within_memory():
    layout = Layout(2**20, 2**10)
    plan = RadixSort.within(layout, 3, (Key(0, 20),), 16 * 2**10)
    assert plan.memory_words <= 16 * 2**10
    tight = RadixSort.within(layout, 3, (Key(0, 20),), 6 * 2**10)
    assert tight.memory_words <= 6 * 2**10
    assert tight.num_rounds > plan.num_rounds
    # Nothing fits: the least there is, which an engine then judges.
    least = RadixSort.within(layout, 3, (Key(0, 20),), 1)
    assert 1 < least.memory_words <= tight.memory_words


def counting(limit):
    """Machine 0 counts up, tells all; they stop together at `limit`."""

    def count(ids, memory, inbox):
        return {"count": memory["count"] + 1, "done": memory["done"]}, None, None

    def tell(ids, memory, inbox):
        to = np.broadcast_to(np.arange(3), (len(ids), 3))
        words = np.broadcast_to(memory["count"][:, None], (len(ids), 3, 1))
        return memory, np.where(ids[:, None] == 0, to, -1), words

    def decide(ids, memory, inbox):
        done = (inbox.payload[:, :1, 0] >= limit).astype(np.int64)
        return {"count": memory["count"], "done": done}, None, None

    loop = (
        Step("count", count, unless="done"),
        Step("tell", tell, 3, 1, 1, unless="done"),
        Step("decide", decide, unless="done"),
    )
    return loop * 10


def run_loop(engine, steps, init=lambda ids, words: {"count": words, "done": 0 * words}):
    protocol = Protocol("loop", 3, 8, 8, 3, 1, init, steps, lambda ids, memory: memory["count"], 3)
    return engine.run(protocol, np.zeros(3, dtype=np.int64))


def test_a_loop_ends_when_all_machines_know(engine):
    calls = []
    protocol_steps = counting(4)
    result = run_loop(engine, protocol_steps)
    assert result.output.tolist() == [4, 4, 4]
    assert result.trace.num_rounds == 4
    assert [step.name for step in result.trace.steps] == ["input", *["count", "tell", "decide"] * 4]
    assert [s.round_index for s in result.trace.steps if s.name == "tell"] == [0, 1, 2, 3]
    protocol = Protocol(
        "loop", 3, 8, 8, 3, 1, lambda ids, words: {"count": words, "done": 0 * words},
        protocol_steps, lambda ids, memory: memory["count"], 3,
    )  # fmt: skip
    engine.run(protocol, np.zeros(3, dtype=int), progress=lambda *call: calls.append(call))
    assert calls[-1] == (30, 30, "decide")
    assert len(calls) == 30
