"""Low-rank attention: a sum over all tokens, told to all of them."""

from __future__ import annotations

import numpy as np

from ..model import Inbox, Memory, Protocol, Step
from ..primitives import Layout, num_levels, reduce


def low_rank_attention(
    num_tokens: int,
    tokens_per_machine: int,
    *,
    rank: int,
    value_dim: int,
    feature_bits: int,
    value_bits: int,
    fan_in: int = 2,
) -> Protocol:
    """Q' (K'^T V) on integer features: what attention is when its matrix has rank r.

    o_i = sum_a q'_ia sum_j k'_ja v_j. The r x m matrix K'^T V is summed up a tree and told to all.

    Args:
        num_tokens: N.
        tokens_per_machine: g.
        rank: r, features of a query and of a key.
        value_dim: m.
        feature_bits, value_bits: features lie in [0, 2^feature_bits), values in [0, 2^value_bits).
        fan_in: f of the tree; a node receives f - 1 matrices.
    Returns: a protocol that takes q' (r), k' (r) and v (m) of every token, and whose output are
        the values (N, m), flat.
    Cost: 2 ceil(log_f P) rounds on P = ceil(N / g) machines of O(g (r + m) + f r m) words.
    Raises: ValueError where sums do not fit in 62 bits, or for sizes below 1.
    Source: Liu et al. 2025, Definition 4.3, and the protocol behind Theorem 4.4.
    """
    sizes = {"tokens_per_machine": tokens_per_machine, "rank": rank, "value_dim": value_dim}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    tokens, width = Layout(num_tokens, tokens_per_machine), rank * value_dim
    machines = tokens.num_machines
    # k' v over all tokens, times q' over the features.
    bits = 2 * feature_bits + value_bits + num_tokens.bit_length() + rank.bit_length()
    if bits > 62:
        raise ValueError(
            f"sums need {bits} bits: features of {feature_bits}, values of {value_bits}, "
            f"{num_tokens} tokens, rank {rank}; accepted: 62"
        )

    def parts(ids: np.ndarray, memory: Memory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        each = memory["words"].reshape(len(ids), tokens_per_machine, 2 * rank + value_dim)
        query, key, value = np.split(each, [rank, 2 * rank], axis=2)
        return query, key, value

    def add_up(ids: np.ndarray, memory: Memory, inbox: Inbox):
        _, key, value = parts(ids, memory)
        own = np.einsum("nga,ngm->nam", key, value).reshape(len(ids), width)
        return {**memory, "own": own}, None, None

    def multiply(ids: np.ndarray, memory: Memory, inbox: Inbox):
        query, _, _ = parts(ids, memory)
        matrix = memory["all"].reshape(len(ids), rank, value_dim)
        return {"output": np.einsum("nga,nam->ngm", query, matrix)}, None, None

    tree = reduce(
        machines,
        "own",
        total="all",
        width=width,
        combine=np.add,
        identity=np.zeros(width, dtype=np.int64),
        fan_in=fan_in,
    )
    words = tokens_per_machine * (2 * rank + value_dim)
    moved = (fan_in - 1) * (width + 1) if num_levels(machines, fan_in) else 0
    return Protocol(
        name="low_rank_attention",
        num_machines=machines,
        local_memory=max(words + 2 * width, moved),
        word_bits=bits,
        num_words=num_tokens * (2 * rank + value_dim),
        words_per_machine=words,
        init=lambda ids, words: {"words": words},
        steps=(Step("add up", add_up), *tree, Step("multiply", multiply)),
        output=lambda ids, memory: memory["output"].reshape(len(ids), -1),
        num_outputs=num_tokens * value_dim,
    )
