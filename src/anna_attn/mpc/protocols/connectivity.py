"""Connected components by contraction: every vertex takes the name of its least neighbour."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import GroupBy, Key, Layout, RadixSort, reduce
from .sizes import Sizes

FAILURE_PROBABILITY = 1e-9
"""That a run needs more phases than the protocol has; it then ends in an error."""

_MEMORY_FACTOR = 16
"""Words a machine may use, over the items it has: what makes two digits of 20 bits."""


def num_phases(num_vertices: int) -> int:
    """Phases that suffice but with probability FAILURE_PROBABILITY: log_{4/3}(n / 1e-9), or n - 1.

    Every vertex with a neighbour takes the name of the vertex of least rank among itself and its
    neighbours, ranks being independent and uniform on [0, 1]. At most 3/4 of the n names are left
    in the mean. For the name v of rank 1 - y is left only if some u takes it. If that u is a
    neighbour, then u and its d_u - 1 other neighbours rank above v, which has probability y^d_u; if
    it is v itself, y^d_v. Summed over all v that is at most sum_u (1 + d_u) y^d_u, so at most 2 y n
    for y <= 1/2, and n in any case. The integral over y in [0, 1] is 3/4 n.
    The vertex of greatest rank of a component is never taken, so that n - 1 phases always do.
    """
    if num_vertices < 2:
        return 0
    likely = math.log(num_vertices / FAILURE_PROBABILITY) / math.log(4 / 3)
    return min(num_vertices - 1, math.ceil(likely))


def connectivity(num_vertices: int, num_edges: int, eps: float, *, seed: int = 0) -> Protocol:
    """The least vertex of every vertex's connected component.

    The input is u_0, v_0, u_1, v_1, ...: edges of vertices 0 to num_vertices - 1. Loops and
    repeated edges are allowed. An edge knows the names that its ends have now, and a vertex its
    own; at first names are vertices. In a phase all of them are grouped by name. Each name is told
    the least name next to it, in an order drawn anew in every phase, and takes it; edges within one
    name are dropped. No machine sees all edges of a name, so that stars are as good as paths. All
    machines learn whether edges are left, and leave out the phases after the last.

    Args:
        num_vertices: n.
        num_edges: m.
        eps: machines keep O(N^eps) words, with N = max(2 m, n).
        seed: of the orders.
    Returns: a protocol whose output is a vertex for every vertex, equal where they are connected.
    Cost: a phase is one sort of 2 m + n items by log2 n bits and two trees: O(1) rounds at fixed
        eps. `num_phases` phases at most, and as many as are needed: O(log n) with high
        probability; about log2 n on paths, fewer on graphs of higher degree.
    Raises: ValueError for negative sizes or edges without vertices; a run raises ValueError for
        vertices that do not exist, and RuntimeError if edges are left after the last phase.
    Source: Boegeholz, Brand, Todor 2018 (arXiv:1802.09478), who contract to the least neighbour in
        a random order; random contraction is Reif's (1985). The bound and the use of grouping are
        ours. The orders are those of a keyed bijection and not truly random.
    """
    if num_vertices < 0 or num_edges < 0:
        raise ValueError(
            f"num_vertices and num_edges must be >= 0, got {num_vertices}, {num_edges}"
        )
    if num_edges and not num_vertices:
        raise ValueError(f"{num_edges} edges need vertices, got num_vertices = 0")
    plan = _Plan.of(num_vertices, num_edges, eps)
    orders = [
        _Order.drawn(plan.name_bits, seed, phase) for phase in range(num_phases(num_vertices))
    ]
    phases = [step for phase, order in enumerate(orders) for step in plan.phase(phase, order)]
    return Protocol(
        name="connectivity",
        num_machines=plan.homes.num_machines,
        local_memory=plan.memory_words,
        word_bits=max(plan.name_bits + 2, plan.homes.num_items.bit_length() + 1),
        num_words=2 * num_edges,
        words_per_machine=2 * plan.edges.per_machine,
        init=plan.start,
        steps=(*phases, Step("no edge is left", plan.check), *plan.name_components()),
        output=lambda ids, memory: memory["component"],
        num_outputs=num_vertices,
    )


@dataclass(frozen=True)
class _Order:
    """A bijection of [0, 2^bits) that a key picks: two rounds of multiply and fold."""

    bits: int
    odd: tuple[int, int]
    shift: int

    @classmethod
    def drawn(cls, bits: int, seed: int, phase: int) -> _Order:
        generator = np.random.default_rng([seed, phase])
        first, second, shift = (int(word) for word in generator.integers(0, 1 << bits, 3))
        return cls(bits, (first | 1, second | 1), shift)

    def rank(self, name: np.ndarray) -> np.ndarray:
        """Where a name stands in the order."""
        mask, fold = (1 << self.bits) - 1, (self.bits + 1) // 2
        word = (name ^ self.shift) * self.odd[0] & mask
        word = (word ^ word >> fold) * self.odd[1] & mask
        return word ^ word >> fold

    def name(self, rank: np.ndarray) -> np.ndarray:
        """Who stands there."""
        mask, fold = (1 << self.bits) - 1, (self.bits + 1) // 2
        inverse = [pow(odd, -1, 1 << self.bits) for odd in self.odd]
        # A fold by at least half the bits undoes itself.
        word = (rank ^ rank >> fold) * inverse[1] & mask
        return ((word ^ word >> fold) * inverse[0] & mask) ^ self.shift


@dataclass(frozen=True)
class _Plan:
    """Where edges and vertices lie, and how they are grouped.

    Names are vertices + 1; 0 is no name: of an edge that is gone, of a slot that holds no vertex.
    """

    edges: Layout
    vertices: Layout
    homes: Layout
    group: GroupBy
    name_bits: int

    @classmethod
    def of(cls, num_vertices: int, num_edges: int, eps: float) -> _Plan:
        words = Sizes(max(2 * num_edges, num_vertices), eps).layout
        machines = words.num_machines
        edges = -(-num_edges // machines) or 1
        vertices = -(-num_vertices // machines) or 1
        slots = 2 * edges + vertices
        homes = Layout(slots * machines, slots)
        bits = num_vertices.bit_length() or 1
        memory = _MEMORY_FACTOR * slots
        sort = RadixSort.within(homes, 3, (Key(0, bits),), memory, optional=True)
        top = 1 << bits + 1
        return cls(
            Layout(num_edges, edges),
            Layout(num_vertices, vertices),
            homes,
            GroupBy(sort, homes, 1, np.minimum, top),
            bits,
        )

    @property
    def memory_words(self) -> int:
        """Edges, labels, which of them are still looking, and a group's work."""
        own = 2 * self.edges.per_machine + 2 * self.vertices.per_machine + 3
        return own + max(self.group.memory_words, 4 * self.homes.per_machine)

    def start(self, ids: np.ndarray, words: np.ndarray) -> Memory:
        ends = words.reshape(len(ids), -1, 2)
        num_vertices = self.vertices.num_items
        if words.size and int(words.max()) >= max(num_vertices, 1):
            raise ValueError(f"vertices must lie in [0, {num_vertices}), got {int(words.max())}")
        is_edge = self.edges.valid(ids) & (ends[..., 0] != ends[..., 1])
        exists = self.vertices.valid(ids)
        return {
            "edges": np.where(is_edge[..., None], ends + 1, 0),
            "label": np.where(exists, self.vertices.index(ids) + 1, 0),
            "looking": exists.astype(np.int64),
            "done": np.zeros((len(ids), 1), dtype=np.int64),
        }

    def phase(self, phase: int, order: _Order) -> list[Step]:
        def offer(ids: np.ndarray, memory: Memory, inbox: Inbox):
            edges, names = memory["edges"], memory["label"] * memory["looking"]
            ranks, own = order.rank(edges), order.rank(names)
            # A vertex adds what is worse than any edge, and so learns whether there is one.
            values = [ranks.min(-1), ranks.min(-1), own | 1 << self.name_bits]
            keys = [edges[..., 0], edges[..., 1], names]
            items = self._items(ids, np.concatenate(keys, 1), np.concatenate(values, 1))
            return {**memory, "items": items}, None, None

        def take(ids: np.ndarray, memory: Memory, inbox: Inbox):
            told = memory["told"][..., 0]
            e = self.edges.per_machine
            ends = np.stack([told[:, :e], told[:, e : 2 * e]], -1)
            new = order.name(ends)
            is_edge = (memory["edges"][..., :1] > 0) & (new[..., :1] != new[..., 1:])
            best = told[:, 2 * e :]
            moves = (memory["looking"] > 0) & (best < 1 << self.name_bits)
            left = is_edge.any((1, 2))[:, None].astype(np.int64)
            kept = {name: field for name, field in memory.items() if name != "told"}
            return (
                {
                    **kept,
                    "edges": np.where(is_edge, new, 0),
                    "label": np.where(moves, order.name(best), memory["label"]),
                    "looking": moves.astype(np.int64),
                    "left": left,
                },
                None,
                None,
            )

        def decide(ids: np.ndarray, memory: Memory, inbox: Inbox):
            kept = {name: field for name, field in memory.items() if name not in ("left", "any")}
            return {**kept, "done": 1 - memory["any"]}, None, None

        any_left = reduce(
            self.homes.num_machines,
            "left",
            total="any",
            width=1,
            combine=np.maximum,
            identity=np.zeros(1, dtype=np.int64),
            fan_in=self.group.sort.fan_in,
        )
        steps = (
            Step("offer", offer),
            *self.group.steps("items", out="told"),
            Step("take", take),
            *any_left,
            Step("decide", decide),
        )
        return [replace(s, name=f"phase {phase}: {s.name}", unless="done") for s in steps]

    def check(self, ids: np.ndarray, memory: Memory, inbox: Inbox):
        if memory["edges"].any():
            raise RuntimeError(
                "edges are left after the last phase, which has a probability below "
                f"{FAILURE_PROBABILITY}; run again with another seed"
            )
        return {"label": memory["label"]}, None, None

    def name_components(self) -> tuple[Step, ...]:
        """From labels that are equal in a component to its least vertex."""

        def offer(ids: np.ndarray, memory: Memory, inbox: Inbox):
            nobody = np.zeros((len(ids), 2 * self.edges.per_machine), dtype=np.int64)
            names = np.concatenate([nobody, memory["label"]], 1)
            own = np.concatenate([nobody, self.vertices.index(ids)], 1)
            return {"items": self._items(ids, names, own)}, None, None

        def settle(ids: np.ndarray, memory: Memory, inbox: Inbox):
            return {"component": memory["told"][:, 2 * self.edges.per_machine :, 0]}, None, None

        return (
            Step("offer labels", offer),
            *self.group.steps("items", out="told"),
            Step("settle", settle),
        )

    def _items(self, ids: np.ndarray, names: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.stack([names, self.homes.index(ids) + 1, values], -1)
