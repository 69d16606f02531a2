"""One step on a block of machines, and every rule of the model checked on it.

All engines call this and nothing else, so that a violation has one name wherever it happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import (
    Disagreement,
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
    freeze(words)
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
            found = f"field {name!r} of shape {_shape(field, len(ids))} and {field.dtype}"
            raise WrongShape(*where, None, found, "integers with n rows for n machines")
    messages = _shaped(where, step, ids, destination, payload)
    # Rows have one shape, so all machines keep as many words.
    words = sum(int(np.prod(field.shape[1:])) for field in fields.values())
    if words > protocol.local_memory and len(ids):
        raise MemoryExceeded(*where, int(ids[0]), words, protocol.local_memory)
    outbox, sent = _sent(protocol, step, round_index, ids, *messages)
    contents = [(f"field {name!r}", ids, field) for name, field in fields.items()]
    contents.append(("a message", outbox.source, outbox.payload))
    _check_words(where, contents, protocol.word_bits)
    for field in fields.values():
        freeze(field)
    return Done(fields, outbox, words, sent)


@dataclass(frozen=True)
class Flag:
    """What a block's machines hold in the field that decides whether a step is left out.

    Attributes:
        least, most: of its words.
        first: of the block's machines.
        other: the first that holds something else than `least`; None = none does.
    """

    least: int
    most: int
    first: int
    other: int | None


def flag(ids: np.ndarray, field: np.ndarray) -> Flag:
    """Of a block whose machines hold `field` (n, ...)."""
    least = int(field.min())
    differs = field.reshape(len(ids), -1)[:, 0] != least
    other = int(ids[int(differs.argmax())]) if differs.any() else None
    return Flag(least, int(field.max()), int(ids[0]), other)


def halted(step: Step, round_index: int, ids: np.ndarray, memory: Memory) -> bool:
    """`agreed` of all machines at once."""
    if step.unless is None:
        return False
    return agreed(step, round_index, [flag(ids, memory[step.unless])])


def agreed(step: Step, round_index: int, flags: list[Flag]) -> bool:
    """Whether machines leave the step out.

    Args:
        flags: of all blocks, in order.
    Raises: Disagreement where some do and some do not, or hold something else than 0 or 1.
    """
    least, most = min(one.least for one in flags), max(one.most for one in flags)
    if least == most and 0 <= least <= 1:
        return bool(most)
    others = [one.first if one.least > least else one.other for one in flags]
    machine = next((one for one in others if one is not None), flags[0].first)
    found = f"{least} to {most} in {step.unless!r}"
    raise Disagreement(step.name, round_index, machine, found, "0 on all machines, or 1 on all")


def check_locality(
    step: Step, round_index: int, ids: np.ndarray, memory: Memory, inbox: Inbox, seed: int
) -> None:
    """Rerun a step on a random half of the machines, in random order: same rows must come out.

    Raises: NotLocal naming a machine whose row is another.
    """
    generator = np.random.default_rng([seed, round_index])
    some = generator.permutation(len(ids))[: len(ids) // 2]
    if len(some) == 0:
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
    order = _by_row(row, num)
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


def output_words(protocol: Protocol, ids: np.ndarray, memory: Memory) -> np.ndarray:
    """What a block holds of the output, flat."""
    return np.asarray(protocol.output(ids, memory), dtype=np.int64).reshape(-1)


def cut(protocol: Protocol, words: np.ndarray) -> np.ndarray:
    """The output, out of what all machines hold of it.

    Raises: ValueError where that is less than the protocol promises.
    """
    if len(words) < protocol.num_outputs:
        raise ValueError(
            f"{protocol.name} promises {protocol.num_outputs} words of output, "
            f"its machines hold {len(words)}"
        )
    # The caller's own: fields of memory cannot be written to.
    return words[: protocol.num_outputs].copy()


def freeze(array: np.ndarray) -> np.ndarray:
    """Make an array an error to write into: steps must leave their arguments as they are."""
    array.flags.writeable = False
    return array


def _by_row(row: np.ndarray, num: int) -> np.ndarray:
    """A stable order by row: numpy sorts words of 16 bits by counting, several times faster."""
    order = np.argsort((row & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, (num - 1).bit_length(), 16):
        digit = (row[order] >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order


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
    too_often = count > step.recv
    if too_often.any():
        row = int(too_often.argmax())
        raise InDegreeExceeded(step.name, round_index, first + row, int(count[row]), step.recv)
    words = count * (step.width + 1)
    too_much = words > protocol.local_memory
    if too_much.any():
        row = int(too_much.argmax())
        raise ReceivedTooMuch(
            step.name, round_index, first + row, int(words[row]), protocol.local_memory
        )


def _shaped(
    where: tuple[str, int],
    step: Step,
    ids: np.ndarray,
    destination: np.ndarray | None,
    payload: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Destinations (n, up to fanout) and payloads (n, up to fanout, up to width)."""
    if step.fanout == 0 and (destination is None or destination.size == 0):
        return np.zeros((len(ids), 0), dtype=np.int64), np.zeros((len(ids), 0, 0), dtype=np.int64)
    if destination is None or payload is None:
        raise WrongShape(*where, None, "no messages", f"destinations (n, {step.fanout})")
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
            f"destination {_shape(destination, len(ids))} and payload {_shape(payload, len(ids))}",
            f"(n, {step.fanout}) and (n, {step.fanout}, {step.width})",
        )
    return destination, payload


