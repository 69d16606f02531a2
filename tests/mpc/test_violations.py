"""Every rule of the model, broken on every engine, is named with step, machine and numbers."""

import pickle

import numpy as np
import pytest

from anna_attn.mpc import (
    Disagreement,
    InDegreeExceeded,
    MemoryExceeded,
    NotLocal,
    Protocol,
    ReceivedTooMuch,
    SentTooMuch,
    Step,
    UnknownMachine,
    WordOutOfRange,
    WrongShape,
)
from anna_attn.mpc.errors import first_of


def run(engine, step, *, machines=6, memory=4):
    protocol = Protocol(
        name="bad",
        num_machines=machines,
        local_memory=memory,
        word_bits=8,
        num_words=machines,
        words_per_machine=1,
        init=lambda ids, words: {"x": words},
        steps=(Step("fine", lambda ids, memory, inbox: (memory, None, None)), step),
        output=lambda ids, memory: memory["x"],
        num_outputs=machines,
    )
    return engine.run(protocol, np.arange(machines))


def sending(to, words, *, fanout, recv, width):
    """A step that sends words (width,) to to(ids) (n, fanout)."""

    def fn(ids, memory, inbox):
        payload = np.broadcast_to(np.asarray(words), (len(ids), fanout, width))
        return memory, to(ids), payload

    return Step("broken", fn, fanout, recv, width)


def keeping(change):
    return Step("broken", lambda ids, memory, inbox: ({"x": change(ids, memory["x"])}, None, None))


def self_only(ids):
    return ids[:, None]


def only(machine, to):
    return lambda ids: np.where(ids[:, None] == machine, to, -1)


CASES = {
    "memory": (
        keeping(lambda ids, x: np.repeat(x, 5, 1)),
        MemoryExceeded,
        None,
        5,
        4,
    ),
    "negative": (
        keeping(lambda ids, x: x - (ids[:, None] == 3) * 9),
        WordOutOfRange,
        3,
        "-6 in field 'x'",
        "[0, 2^8)",
    ),
    "too wide": (
        keeping(lambda ids, x: x + (ids[:, None] == 2) * 256),
        WordOutOfRange,
        2,
        "258 in field 'x'",
        "[0, 2^8)",
    ),
    "a wide message": (
        sending(self_only, [256], fanout=1, recv=1, width=1),
        WordOutOfRange,
        None,
        "256 in a message",
        "[0, 2^8)",
    ),
    "sends too much": (
        sending(
            lambda ids: np.where(ids[:, None] == 4, np.arange(3), -1),
            [1],
            fanout=3,
            recv=1,
            width=1,
        ),
        SentTooMuch,
        4,
        6,
        4,
    ),
    "receives too much": (
        sending(lambda ids: np.where(ids[:, None] < 3, 5, -1), [1], fanout=1, recv=3, width=1),
        ReceivedTooMuch,
        5,
        6,
        4,
    ),
    "receives too often": (
        sending(lambda ids: np.where(ids[:, None] < 2, 5, -1), [1], fanout=1, recv=1, width=1),
        InDegreeExceeded,
        5,
        2,
        1,
    ),
    "machine -2": (
        sending(only(1, -2), [1], fanout=1, recv=1, width=1),
        UnknownMachine,
        1,
        -2,
        "0..5, or -1 for none",
    ),
    "machine P": (
        sending(only(0, 6), [1], fanout=1, recv=1, width=1),
        UnknownMachine,
        0,
        6,
        "0..5, or -1 for none",
    ),
    "reads the machine after it": (
        keeping(lambda ids, x: np.roll(x, -1, 0)),
        NotLocal,
        None,
        "field 'x' depends on other machines",
        "the same row",
    ),
    "counts the machines": (
        keeping(lambda ids, x: np.full_like(x, len(ids))),
        NotLocal,
        None,
        "field 'x' depends on other machines",
        "the same row",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_broken_rule_is_named(engine, case):
    step, kind, machine, found, allowed = CASES[case]
    with pytest.raises(kind) as info:
        run(engine, step)
    error = info.value
    assert error.step == "broken"
    assert error.round_index == 0
    assert (error.found, error.allowed) == (found, allowed)
    if machine is not None:
        assert error.machine == machine
    for word in ("'broken'", str(found), str(allowed)):
        assert word in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def missing_rows(ids, memory, inbox):
    return {"x": memory["x"][:-1]}, None, None


def floats(ids, memory, inbox):
    return {"x": memory["x"] * 0.5}, None, None


def no_messages(ids, memory, inbox):
    return memory, None, None


def wide_payload(ids, memory, inbox):
    return memory, ids[:, None], np.zeros((len(ids), 1, 3), dtype=np.int64)


@pytest.mark.parametrize("fn", [missing_rows, floats, no_messages, wide_payload])
def test_another_shape_than_declared(engine, fn):
    fanout = 0 if fn in (missing_rows, floats) else 1
    with pytest.raises(WrongShape, match="shape: step 'broken', round 0"):
        run(engine, Step("broken", fn, fanout, fanout, fanout))


def test_writing_into_the_arguments_is_caught(engine):
    def fn(ids, memory, inbox):
        memory["x"][:] = 0
        return memory, None, None

    with pytest.raises(ValueError, match="read-only"):
        run(engine, Step("broken", fn))


@pytest.mark.parametrize(("flags", "found"), [([0, 1, 1], "0 to 1"), ([2, 2, 2], "2 to 2")])
def test_machines_that_disagree_on_stopping(engine, flags, found):
    step = Step("maybe", lambda ids, memory, inbox: (memory, None, None), unless="x")
    protocol = Protocol(
        "bad", 3, 4, 8, 3, 1, lambda ids, words: {"x": words}, (step,), lambda ids, m: m["x"], 3
    )
    with pytest.raises(Disagreement, match=f"'maybe', round 0, machine .*found {found} in 'x'"):
        engine.run(protocol, np.array(flags))


def test_the_first_of_many():
    late = ReceivedTooMuch("s", 1, 0, 9, 4)
    early = MemoryExceeded("s", 1, 7, 9, 4)
    earlier = MemoryExceeded("s", 1, 3, 9, 4)
    anybody = MemoryExceeded("s", 1, None, 9, 4)
    assert first_of([late, early, earlier]) is earlier
    assert first_of([late, earlier, anybody]) is anybody
    assert first_of([late]) is late
