"""What one machine with enough memory answers: the yardstick of every protocol."""

from __future__ import annotations

import numpy as np


def hop_answers(symbols: np.ndarray, hops: int, blank: int) -> np.ndarray:
    """The symbol at sigma^k(i), or `blank`; O(k N)."""
    order = np.argsort(symbols, kind="stable")
    same = symbols[order[1:]] == symbols[order[:-1]]
    sigma = np.zeros(len(symbols) + 1, dtype=np.int64)
    # The place after the last earlier one of the same symbol, places from 1; 0 = none.
    sigma[order[1:][same] + 1] = order[:-1][same] + 2
    place = np.arange(len(symbols) + 1)
    for _ in range(hops):
        place = sigma[place]
    return np.concatenate([[blank], symbols])[place[1:]]


def components(num_vertices: int, edges: np.ndarray) -> np.ndarray:
    """The least vertex of every component, by union and find."""
    parent = list(range(num_vertices))

    def root(vertex: int) -> int:
        while parent[vertex] != vertex:
            parent[vertex] = parent[parent[vertex]]
            vertex = parent[vertex]
        return vertex

    for u, v in edges.tolist():
        first, second = sorted((root(u), root(v)))
        parent[second] = first
    return np.array([root(vertex) for vertex in range(num_vertices)], dtype=np.int64)


def match2(words: np.ndarray, modulus: int) -> np.ndarray:
    """1 where the residue that completes a word is among the words."""
    return np.isin((modulus - words) % modulus, words).astype(np.int64)


def list_ranks(successors: np.ndarray) -> np.ndarray:
    """Distance to the end of the list, following links backwards from the ends."""
    distance = np.zeros(len(successors), dtype=np.int64)
    before = np.full(len(successors) + 1, -1)
    before[successors] = np.arange(len(successors))
    for end in np.flatnonzero(successors == 0):
        node, steps = int(end), 0
        while node >= 0:
            distance[node], steps = steps, steps + 1
            node = int(before[node + 1])
    return distance


def has_three_sum(words: np.ndarray, target: int) -> bool:
    """Whether three words at different places add up to the target; O(N^2 log N)."""
    ordered = np.sort(words)
    for i in range(len(ordered) - 2):
        rest = ordered[i + 1 :]
        wanted = target - ordered[i] - rest
        found = np.searchsorted(rest, wanted)
        # A word must not serve twice: its partner stands after it.
        found = np.maximum(found, np.arange(1, len(rest) + 1))
        inside = found < len(rest)
        if (rest[found[inside]] == wanted[inside]).any():
            return True
    return False


def bucket_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, *, is_causal: bool
) -> np.ndarray:
    """ANNA attention of integer values: sums and counts of buckets, one token after another.

    Args:
        query, key: codes (N, H, L).
        value: (N, H, m).
    Returns: (N, H, m).
    """
    num_tokens, num_heads, num_tables = query.shape
    ones = np.ones((num_tokens, 1), dtype=np.int64)
    output = np.zeros_like(value)
    for head in range(num_heads):
        totals = np.zeros((num_tokens, value.shape[2] + 1), dtype=np.int64)
        words = np.concatenate([value[:, head], ones], 1)
        for table in range(num_tables):
            buckets: dict[int, np.ndarray] = {}
            keys, queries = key[:, head, table].tolist(), query[:, head, table].tolist()
            if not is_causal:
                for code, word in zip(keys, words, strict=True):
                    buckets[code] = buckets.get(code, 0) + word
            for token, (code, asked) in enumerate(zip(keys, queries, strict=True)):
                if is_causal:
                    buckets[code] = buckets.get(code, 0) + words[token]
                if asked in buckets:
                    totals[token] += buckets[asked]
        output[:, head] = totals[:, :-1] // np.maximum(totals[:, -1:], 1)
    return output


def softmax_average(
    scores: np.ndarray, value: np.ndarray, weights, *, is_causal: bool
) -> np.ndarray:
    """floor(sum w v / sum w) over the keys that each query sees.

    Args:
        scores: (N, N) integers of one head.
        value: (N, m) integers.
        weights: from gaps below the largest score to integers.
    """
    seen = np.tri(len(scores), dtype=bool) if is_causal else np.ones_like(scores, dtype=bool)
    if not len(scores):
        return np.zeros_like(value)
    most = np.where(seen, scores, scores.min()).max(1, keepdims=True)
    share = np.where(seen, weights(np.where(seen, most - scores, 0)), 0)
    return share @ value // share.sum(1, keepdims=True)
