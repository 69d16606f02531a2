"""Scans, reductions and broadcasts against numpy, on all machines and on lines of them."""

import numpy as np
import pytest

from anna_attn.mpc import Protocol
from anna_attn.mpc.primitives import Line, broadcast, exclusive_scan, reduce

PRIME = 251


def affine(left, right):
    """Composition of x -> a x + b mod 251: associative, and does not commute."""
    a = left[..., 0] * right[..., 0] % PRIME
    b = (left[..., 1] * right[..., 0] + right[..., 1]) % PRIME
    return np.stack([a, b], -1)


IDENTITY = np.array([1, 0])


def run(engine, machines, steps, output):
    words = np.random.default_rng(machines).integers(1, PRIME, 2 * machines)
    protocol = Protocol(
        "tree",
        machines,
        local_memory=200,
        word_bits=16,
        num_words=2 * machines,
        words_per_machine=2,
        init=lambda ids, words: {"x": words},
        steps=steps,
        output=lambda ids, memory: memory[output],
        num_outputs=2 * machines,
    )
    result = engine.run(protocol, words)
    return words.reshape(-1, 2), result.output.reshape(-1, 2), result.trace.num_rounds


def prefixes(values):
    """Before each, and after each."""
    before, after = [IDENTITY], [IDENTITY]
    for value in values[:-1]:
        before.append(affine(before[-1], value))
    for value in values[:0:-1]:
        after.append(affine(value, after[-1]))
    return np.array(before), np.array(after[::-1])


def rounds(length, fan_in):
    return int(np.ceil(round(np.log(length) / np.log(fan_in), 9)))


@pytest.mark.parametrize("fan_in", [2, 3, 8])
@pytest.mark.parametrize("machines", [1, 2, 3, 9, 20])
def test_scan_of_what_does_not_commute(engine, machines, fan_in):
    def scan(suffix):
        return exclusive_scan(
            machines, "x", prefix="p", width=2, combine=affine, identity=IDENTITY, fan_in=fan_in,
            total=None if suffix else "t", suffix=suffix,
        )  # fmt: skip

    for field in ("p", "t", "s"):
        values, got, used = run(engine, machines, scan("s" if field == "s" else None), field)
        before, after = prefixes(values)
        total = affine(before[-1], values[-1])
        expected = {"p": before, "s": after, "t": np.tile(total, (machines, 1))}[field]
        assert np.array_equal(got, expected)
        assert used == 2 * rounds(machines, fan_in)
    _, got, _ = run(engine, machines, scan("s"), "p")
    assert np.array_equal(got, before)


LINES = [Line(6), Line(4, stride=3), Line(1), Line(3)]


@pytest.mark.parametrize("fan_in", [2, 3, 8])
@pytest.mark.parametrize("line", LINES)
def test_lines_work_at_once(engine, line, fan_in):
    machines = 12
    ids = np.arange(machines)
    places = line.place(ids)
    members = {i: [j for j in ids if line.machine(ids[i : i + 1], places[j : j + 1])[0] == j]
               for i in ids}  # fmt: skip

    def reduced(to_all):
        return reduce(
            line, "x", total="t", width=2, combine=affine, identity=IDENTITY, fan_in=fan_in,
            to_all=to_all,
        )  # fmt: skip

    values, everywhere, used = run(engine, machines, reduced(True), "t")
    assert used == 2 * rounds(line.length, fan_in)
    _, first, used = run(engine, machines, reduced(False), "t")
    assert used == rounds(line.length, fan_in)
    spread = broadcast(line, "x", out="y", width=2, fan_in=fan_in)
    _, told, used = run(engine, machines, spread, "y")
    assert used == rounds(line.length, fan_in)
    for i in ids:
        of_line = values[members[i]]
        assert len(of_line) == line.length
        before, _ = prefixes(of_line)
        total = affine(before[-1], of_line[-1])
        assert np.array_equal(everywhere[i], total)
        assert np.array_equal(first[i], total if places[i] == 0 else IDENTITY)
        assert np.array_equal(told[i], of_line[0])


def test_a_tree_branches():
    with pytest.raises(ValueError, match="fan_in must be at least 2, got 1"):
        broadcast(4, "x", out="y", width=1, fan_in=1)


def test_a_scan_gives_the_total_or_what_comes_after():
    with pytest.raises(ValueError, match="give one of total and suffix, got 't' and 's'"):
        exclusive_scan(
            4, "x", prefix="p", width=2, combine=affine, identity=IDENTITY, fan_in=2, total="t",
            suffix="s",
        )  # fmt: skip
