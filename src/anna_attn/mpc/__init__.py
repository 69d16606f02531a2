"""Massively Parallel Computation: protocols, and engines that enforce memory and rounds."""

from .engines import Hostile, InProcess, RayEngine
from .errors import (
    Disagreement,
    InDegreeExceeded,
    MemoryExceeded,
    ModelViolation,
    NotLocal,
    ReceivedTooMuch,
    SentTooMuch,
    UnknownMachine,
    WordOutOfRange,
    WrongShape,
)
from .model import Budget, Inbox, Memory, Protocol, Result, Step, StepTrace, Trace, per_machine

__all__ = [
    "Budget",
    "Disagreement",
    "Hostile",
    "InDegreeExceeded",
    "InProcess",
    "Inbox",
    "Memory",
    "MemoryExceeded",
    "ModelViolation",
    "NotLocal",
    "Protocol",
    "RayEngine",
    "ReceivedTooMuch",
    "Result",
    "SentTooMuch",
    "Step",
    "StepTrace",
    "Trace",
    "UnknownMachine",
    "WordOutOfRange",
    "WrongShape",
    "per_machine",
]
