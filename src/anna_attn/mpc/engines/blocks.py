"""A step as tasks on blocks of machines that share nothing, for engines that spread blocks out.

A map task runs the step on a block and splits what it sends by the block it goes to; a reduce task
gathers what is sent to a block. A violation is part of a task's report: which one an engine names
is only known once all blocks have reported. All else that a protocol raises, a task raises too.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from ..errors import ModelViolation, NotLocal, first_of
from ..model import Inbox, Memory, Protocol
from . import enforce

Result = TypeVar("Result")


@dataclass(frozen=True)
class Plan:
    """What all tasks of a run share.

    Attributes:
        protocol: without its steps, which travel one by one.
        flags: fields that decide whether some step is left out.
        bounds: block i has machines bounds[i] to bounds[i + 1] - 1.
        seed: of the checks of locality; None = no check.
    """

    protocol: Protocol
    flags: tuple[str, ...]
    bounds: np.ndarray
    seed: int | None

    def ids(self, block: int) -> np.ndarray:
        """Machines of a block."""
        return enforce.freeze(np.arange(self.bounds[block], self.bounds[block + 1]))


@dataclass(frozen=True)
class Report:
    """What the driver learns of a task: as in `enforce.Done`, and what the rules say.

    Attributes:
        shapes: of the fields kept, a machine.
        flags: of the fields that decide whether a step is left out, those that there are.
        violation: all else counts only where it is None.
    """

    memory_words: int = 0
    sent_words: int = 0
    received_words: int = 0
    num_messages: int = 0
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    flags: dict[str, enforce.Flag] = field(default_factory=dict)
    violation: ModelViolation | None = None


def start(packed: bytes, block: int, words: np.ndarray) -> tuple[Memory | None, Report]:
    """Task: a block's memory once its input has arrived."""
    plan: Plan = pickle.loads(packed)
    ids = plan.ids(block)
    done = _attempt(lambda: enforce.start(plan.protocol, ids, words))
    if isinstance(done, ModelViolation):
        return None, Report(violation=done)
    memory, most = done
    return memory, Report(memory_words=most, **_kept(plan, ids, memory))


def map_step(
    packed_plan: bytes,
    packed_step: bytes,
    round_index: int,
    block: int,
    memory: Memory,
    inbox: Inbox | None,
) -> tuple[Any, ...]:
    """Task: a step on a block -> its memory, its messages to each block if it sends, a report."""
    plan, step = pickle.loads(packed_plan), pickle.loads(packed_step)
    ids = plan.ids(block)
    inbox = Inbox.empty(len(ids)) if inbox is None else inbox
    for array in (*memory.values(), inbox.count, inbox.source, inbox.payload):
        enforce.freeze(array)

    def run() -> enforce.Done:
        done = enforce.run_step(plan.protocol, step, round_index, ids, memory, inbox)
        if plan.seed is not None:
            enforce.check_locality(step, round_index, ids, memory, inbox, plan.seed)
        return done

    done = _attempt(run)
    if isinstance(done, ModelViolation):
        sends = len(plan.bounds) - 1 if step.fanout > 0 else 0
        return (*[None] * (1 + sends), Report(violation=done))
    parts = _by_block(done.outbox, plan.bounds) if step.fanout > 0 else []
    report = Report(
        done.memory_words,
        done.sent_words,
        num_messages=len(done.outbox.source),
        **_kept(plan, ids, done.memory),
    )
    return (done.memory, *parts, report)


def reduce_step(
    packed_plan: bytes,
    packed_step: bytes,
    round_index: int,
    block: int,
    *outboxes: enforce.Outbox | None,
) -> tuple[Inbox | None, Report]:
    """Task: the inboxes of a block, of what each block sends to it."""
    boxes = [box for box in outboxes if box is not None]
    if len(boxes) < len(outboxes):
        return None, Report()  # A map task broke a rule, which is what the driver reads first.
    plan, step = pickle.loads(packed_plan), pickle.loads(packed_step)
    joined = enforce.Outbox(
        np.concatenate([box.source for box in boxes]),
        np.concatenate([box.slot for box in boxes]),
        np.concatenate([box.destination for box in boxes]),
        np.concatenate([box.payload for box in boxes]),
    )
    first, end = (int(bound) for bound in plan.bounds[block : block + 2])
    done = _attempt(
        lambda: enforce.deliver(plan.protocol, step, round_index, first, end - first, joined)
    )
    if isinstance(done, ModelViolation):
        return None, Report(violation=done)
    inbox, most = done
    return inbox, Report(received_words=most)


def output(packed: bytes, block: int, memory: Memory) -> np.ndarray:
    """Task: a block's part of the output."""
    plan: Plan = pickle.loads(packed)
    return enforce.output_words(plan.protocol, plan.ids(block), memory)


def check(name: str, round_index: int, reports: Sequence[Report]) -> None:
    """Demand that no block broke a rule, and that all keep fields of one shape a machine.

    Args:
        reports: of all blocks, in order.
    Raises: the violation that all engines name; NotLocal naming a field of another shape.
    """
    violations = [one.violation for one in reports if one.violation is not None]
    if violations:
        raise first_of(violations)
    shapes = [one.shapes for one in reports]
    for other in shapes[1:]:
        if other != shapes[0]:
            names = [*shapes[0], *other]
            odd = next(one for one in names if shapes[0].get(one) != other.get(one))
            raise NotLocal(name, round_index, None, f"field {odd!r} of another shape", "the same")


def _attempt(part: Callable[[], Result]) -> Result | ModelViolation:
    try:
        return part()
    except ModelViolation as violation:
        return violation


def _kept(plan: Plan, ids: np.ndarray, memory: Memory) -> dict[str, Any]:
    """`shapes` and `flags` of a report."""
    flags = {name: enforce.flag(ids, memory[name]) for name in plan.flags if name in memory}
    return {"shapes": {name: words.shape[1:] for name, words in memory.items()}, "flags": flags}


def _by_block(outbox: enforce.Outbox, bounds: np.ndarray) -> list[enforce.Outbox]:
    label = np.searchsorted(bounds, outbox.destination, side="right") - 1
    order = np.argsort(label, kind="stable")
    cuts = np.searchsorted(label[order], np.arange(len(bounds)))
    return [outbox.select(order[begin:end]) for begin, end in pairwise(cuts)]
