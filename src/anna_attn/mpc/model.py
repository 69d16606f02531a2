"""Massively Parallel Computation: protocols as row-wise programs, and what a run leaves behind.

Machines are rows. The memory of all machines is a dict of integer arrays with one row each, and a
step is a function on rows: the same function serves one machine, a block of them, or a million.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

Memory = Mapping[str, np.ndarray]
"""Words of a set of machines: name -> (n, ...) int64."""

LARGEST_WORD_BITS = 62
"""Sums of two words, and differences, then fit in int64."""


@dataclass(frozen=True)
class Inbox:
    """What each machine of a block received in the last round, by sender, then by slot.

    Attributes:
        count (n,): messages received.
        source (n, recv): senders; -1 = none.
        payload (n, recv, width): words; 0 where there is no message.
    """

    count: Int64[np.ndarray, " n"]
    source: Int64[np.ndarray, "n recv"]
    payload: Int64[np.ndarray, "n recv width"]

    @property
    def present(self) -> np.ndarray:
        """(n, recv) bool: where there is a message."""
        return self.source >= 0

    @classmethod
    def empty(cls, num_machines: int) -> Inbox:
        """Of a round in which nothing was sent."""
        none = np.zeros((num_machines, 0), dtype=np.int64)
        return cls(np.zeros(num_machines, dtype=np.int64), none, none[..., None])

    def rows(self, block: slice | np.ndarray) -> Inbox:
        """The same of some machines."""
        return Inbox(self.count[block], self.source[block], self.payload[block])


StepFunction = Callable[
    [np.ndarray, Memory, Inbox], tuple[Memory, np.ndarray | None, np.ndarray | None]
]


@dataclass(frozen=True)
class Step:
    """Local computation, then (with fanout > 0) one round of messages.

    Args:
        name: for traces and errors.
        fn: (ids (n,), memory, inbox) -> memory, destination (n, fanout), payload (n, fanout,
            width); destination -1 = no message; None, None where fanout is 0. Row-wise: a row of
            the result depends on the same row of the arguments alone. Must not write into its
            arguments. Shapes of fields must not depend on data.
        fanout: messages a machine may send; 0 = a local step, which costs no round.
        recv: messages a machine may receive.
        width: payload words of a message, which costs one more for its address.
        unless: a field (n, 1) of 0 or 1, the same on all machines before the step, which is left
            out where it is 1: no round, no line in the trace, and what the last round delivered is
            lost. So a loop ends when all machines have been told that there is nothing left to
            do. Left out or not, the output must be the same. None = always done.
    """

    name: str
    fn: StepFunction
    fanout: int = 0
    recv: int = 0
    width: int = 0
    unless: str | None = None


@dataclass(frozen=True)
class Protocol:
    """A program for machines.

    Args:
        name: for traces and errors.
        num_machines: P.
        local_memory: s, words a machine may keep, send or receive in a round.
        word_bits: p; words lie in [0, 2^p), p <= 62.
        num_words: N, words of input. Machine i gets words i c to (i + 1) c - 1.
        words_per_machine: c; c P >= N.
        init: (ids (n,), words (n, c)) -> memory; words past the input are 0.
        steps: in order.
        output: (ids (n,), memory) -> (n, words out); the words of all machines in order are the
            output, cut to `num_outputs`.
        num_outputs: words of output.
    """

    name: str
    num_machines: int
    local_memory: int
    word_bits: int
    num_words: int
    words_per_machine: int
    init: Callable[[np.ndarray, np.ndarray], Memory]
    steps: tuple[Step, ...]
    output: Callable[[np.ndarray, Memory], np.ndarray]
    num_outputs: int

    def __post_init__(self) -> None:
        for name in ("num_machines", "local_memory", "words_per_machine"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 1 <= self.word_bits <= LARGEST_WORD_BITS:
            raise ValueError(f"word_bits must lie in 1..{LARGEST_WORD_BITS}, got {self.word_bits}")
        if self.num_machines * self.words_per_machine < self.num_words:
            raise ValueError(
                f"{self.num_machines} machines of {self.words_per_machine} words cannot hold "
                f"{self.num_words} words of input"
            )

    @property
    def num_rounds(self) -> int:
        """Steps that send; no run has more rounds."""
        return sum(step.fanout > 0 for step in self.steps)

    def placed(self, words: np.ndarray) -> Int64[np.ndarray, "P c"]:
        """The input on its machines.

        Raises: ValueError for a wrong number of words or words out of range; TypeError for what
            are no integers.
        """
        words = np.asarray(words)
        if words.shape != (self.num_words,):
            raise ValueError(
                f"{self.name} takes {self.num_words} words, got an array of shape {words.shape}"
            )
        if words.size and not np.issubdtype(words.dtype, np.integer):
            raise TypeError(f"words must be integers, got {words.dtype}")
        if words.size and (words.min() < 0 or int(words.max()) >= 1 << self.word_bits):
            raise ValueError(
                f"words must lie in [0, 2^{self.word_bits}), got {words.min()} to {words.max()}"
            )
        placed = np.zeros(self.num_machines * self.words_per_machine, dtype=np.int64)
        placed[: self.num_words] = words
        return placed.reshape(self.num_machines, self.words_per_machine)


@dataclass(frozen=True)
class Budget:
    """Machines, words each and bits of a word: what a protocol may use.

    Definition 2.3 gives each of Theta(N^(1 + gamma - eps)) machines O(N^eps) words.
    """

    num_machines: int
    local_memory: int
    word_bits: int

    def check(self, protocol: Protocol) -> None:
        """Demand that a protocol declares no more than this; engines hold it to what it declares.

        Raises: ValueError naming what the protocol needs and what the budget has.
        """
        for name in ("num_machines", "local_memory", "word_bits"):
            needs, has = getattr(protocol, name), getattr(self, name)
            if needs > has:
                raise ValueError(f"{protocol.name} needs {name} = {needs}, the budget has {has}")

    @classmethod
    def from_exponents(
        cls,
        num_words: int,
        eps: float,
        gamma: float = 0.0,
        *,
        memory_factor: float = 1.0,
        machine_factor: float = 1.0,
        word_bits: int = 32,
    ) -> Budget:
        """memory_factor N^eps words on each of machine_factor N^(1 + gamma - eps) machines.

        Raises: ValueError for eps outside (0, 1), gamma < 0, or N < 0.
        Source: Liu et al. 2025, Definition 2.3, with its constants as factors.
        """
        if not 0.0 < eps < 1.0:
            raise ValueError(f"eps must lie in (0, 1), got {eps!r}")
        if gamma < 0.0 or num_words < 0:
            raise ValueError(f"gamma and num_words must be >= 0, got {gamma!r}, {num_words!r}")
        size = max(num_words, 1)
        return cls(
            max(1, math.ceil(machine_factor * size ** (1.0 + gamma - eps))),
            max(1, math.ceil(memory_factor * size**eps)),
            word_bits,
        )


@dataclass(frozen=True)
class StepTrace:
    """What one step used at most on any machine.

    Attributes:
        name: of the step.
        round_index: which round it sent in, from 0; None for a local step.
        memory_words, sent_words, received_words: the largest of any machine.
        num_messages: of all machines.
    """

    name: str
    round_index: int | None
    memory_words: int
    sent_words: int
    received_words: int
    num_messages: int


@dataclass(frozen=True)
class Trace:
    """What a run used.

    Attributes:
        protocol: its name.
        num_machines, local_memory, word_bits: the budget.
        steps: in order; the first is the input's arrival.
    """

    protocol: str
    num_machines: int
    local_memory: int
    word_bits: int
    steps: tuple[StepTrace, ...]

    @property
    def num_rounds(self) -> int:
        """Rounds of messages."""
        return sum(step.round_index is not None for step in self.steps)

    @property
    def peak_memory_words(self) -> int:
        """The most that any machine kept after any step."""
        return max(step.memory_words for step in self.steps)

    @property
    def peak_message_words(self) -> int:
        """The most that any machine sent or received in any round."""
        return max(max(step.sent_words, step.received_words) for step in self.steps)

    @property
    def num_messages(self) -> int:
        """Of all machines and rounds."""
        return sum(step.num_messages for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the fields, and the totals."""
        totals = {
            name: getattr(self, name)
            for name in ("num_rounds", "peak_memory_words", "peak_message_words", "num_messages")
        }
        fields = asdict(self)
        fields["steps"] = [asdict(step) for step in self.steps]
        return {**fields, **totals}

    def save(self, path: Path | str) -> Path:
        """Write `to_dict` as JSON.

        Raises: OSError.
        """
        path = Path(path)
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        return path

    def table(self) -> str:
        """Lines of text: a step each, with its round and the most words of any machine; totals."""
        rows = [["round", "step", "kept", "sent", "received", "messages"]]
        for step in self.steps:
            index = "" if step.round_index is None else str(step.round_index + 1)
            counts = (step.memory_words, step.sent_words, step.received_words, step.num_messages)
            rows.append([index, step.name, *(f"{count:,}" for count in counts)])
        sent = max(step.sent_words for step in self.steps)
        received = max(step.received_words for step in self.steps)
        totals = (self.peak_memory_words, sent, received, self.num_messages)
        name = f"{self.protocol}: {self.num_machines:,} machines of {self.local_memory:,} words"
        rows.append([str(self.num_rounds), name, *(f"{total:,}" for total in totals)])
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column == 1 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )

    def plot(self, path: Path | str) -> Path:
        """Draw memory and traffic per round with matplotlib; see `anna_attn.mpc.plot`."""
        from .plot import plot_trace

        return plot_trace(self, path)


