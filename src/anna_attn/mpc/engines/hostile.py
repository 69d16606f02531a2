"""An engine that gives a protocol nothing it was not promised; for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Memory, Protocol, Result, Step
from . import enforce
from .record import Progress, Record


@dataclass(frozen=True)
class Hostile:
    """Run a protocol in random blocks of machines that share nothing.

    Blocks are drawn anew for every step and run in random order on copies that cannot be written
    to; messages travel as bytes and arrive shuffled; and every step is checked to be local. A
    protocol that relies on the layout, the order of execution or delivery, or on writing into its
    arguments ends in an error or another output than on other engines.

    Args:
        seed: of blocks and orders.
        num_blocks: at most.
    """

    seed: int = 0
    num_blocks: int = 4

    def run(
        self, protocol: Protocol, words: np.ndarray, *, progress: Progress | None = None
    ) -> Result:
        """As `InProcess.run`."""
        generator = np.random.default_rng(self.seed)
        placed = protocol.placed(words)
        ids = enforce.freeze(np.arange(protocol.num_machines))
        memory, kept = enforce.start(protocol, ids, placed)
        record, inbox = Record(protocol, kept, progress), Inbox.empty(len(ids))
        for done, step in enumerate(protocol.steps):
            if enforce.halted(step, record.rounds, ids, memory):
                inbox = Inbox.empty(len(ids))
                record.leave_out(step)
                continue
            # All machines at once first: what a step does wrong has the name it has elsewhere.
            enforce.run_step(protocol, step, record.rounds, ids, memory, inbox)
            enforce.check_locality(step, record.rounds, ids, memory, inbox, self.seed + done)
            parts = self._blocks(generator, protocol, step, record.rounds, memory, inbox)
            memory = _joined([(which, part.memory) for which, part in parts], len(ids))
            inbox, received = Inbox.empty(len(ids)), 0
            if step.fanout > 0:
                outbox = _shuffled(generator, [part.outbox for _, part in parts], step.width)
                inbox, received = enforce.deliver(
                    protocol, step, record.rounds, 0, len(ids), outbox
                )
            record.add(
                step,
                max(part.memory_words for _, part in parts),
                max(part.sent_words for _, part in parts),
                received,
                sum(len(part.outbox.source) for _, part in parts),
            )
        output = enforce.cut(protocol, enforce.output_words(protocol, ids, memory))
        return Result(output, record.trace())

    def _blocks(
        self,
        generator: np.random.Generator,
        protocol: Protocol,
        step: Step,
        round_index: int,
        memory: Memory,
        inbox: Inbox,
    ) -> list[tuple[np.ndarray, enforce.Done]]:
        label = generator.integers(self.num_blocks, size=protocol.num_machines)
        parts = []
        for block in generator.permutation(self.num_blocks):
            which = np.flatnonzero(label == block)
            if len(which) == 0:
                continue
            own = {name: _frozen(field[which]) for name, field in memory.items()}
            part = inbox.rows(which)
            part = Inbox(_frozen(part.count), _frozen(part.source), _frozen(part.payload))
            done = enforce.run_step(protocol, step, round_index, _frozen(which), own, part)
            parts.append((which, done))
        return parts


def _frozen(array: np.ndarray) -> np.ndarray:
    return enforce.freeze(array.copy())


def _joined(parts: list[tuple[np.ndarray, Memory]], num_machines: int) -> Memory:
    memory = {}
    for name, first in parts[0][1].items():
        field = np.zeros((num_machines, *first.shape[1:]), dtype=np.int64)
        for which, own in parts:
            field[which] = own[name]
        memory[name] = field
    return memory


def _shuffled(
    generator: np.random.Generator, outboxes: list[enforce.Outbox], width: int
) -> enforce.Outbox:
    """Every message as bytes, in random order, and back."""
    rows = [
        np.column_stack([box.source, box.slot, box.destination, box.payload]) for box in outboxes
    ]
    messages = [row.astype("<i8").tobytes() for part in rows for row in part]
    order = generator.permutation(len(messages))
    words = np.frombuffer(b"".join(messages[i] for i in order), dtype="<i8")
    words = words.reshape(len(messages), 3 + width).astype(np.int64)
    return enforce.Outbox(words[:, 0], words[:, 1], words[:, 2], words[:, 3:])
