"""One step on a block of machines, and every rule of the model checked on it.

All engines call this and nothing else, so that a violation has one name wherever it happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import (
    InDegreeExceeded,
    MemoryExceeded,
    NotLocal,
    ReceivedTooMuch,
    SentTooMuch,
    UnknownMachine,
    WordOutOfRange,
    WrongShape,
)
from ..model import Inbox, Memory, Protocol, Step


@dataclass(frozen=True)
class Outbox:
    """Messages of a block, in the order of sender and slot: (M,), (M,), (M,), (M, width)."""

    source: np.ndarray
    slot: np.ndarray
    destination: np.ndarray
    payload: np.ndarray

    def select(self, which: np.ndarray) -> Outbox:
        """Some of them."""
        return Outbox(
            self.source[which], self.slot[which], self.destination[which], self.payload[which]
        )


@dataclass(frozen=True)
class Done:
    """A block after a step: its memory, its messages, and the most that a machine used."""

    memory: Memory
    outbox: Outbox
    memory_words: int
    sent_words: int


def start(protocol: Protocol, ids: np.ndarray, words: np.ndarray) -> tuple[Memory, int]:
    """Memory of a block once its input has arrived, and its words a machine."""
    first = Step("input", lambda *_: (protocol.init(ids, words), None, None))
    done = run_step(protocol, first, 0, ids, {}, Inbox.empty(len(ids)))
    return done.memory, done.memory_words


def run_step(
    protocol: Protocol, step: Step, round_index: int, ids: np.ndarray, memory: Memory, inbox: Inbox
) -> Done:
    """Run a step on a block of machines and check what it leaves and sends.

    Raises: the violations of `anna_attn.mpc.errors`.
    """
    kept, destination, payload = step.fn(ids, memory, inbox)
    fields = {name: np.asarray(field) for name, field in kept.items()}
    where = (step.name, round_index)
    for name, field in fields.items():
        if field.ndim == 0 or len(field) != len(ids) or not np.issubdtype(field.dtype, np.integer):
            found = f"field {name!r} of shape {field.shape} and {field.dtype}"
            raise WrongShape(*where, None, found, f"integers with {len(ids)} rows")
        _check_words(where, f"field {name!r}", ids, field, protocol.word_bits)
        freeze(field)
    # Rows have one shape, so all machines keep as many words.
    words = sum(int(np.prod(field.shape[1:])) for field in fields.values())
    if words > protocol.local_memory and len(ids):
        raise MemoryExceeded(*where, int(ids[0]), words, protocol.local_memory)
    outbox, sent = _sent(protocol, step, round_index, ids, destination, payload)
    return Done(fields, outbox, words, sent)


def check_locality(
    step: Step, round_index: int, ids: np.ndarray, memory: Memory, inbox: Inbox, seed: int
) -> None:
    """Rerun a step on a random half of the machines: their rows must be the same.

    Raises: NotLocal naming the first machine whose row is not.
    """
    generator = np.random.default_rng([seed, round_index])
    some = np.flatnonzero(generator.random(len(ids)) < 0.5)
    if len(some) in (0, len(ids)):
        return
    whole = step.fn(ids, memory, inbox)
    part = step.fn(
        ids[some], {name: field[some] for name, field in memory.items()}, inbox.rows(some)
    )
    names = [f"field {name!r}" for name in whole[0]] + ["destination", "payload"]
    alone = [*part[0].values(), *part[1:]]
    together = [*whole[0].values(), *whole[1:]]
    for name, one, all_rows in zip(names, alone, together, strict=True):
        if one is None or all_rows is None:
            continue
        found = np.asarray(all_rows)[some]
        one = np.asarray(one)
        if found.shape != one.shape:
            if name in ("destination", "payload"):
                continue  # Unused slots may be left out; what is sent is compared by the others.
            raise NotLocal(step.name, round_index, None, f"{name} of another shape", "the same")
        differs = (found != one).reshape(len(some), -1).any(1)
        if differs.any():
            machine = int(ids[some[int(differs.argmax())]])
            raise NotLocal(
                step.name, round_index, machine, f"{name} depends on other machines", "the same row"
            )


def deliver(
    protocol: Protocol, step: Step, round_index: int, first: int, num: int, outbox: Outbox
) -> tuple[Inbox, int]:
    """Inboxes of machines first to first + num - 1, and the most words one of them received.

    Args:
        outbox: what is addressed to them, in any order.
    Raises: InDegreeExceeded, ReceivedTooMuch.
    """
    row = outbox.destination - first
    count = np.bincount(row, minlength=num).astype(np.int64)
    _check_received(protocol, step, round_index, first, count)
    order = np.argsort(row, kind="stable")
    if not _ordered(outbox, order):
        order = np.lexsort((outbox.slot, outbox.source, row))
    begins = np.cumsum(count) - count
    row, place = row[order], np.arange(len(order)) - np.repeat(begins, count)
    source = np.full((num, step.recv), -1, dtype=np.int64)
    source[row, place] = outbox.source[order]
    payload = np.zeros((num, step.recv, step.width), dtype=np.int64)
    payload[row, place] = outbox.payload[order]
    for array in (count, source, payload):
        freeze(array)
    return Inbox(count, source, payload), int(count.max(initial=0)) * (step.width + 1)


def freeze(array: np.ndarray) -> np.ndarray:
    """Make an array an error to write into: steps must leave their arguments as they are."""
    array.flags.writeable = False
    return array


def _ordered(outbox: Outbox, order: np.ndarray) -> bool:
    """Whether a stable sort by destination alone leaves senders and slots in order."""
    if len(order) < 2:
        return True
    source, slot = outbox.source, outbox.slot
    later = (source[1:] > source[:-1]) | ((source[1:] == source[:-1]) & (slot[1:] > slot[:-1]))
    return bool(later.all())


def _check_received(
    protocol: Protocol, step: Step, round_index: int, first: int, count: np.ndarray
) -> None:
    most = int(count.max(initial=0))
    if most > step.recv:
        machine = first + int(count.argmax())
        raise InDegreeExceeded(step.name, round_index, machine, most, step.recv)
    words = most * (step.width + 1)
    if words > protocol.local_memory:
        machine = first + int(count.argmax())
        raise ReceivedTooMuch(step.name, round_index, machine, words, protocol.local_memory)


def _sent(
    protocol: Protocol,
    step: Step,
    round_index: int,
    ids: np.ndarray,
    destination: np.ndarray | None,
    payload: np.ndarray | None,
) -> tuple[Outbox, int]:
    where = (step.name, round_index)
    if step.fanout == 0 and (destination is None or destination.size == 0):
        none = np.zeros(0, dtype=np.int64)
        return Outbox(none, none, none, none.reshape(0, step.width)), 0
    if destination is None or payload is None:
        raise WrongShape(*where, None, "no messages", f"destinations ({len(ids)}, {step.fanout})")
    destination, payload = np.asarray(destination), np.asarray(payload)
    fits = (
        destination.ndim == 2
        and payload.ndim == 3
        and payload.shape[:2] == destination.shape
        and len(destination) == len(ids)
        and destination.shape[1] <= step.fanout
        and payload.shape[2] <= step.width
    )
    if not fits:
        raise WrongShape(
            *where,
            None,
            f"destination {destination.shape} and payload {payload.shape}",
            f"({len(ids)}, {step.fanout}) and ({len(ids)}, {step.fanout}, {step.width})",
        )
    bad = (destination < -1) | (destination >= protocol.num_machines)
    if bad.any():
        row, slot = (int(i) for i in np.argwhere(bad)[0])
        allowed = f"0..{protocol.num_machines - 1}, or -1 for none"
        raise UnknownMachine(*where, int(ids[row]), int(destination[row, slot]), allowed)
    row, slot = np.nonzero(destination >= 0)
    words = payload[row, slot]
    if words.shape[1] < step.width:
        words = np.pad(words, ((0, 0), (0, step.width - words.shape[1])))
    _check_words(where, "a message", ids[row], words, protocol.word_bits)
    sent = np.bincount(row, minlength=len(ids)) * (step.width + 1)
    most = int(sent.max(initial=0))
    if most > protocol.local_memory:
        raise SentTooMuch(*where, int(ids[int(sent.argmax())]), most, protocol.local_memory)
    return Outbox(ids[row], slot, destination[row, slot], words.astype(np.int64)), most


def _check_words(
    where: tuple[str, int], what: str, ids: np.ndarray, words: np.ndarray, word_bits: int
) -> None:
    if words.size == 0 or (int(words.min()) >= 0 and int(words.max()) < 1 << word_bits):
        return
    bad = ((words < 0) | (words >= 1 << word_bits)).reshape(len(ids), -1)
    row = int(bad.any(1).argmax())
    word = int(words.reshape(len(ids), -1)[row, int(bad[row].argmax())])
    raise WordOutOfRange(*where, int(ids[row]), f"{word} in {what}", f"[0, 2^{word_bits})")
