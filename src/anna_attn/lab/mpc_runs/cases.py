"""Every protocol by name: its options, input when none is given, and its sequential answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from anna_attn.mpc import Protocol
from anna_attn.mpc.protocols import (
    connectivity,
    cycles,
    induction_heads,
    k_hop,
    list_ranking,
    match2,
    prefix_sum,
    sort,
    three_sum,
)
from anna_attn.mpc.protocols.sort import Algorithm

from . import sequential

Option = int | str | bool
Options = Mapping[str, Option]

_THREE = np.array([0, 1, 1, 1])
"""Which words of 3-SUM's output are words of the input."""

LARGEST_CHECKED_3_SUM = 20_000
"""Words; the sequential answer takes time in their square."""


@dataclass(frozen=True)
class Problem:
    """A protocol, its input, and what decides whether an output is right.

    Attributes:
        protocol, words: to run.
        wrong: of an output, what is wrong with it in a few words; "" where it is right, None where
            that was not decided.
        shown: the output in the terms of the input, where the words on machines are others.
    """

    protocol: Protocol
    words: np.ndarray
    wrong: Callable[[np.ndarray], str | None]
    shown: Callable[[np.ndarray], np.ndarray] = lambda output: output


@dataclass(frozen=True)
class Case:
    """A protocol as the command line knows it.

    Args:
        name: on the command line.
        summary: one line.
        rounds: formula of its rounds.
        options: names and defaults.
        build: (words or None, n, eps, options, seed) -> problem; draws words where none are given.
    """

    name: str
    summary: str
    rounds: str
    build: Callable[[np.ndarray | None, int, float, Options, int], Problem]
    options: Mapping[str, Option] = field(default_factory=dict)

    def problem(
        self, words: np.ndarray | None, n: int, eps: float, options: Options, seed: int
    ) -> Problem:
        """With defaults for the options that are not given.

        Raises: ValueError for options that the protocol does not have.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            accepted = ", ".join(f"--{name}" for name in self.options) or "none"
            raise ValueError(
                f"{self.name} has no option --{unknown[0].replace('_', '-')}; it has: "
                f"{accepted.replace('_', '-')}"
            )
        return self.build(words, n, eps, {**self.options, **options}, seed)


def equals(expected: Callable[[], np.ndarray]) -> Callable[[np.ndarray], str]:
    """Right is an output that is the expected one, word for word."""

    def wrong(output: np.ndarray) -> str:
        answer = expected().reshape(-1)
        if output.shape != answer.shape:
            return f"{len(output)} words, expected {len(answer)}"
        differs = np.flatnonzero(output != answer)
        if not len(differs):
            return ""
        i = int(differs[0])
        return f"{len(differs)} words, the first at {i}: {output[i]}, expected {answer[i]}"

    return wrong


def _drawn(words: np.ndarray | None, n: int, high: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, n) if words is None else words


def _sort(words, n, eps, options, seed) -> Problem:
    bits = int(options["bits"])
    words = _drawn(words, n, 1 << bits, seed)
    algorithm = cast(Algorithm, options["algorithm"])  # `sort` refuses others.
    protocol = sort(len(words), eps, word_bits=bits, algorithm=algorithm, seed=seed)
    return Problem(protocol, words, equals(lambda: np.sort(words)))


def _prefix_sum(words, n, eps, options, seed) -> Problem:
    words = _drawn(words, n, 1 << 32, seed)
    return Problem(prefix_sum(len(words), eps), words, equals(lambda: np.cumsum(words)))


def _hops(words, n, eps, options, seed) -> Problem:
    given = words
    symbols, hops = int(options["symbols"]), int(options.get("hops", 1))
    words = _drawn(words, n, symbols, seed)
    if given is not None and words.size:
        symbols = max(symbols, int(words.max()) + 1)
    protocol = (
        k_hop(len(words), eps, num_symbols=symbols, hops=hops)
        if "hops" in options
        else induction_heads(len(words), eps, num_symbols=symbols)
    )
    answer = equals(lambda: sequential.hop_answers(words, hops, symbols))
    return Problem(protocol, words, answer)


def _match2(words, n, eps, options, seed) -> Problem:
    modulus = int(options["modulus"]) or max(1, n * n)
    words = _drawn(words, n, modulus, seed)
    protocol = match2(len(words), eps, modulus=modulus)
    return Problem(protocol, words, equals(lambda: sequential.match2(words, modulus)))


def _list_ranking(words, n, eps, options, seed) -> Problem:
    if words is None:
        order = np.random.default_rng(seed).permutation(n)
        words = np.zeros(n, dtype=np.int64)
        words[order[:-1]] = order[1:] + 1
    protocol = list_ranking(len(words), eps)
    return Problem(protocol, words, equals(lambda: sequential.list_ranks(words)))


GRAPHS = ("random", "path", "star", "cycle", "two-cycles")


def draw_graph(kind: str, n: int, num_edges: int, generator: np.random.Generator) -> np.ndarray:
    """(m, 2) edges of a graph of n vertices; `num_edges` counts for random ones alone.

    Raises: ValueError for an unknown kind.
    """
    if kind not in GRAPHS:
        raise ValueError(f"graph is {kind!r}; accepted: {', '.join(GRAPHS)}")
    if kind == "random":
        return generator.integers(0, max(n, 1), (num_edges if n else 0, 2))
    if kind in ("cycle", "two-cycles"):
        return cycles(n, 1 if kind == "cycle" else 2, generator)
    names = generator.permutation(n)
    others = names[1:]
    centre = np.full_like(others, names[0]) if kind == "star" else names[:-1]
    return np.stack([centre, others], 1)


def _connectivity(words, n, eps, options, seed) -> Problem:
    if words is None:
        num_edges = int(options["edges"]) or 2 * n
        edges = draw_graph(str(options["graph"]), n, num_edges, np.random.default_rng(seed))
        num_vertices = n
    else:
        if len(words) % 2:
            raise ValueError(f"edges are pairs of vertices, got {len(words)} words")
        edges = words.reshape(-1, 2)
        num_vertices = int(options["vertices"]) or int(edges.max(initial=-1)) + 1
    protocol = connectivity(num_vertices, len(edges), eps, seed=seed)
    answer = equals(lambda: sequential.components(num_vertices, edges))
    return Problem(protocol, edges.reshape(-1), answer)


def _three_sum(words, n, eps, options, seed) -> Problem:
    """Given words may be negative; drawn ones are symmetric about 0."""
    target = int(options["target"])
    if words is None:
        # About one triple adds up at n = 2,000, many at 20,000.
        words = np.random.default_rng(seed).integers(-(1 << 30), 1 << 30, n)
    offset = max(0, -int(words.min(initial=0)))
    moved = words + offset
    bits = max(1, int(moved.max(initial=1)).bit_length())
    protocol = three_sum(len(words), eps, target=target + 3 * offset, word_bits=bits)

    def wrong(output: np.ndarray) -> str | None:
        found, *three = output.tolist()
        if found:
            left = sorted(moved.tolist())
            for word in three:
                if word not in left:
                    return f"{word - offset} is not among the words, or not as often"
                left.remove(word)
            total = sum(three) - 3 * offset
            return "" if total == target else f"the sum is {total}, not {target}"
        if len(words) > LARGEST_CHECKED_3_SUM:
            return None
        exists = sequential.has_three_sum(words, target)
        return "three words add up to the target, none were found" if exists else ""

    return Problem(protocol, moved, wrong, lambda output: output - offset * output[0] * _THREE)


SORTING = "ceil(bits / log2 B) (2 ceil(log_f P) + 1); sample sort: see its docstring"

WORD_CASES = (
    Case("sort", "words in order", SORTING, _sort, {"bits": 32, "algorithm": "radix"}),
    Case("prefix-sum", "sums of all words up to each", "2 ceil(log_f P)", _prefix_sum),
    Case("list-ranking", "distance to the end of a list", "2 ceil(log2 N)", _list_ranking),
    Case(
        "connectivity",
        "connected components of a graph of N vertices",
        "O(log N) phases of a grouping and a reduction",
        _connectivity,
        {"graph": "random", "edges": 0, "vertices": 0},
    ),
    Case(
        "three-sum",
        "three words that add up to a target",
        "a sort, ceil(log_b B) + 1 gathers, a reduction",
        _three_sum,
        {"target": 0},
    ),
    Case(
        "match2",
        "does any word complete mine to a multiple of M?",
        "one sort + 2 ceil(log_f P) + 2",
        _match2,
        {"modulus": 0},
    ),
    Case(
        "induction-heads",
        "what came after the last earlier occurrence",
        "one sort by symbol + 3",
        _hops,
        {"symbols": 4},
    ),
    Case(
        "k-hop",
        "induction heads, k times over",
        "one sort by symbol + 3 + at most 2 bit_length(k)",
        _hops,
        {"symbols": 4, "hops": 8},
    ),
)
