"""Errors of this room, under one base class that a command line can catch and print."""

from __future__ import annotations


class TrainingError(RuntimeError):
    """Training, evaluation or saving could not go on; the message is one line to print."""


class CheckpointError(TrainingError):
    """A checkpoint could not be written, read or continued from."""


class MetricsError(TrainingError):
    """The metrics file could not be written or read."""


class NonFiniteError(TrainingError):
    """A loss, gradient, weight or logit is NaN or infinite."""
