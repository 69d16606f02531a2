"""Traces as tables, files and pictures."""

import builtins
import json

import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.plot import _by_round
from anna_attn.mpc.protocols import connectivity, prefix_sum


@pytest.fixture(scope="module")
def trace():
    return InProcess().run(prefix_sum(100, 0.5), np.arange(100)).trace


def test_the_table_has_all_steps_and_the_totals(trace):
    lines = trace.table().splitlines()
    assert len(lines) == 1 + len(trace.steps) + 1
    assert lines[0].split() == ["round", "step", "kept", "sent", "received", "messages"]
    for line, step in zip(lines[1:], trace.steps, strict=False):
        assert step.name in line
        counts = [int(word.replace(",", "")) for word in line.split()[-4:]]
        assert counts == [
            step.memory_words, step.sent_words, step.received_words, step.num_messages,
        ]  # fmt: skip
    total = lines[-1].split()
    assert total[0] == str(trace.num_rounds)
    assert total[-4:] == [
        f"{trace.peak_memory_words:,}",
        f"{max(step.sent_words for step in trace.steps):,}",
        f"{max(step.received_words for step in trace.steps):,}",
        f"{trace.num_messages:,}",
    ]


def test_saved_traces_are_read_back(trace, tmp_path):
    read = json.loads(trace.save(tmp_path / "trace.json").read_text())
    assert read == json.loads(json.dumps(trace.to_dict()))
    assert read["peak_memory_words"] == trace.peak_memory_words


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plots(trace, tmp_path, ending):
    path = trace.plot(tmp_path / f"trace.{ending}")
    assert path.stat().st_size > 1000


def test_a_plot_has_every_round(trace):
    kept, sent, received = _by_round(trace)
    assert len(sent) == len(received) == trace.num_rounds
    assert len(kept) == trace.num_rounds + 1
    assert max(kept) == trace.peak_memory_words
    assert max(max(sent), max(received)) == trace.peak_message_words


def test_a_trace_without_rounds_is_drawn(tmp_path):
    trace = InProcess().run(prefix_sum(3, 0.5), np.arange(3)).trace
    assert trace.num_rounds == 0
    assert trace.plot(tmp_path / "trace.svg").exists()
    edges = np.array([0, 1, 1, 2])
    looped = InProcess().run(connectivity(3, 2, 0.5), edges).trace
    assert [s.round_index for s in looped.steps if s.round_index is not None] == list(
        range(looped.num_rounds)
    )


def test_without_matplotlib_the_error_names_the_extra(trace, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'anna-attn\[lab\]'"):
        trace.plot(tmp_path / "trace.png")