def _shape(array: np.ndarray, num_machines: int) -> str:
    """Its shape in words that are the same for any block: n stands for one row a machine."""
    if array.ndim == 0:
        return "()"
    rows = "n" if len(array) == num_machines else "not n"
    return f"({', '.join([rows, *map(str, array.shape[1:])])})"


def _sent(
    protocol: Protocol,
    step: Step,
    round_index: int,
    ids: np.ndarray,
    destination: np.ndarray,
    payload: np.ndarray,
) -> tuple[Outbox, int]:
    where = (step.name, round_index)
    bad = (destination < -1) | (destination >= protocol.num_machines)
    if bad.any():
        row, slot = (int(i) for i in np.argwhere(bad)[0])
        allowed = f"0..{protocol.num_machines - 1}, or -1 for none"
        raise UnknownMachine(*where, int(ids[row]), int(destination[row, slot]), allowed)
    row, slot = np.nonzero(destination >= 0)
    words = payload[row, slot]
    if words.shape[1] < step.width:
        words = np.pad(words, ((0, 0), (0, step.width - words.shape[1])))
    sent = np.bincount(row, minlength=len(ids)) * (step.width + 1)
    most = int(sent.max(initial=0))
    if most > protocol.local_memory:
        first = int((sent > protocol.local_memory).argmax())
        raise SentTooMuch(*where, int(ids[first]), int(sent[first]), protocol.local_memory)
    words = words.astype(np.int64, copy=False)
    return Outbox(ids[row], slot, destination[row, slot], words), most


def _check_words(
    where: tuple[str, int],
    contents: list[tuple[str, np.ndarray, np.ndarray]],
    word_bits: int,
) -> None:
    """Demand that all words lie in [0, 2^word_bits); name the first machine that breaks it."""
    found: list[tuple[int, str]] = []
    for what, ids, words in contents:
        if words.size == 0 or (int(words.min()) >= 0 and int(words.max()) < 1 << word_bits):
            continue
        rows = words.reshape(len(ids), -1)
        bad = (rows < 0) | (rows >= 1 << word_bits)
        row = int(bad.any(1).argmax())
        word = int(rows[row, int(bad[row].argmax())])
        found.append((int(ids[row]), f"{word} in {what}"))
    if found:
        machine, words_found = min(found, key=lambda one: one[0])
        raise WordOutOfRange(*where, machine, words_found, f"[0, 2^{word_bits})")
