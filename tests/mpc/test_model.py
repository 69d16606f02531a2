"""Budgets, inputs, steps for one machine at a time, traces."""

import json

import numpy as np
import pytest

from anna_attn.mpc import Budget, InProcess, Protocol, Step, per_machine
from anna_attn.mpc.protocols import prefix_sum, sort


def test_budgets_follow_the_definition():
    budget = Budget.from_exponents(10_000, 0.5, 0.25, memory_factor=3.0)
    assert (budget.num_machines, budget.local_memory) == (1000, 300)
    assert Budget.from_exponents(0, 0.5).num_machines == 1
    with pytest.raises(ValueError, match=r"eps must lie in \(0, 1\), got 0"):
        Budget.from_exponents(10, 0)
    with pytest.raises(ValueError, match="must be >= 0, got -1"):
        Budget.from_exponents(10, 0.5, -1)


def test_a_protocol_is_held_to_a_budget():
    protocol = sort(10_000, 0.5)
    Budget(protocol.num_machines, protocol.local_memory, protocol.word_bits).check(protocol)
    for name in ("num_machines", "local_memory", "word_bits"):
        sizes = {
            key: getattr(protocol, key) for key in ("num_machines", "local_memory", "word_bits")
        }
        sizes[name] -= 1
        with pytest.raises(
            ValueError, match=f"sort needs {name} = .*, the budget has {sizes[name]}"
        ):
            Budget(**sizes).check(protocol)


def test_words_that_do_not_fit_are_refused():
    protocol = sort(4, 0.5, word_bits=8)
    with pytest.raises(ValueError, match=r"takes 4 words, got an array of shape \(3,\)"):
        InProcess().run(protocol, np.arange(3))
    with pytest.raises(TypeError, match="words must be integers, got float64"):
        InProcess().run(protocol, np.ones(4))
    with pytest.raises(ValueError, match=r"\[0, 2\^8\), got -1 to 2"):
        InProcess().run(protocol, np.arange(-1, 3))
    with pytest.raises(ValueError, match=r"\[0, 2\^8\), got 0 to 256"):
        InProcess().run(protocol, np.array([0, 1, 2, 256]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_machines": 0}, "num_machines must be at least 1, got 0"),
        ({"word_bits": 63}, r"word_bits must lie in 1\.\.62, got 63"),
        ({"num_words": 9}, "2 machines of 4 words cannot hold 9 words"),
    ],
)
def test_protocols_that_cannot_be(change, words):
    fields = {
        "name": "p",
        "num_machines": 2,
        "local_memory": 8,
        "word_bits": 8,
        "num_words": 8,
        "words_per_machine": 4,
        "init": lambda ids, words: {},
        "steps": (),
        "output": lambda ids, memory: np.zeros((2, 0)),
        "num_outputs": 0,
    }
    with pytest.raises(ValueError, match=words):
        Protocol(**{**fields, **change})


def test_output_that_is_short_is_an_error():
    protocol = Protocol(
        "short", 2, 8, 8, 2, 1, lambda ids, w: {"w": w}, (), lambda ids, m: m["w"], 3
    )
    with pytest.raises(ValueError, match="promises 3 words of output, its machines hold 2"):
        InProcess().run(protocol, np.arange(2))


def test_steps_for_one_machine_at_a_time(engine):
    """Every machine sends its word to all that divide its number, which add up what comes."""

    @per_machine
    def tell(machine, memory, inbox):
        divisors = [d for d in range(1, machine + 1) if machine % d == 0]
        return {}, [(d, [int(memory["words"][0])]) for d in divisors]

    @per_machine
    def add(machine, memory, inbox):
        return {"sum": [sum(int(words[0]) for _, words in inbox)]}, []

    protocol = Protocol(
        name="divisors",
        num_machines=13,
        local_memory=26,
        word_bits=16,
        num_words=13,
        words_per_machine=1,
        init=lambda ids, words: {"words": words},
        steps=(Step("tell", tell, fanout=6, recv=13, width=1), Step("add", add)),
        output=lambda ids, memory: memory["sum"],
        num_outputs=13,
    )
    words = np.arange(13) + 100
    expected = [0] + [int(words[d::d].sum()) for d in range(1, 13)]
    result = engine.run(protocol, words)
    assert result.output.tolist() == expected
    assert result.trace.num_rounds == 1
    assert result.trace.num_messages == sum(len(range(d, 13, d)) for d in range(1, 13))


def test_a_trace_adds_up_and_is_json(engine):
    told = []
    protocol = prefix_sum(1000, 0.5)
    trace = engine.run(protocol, np.ones(1000, dtype=int), progress=lambda *a: told.append(a)).trace
    assert told[-1] == (len(protocol.steps), len(protocol.steps), protocol.steps[-1].name)
    content = json.loads(json.dumps(trace.to_dict()))
    assert content["num_rounds"] == trace.num_rounds == protocol.num_rounds
    assert content["num_messages"] == sum(step["num_messages"] for step in content["steps"])
    assert content["steps"][0]["name"] == "input"
    rounds = [step.round_index for step in trace.steps if step.round_index is not None]
    assert rounds == list(range(trace.num_rounds))


def test_engines_leave_the_same_trace():
    from anna_attn.mpc import Hostile

    words = np.random.default_rng(0).integers(0, 100, 300)
    protocol = sort(300, 0.5, word_bits=7)
    first, second = InProcess().run(protocol, words), Hostile(5).run(protocol, words)
    assert first.trace == second.trace
    assert np.array_equal(first.output, second.output)
