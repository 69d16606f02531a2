"""The trace of a run, step by step; every engine writes it here."""

from __future__ import annotations

from collections.abc import Callable

from ..model import Protocol, Step, StepTrace, Trace

Progress = Callable[[int, int, str], None]
"""Told how many steps are done, of how many, and the name of the last."""


class Record:
    """Rounds so far, and what each step used.

    Args:
        protocol: that runs.
        memory_words: kept once the input has arrived.
        progress: told after every step.
    """

    def __init__(self, protocol: Protocol, memory_words: int, progress: Progress | None):
        self.rounds = 0
        self._protocol, self._progress, self._done = protocol, progress, 0
        self._steps = [StepTrace("input", None, memory_words, 0, 0, 0)]

    def leave_out(self, step: Step) -> None:
        """A step that all machines know they need not do."""
        self._advance(step)

    def add(self, step: Step, memory: int, sent: int, received: int, messages: int) -> None:
        """The most words a machine kept, sent and received in a step, and its messages."""
        sends = step.fanout > 0
        index = self.rounds if sends else None
        self._steps.append(StepTrace(step.name, index, memory, sent, received, messages))
        self.rounds += sends
        self._advance(step)

    def trace(self) -> Trace:
        """Of all steps added."""
        protocol = self._protocol
        return Trace(
            protocol.name,
            protocol.num_machines,
            protocol.local_memory,
            protocol.word_bits,
            tuple(self._steps),
        )

    def _advance(self, step: Step) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, len(self._protocol.steps), step.name)