@dataclass(frozen=True)
class Result:
    """Output words and the trace of the run that gave them."""

    output: Int64[np.ndarray, " num_outputs"]
    trace: Trace


def per_machine(
    fn: Callable[[int, dict[str, np.ndarray], list[tuple[int, np.ndarray]]], Any],
) -> StepFunction:
    """Write a step for one machine at a time; for reading and small sizes.

    Args:
        fn: (id, memory of that machine, [(sender, payload), ...]) -> (memory, [(destination,
            payload), ...]). The messages may be fewer than the step's fanout.
    Returns: the row-wise function; it learns fanout and width from the longest list, so wrap it in
        a `Step` that declares them.
    """

    def rows(ids: np.ndarray, memory: Memory, inbox: Inbox):
        states, outboxes = [], []
        for row, machine in enumerate(ids):
            received = [
                (int(inbox.source[row, slot]), inbox.payload[row, slot])
                for slot in range(int(inbox.count[row]))
            ]
            own = {name: field[row] for name, field in memory.items()}
            state, outbox = fn(int(machine), own, received)
            states.append(state)
            outboxes.append([(to, np.asarray(words, dtype=np.int64)) for to, words in outbox])
        names = list(states[0]) if states else list(memory)
        kept = {
            name: np.stack([np.asarray(state[name], dtype=np.int64) for state in states])
            if states
            else memory[name]
            for name in names
        }
        return (kept, *_boxes(outboxes))

    return rows


def _boxes(outboxes: list[list[tuple[int, np.ndarray]]]) -> tuple[np.ndarray, np.ndarray]:
    fanout = max((len(box) for box in outboxes), default=0)
    width = max((len(words) for box in outboxes for _, words in box), default=0)
    destination = np.full((len(outboxes), fanout), -1, dtype=np.int64)
    payload = np.zeros((len(outboxes), fanout, width), dtype=np.int64)
    for row, box in enumerate(outboxes):
        for slot, (to, words) in enumerate(box):
            destination[row, slot] = to
            payload[row, slot, : len(words)] = words
    return destination, payload
