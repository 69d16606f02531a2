"""All machines in one process, as rows of numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import Inbox, Protocol, Result
from . import enforce
from .record import Progress, Record


@dataclass(frozen=True)
class InProcess:
    """Run a protocol on all machines at once.

    Args:
        check_locality: rerun every step on a random half of the machines and demand the same rows,
            which catches a step that reads another machine's. Doubles the time.
        seed: of that half.
    """

    check_locality: bool = False
    seed: int = 0

    def run(
        self, protocol: Protocol, words: np.ndarray, *, progress: Progress | None = None
    ) -> Result:
        """Run to the end.

        Args:
            protocol: what to run.
            words: (N,) integers in [0, 2^p).
            progress: told after every step.
        Returns: output and trace.
        Raises: ValueError, TypeError for words that do not fit; the violations of
            `anna_attn.mpc.errors` with step, round, machine, found and allowed.
        """
        placed = protocol.placed(words)
        ids = enforce.freeze(np.arange(protocol.num_machines))
        memory, kept = enforce.start(protocol, ids, placed)
        record, inbox = Record(protocol, kept, progress), Inbox.empty(len(ids))
        for step in protocol.steps:
            if enforce.halted(step, record.rounds, ids, memory):
                inbox = Inbox.empty(len(ids))
                record.leave_out(step)
                continue
            after = enforce.run_step(protocol, step, record.rounds, ids, memory, inbox)
            if self.check_locality:
                enforce.check_locality(step, record.rounds, ids, memory, inbox, self.seed)
            memory, received = after.memory, 0
            inbox = Inbox.empty(len(ids))
            if step.fanout > 0:
                inbox, received = enforce.deliver(
                    protocol, step, record.rounds, 0, len(ids), after.outbox
                )
            record.add(
                step, after.memory_words, after.sent_words, received, len(after.outbox.source)
            )
        output = enforce.cut(protocol, enforce.output_words(protocol, ids, memory))
        return Result(output, record.trace())
