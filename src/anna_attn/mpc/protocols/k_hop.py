"""k-hop induction heads by pointer doubling."""

from __future__ import annotations

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Key, Layout, fetch, from_neighbour, place_by_slot
from .sizes import Sizes

SYMBOL, POSITION, NEXT = range(3)
"""Words of an item: w_i, i from 1, w_{i + 1}."""


def induction_heads(num_words: int, eps: float, *, num_symbols: int) -> Protocol:
    """The symbol after the last earlier occurrence of each symbol: `k_hop` with one hop.

    Source: Liu et al. 2025, Definition 5.3.
    """
    return k_hop(num_words, eps, num_symbols=num_symbols, hops=1)


def k_hop(num_words: int, eps: float, *, num_symbols: int, hops: int) -> Protocol:
    """Follow the last earlier occurrence k times.

    sigma(i) = max({0} u {j <= i : w_{j - 1} = w_i}), positions from 1; the answer at i is the
    symbol at sigma^k(i), or `num_symbols` where a hop leads nowhere.

    Items (symbol, position, next symbol) are sorted stably by symbol: the item just before an
    item's own is the last earlier occurrence. Pointers then double by request and reply. No machine
    is asked for more than its items twice, because sigma^m is injective where it is defined.

    Args:
        num_words: N.
        eps: machines keep O(N^eps) words.
        num_symbols: words lie in [0, num_symbols).
        hops: k >= 1.
    Returns: a protocol whose output is the answer at every position.
    Cost: 3 + ceil(bits of a symbol / log2 B) (2 ceil(log_f P) + 1) rounds for sigma, at most
        2 bit_length(k) for k > 1: O(log k) on top of a constant.
    Raises: ValueError for hops < 1 or num_symbols < 1.
    Source: Liu et al. 2025, Definition 5.5 and the proof of Theorem 5.6; doubling as in Sanford et
        al. 2024.
    """
    if hops < 1 or num_symbols < 1:
        raise ValueError(f"hops and num_symbols must be at least 1, got {hops}, {num_symbols}")
    sizes = Sizes(num_words, eps)
    layout = sizes.layout
    c, machines = layout.per_machine, layout.num_machines
    plan = sizes.sort(3, (Key(SYMBOL, max(1, (num_symbols - 1).bit_length())),))

    def init(ids: np.ndarray, words: np.ndarray) -> Memory:
        if words.size and int(words.max()) >= num_symbols:
            raise ValueError(f"symbols must lie in [0, {num_symbols}), got {int(words.max())}")
        return {"symbols": words}

    def first_symbol(ids: np.ndarray, memory: Memory) -> np.ndarray:
        return np.where(layout.valid(ids)[:, :1], memory["symbols"][:, :1], num_symbols)

    def to_items(ids: np.ndarray, memory: Memory, inbox: Inbox):
        symbols, index = memory["symbols"], layout.index(ids)
        following = np.concatenate([symbols[:, 1:], memory["right"]], 1)
        following = np.where(index + 1 < num_words, following, num_symbols)
        items = np.stack([symbols, index + 1, following], -1)
        return {"items": items}, None, None

    def last_item(ids: np.ndarray, memory: Memory) -> np.ndarray:
        return memory["items"][:, -1]

    def send_home(ids: np.ndarray, memory: Memory, inbox: Inbox):
        items = memory["items"]
        before = np.concatenate([memory["left"][:, None], items[:, :-1]], 1)
        # No item has position 0, so the missing neighbour of the first machine matches none.
        found = (before[..., SYMBOL] == items[..., SYMBOL]) & (before[..., POSITION] > 0)
        pointer = np.where(found, before[..., POSITION] + 1, 0)
        symbol = np.where(found, before[..., NEXT], num_symbols)
        home = np.where(layout.valid(ids), items[..., POSITION] - 1, -1)
        payload = np.stack([pointer, symbol, layout.slot(home)], -1)
        return {}, layout.machine(home), payload

    def arrive(ids: np.ndarray, memory: Memory, inbox: Inbox):
        return {"hop": place_by_slot(inbox, c, 2)}, None, None

    steps = [
        *from_neighbour(machines, first_symbol, out="right", width=1, side=1, absent=num_symbols),
        Step("items", to_items),
        *plan.steps("items"),
        *from_neighbour(machines, last_item, out="left", width=3, side=-1),
        Step("send home", send_home, c, c, 3),
        Step("arrive", arrive),
        *_doubling(layout, hops, num_symbols),
    ]
    return Protocol(
        name="k_hop" if hops > 1 else "induction_heads",
        num_machines=machines,
        # Doubling keeps hop, answer, addresses and replies; it moves 2 c replies of 4 words.
        local_memory=max(plan.memory_words, 3 * c + 6, 10 * c),
        word_bits=max(num_words.bit_length() + 1, num_symbols.bit_length(), 4),
        num_words=num_words,
        words_per_machine=c,
        init=init,
        steps=tuple(steps),
        output=lambda ids, memory: memory["answer"][..., 1],
        num_outputs=num_words,
    )


def _doubling(layout: Layout, hops: int, blank: int) -> list[Step]:
    """From `hop` = (sigma(i), symbol there) to `answer` = (sigma^k(i), symbol there)."""
    steps: list[Step] = []
    started = False
    for bit in range(hops.bit_length()):
        is_set, is_last = bool(hops >> bit & 1), bit == hops.bit_length() - 1
        if is_set and not started:
            steps.append(Step(f"bit {bit}: begin", _begin))
        moves = is_set and started
        started = started or is_set
        steps += _hop_further(layout, bit, moves, not is_last, blank)
    return steps


def _begin(ids: np.ndarray, memory: Memory, inbox: Inbox):
    return {**memory, "answer": memory["hop"]}, None, None


def _hop_further(
    layout: Layout, bit: int, moves: bool, doubles: bool, blank: int
) -> tuple[Step, ...]:
    """answer <- hop of answer, if it moves; hop <- hop of hop, if it doubles; in 2 rounds."""
    which = [name for name, wanted in (("answer", moves), ("hop", doubles)) if wanted]
    if not which:
        return ()
    num_requests = len(which) * layout.per_machine

    def address(ids: np.ndarray, memory: Memory, inbox: Inbox):
        pointers = [memory[name][..., 0] for name in which]
        return {**memory, "address": np.concatenate(pointers, 1)}, None, None

    def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
        asked = memory["address"] > 0
        got = np.stack([memory["got"][..., 0], np.where(asked, memory["got"][..., 1], blank)], -1)
        kept = {name: field for name, field in memory.items() if name not in ("address", "got")}
        parts = np.split(got, len(which), axis=1)
        return {**kept, **dict(zip(which, parts, strict=True))}, None, None

    return (
        Step(f"bit {bit}: addresses", address),
        *fetch(
            layout,
            "address",
            lambda memory: memory["hop"],
            out="got",
            num_requests=num_requests,
            recv=num_requests,
            width=2,
        ),
        Step(f"bit {bit}: hopped", settle),
    )
