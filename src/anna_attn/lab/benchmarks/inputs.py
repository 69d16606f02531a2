"""Inputs of the attention benchmark, and the exact answers its errors are measured against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

KEY_CHUNK = 8192


@dataclass(frozen=True)
class Inputs:
    """query, key (1, H, N, D) with unit rows, and value (1, H, N, D); float32."""

    query: Tensor
    key: Tensor
    value: Tensor


def clustered_inputs(
    num_tokens: int,
    num_heads: int,
    head_dim: int,
    *,
    num_clusters: int = 16,
    noise: float = 0.5,
    seed: int = 0,
) -> Inputs:
    """Draw queries and keys around common centres, so that there is something to attend to.

    A query or key is normalize(centre + noise g / sqrt(D)), a value is its key's cluster value
    plus noise g, with g standard normal; two rows of one cluster have a cosine of about
    1 / (1 + noise^2). On structureless inputs every method returns nearly the mean of all values,
    and an error would say nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    normalize = torch.nn.functional.normalize
    shape = (num_heads, num_tokens, head_dim)
    centers = normalize(torch.randn(num_heads, num_clusters, head_dim, generator=generator), dim=-1)
    meanings = torch.randn(num_heads, num_clusters, head_dim, generator=generator)

    def rows(around: Tensor, cluster: Tensor, scale: float) -> Tensor:
        drawn = torch.randn(shape, generator=generator).mul_(scale)
        for head in range(num_heads):
            drawn[head] += around[head, cluster]
        return drawn[None]

    clusters = torch.randint(0, num_clusters, (2, num_tokens), generator=generator)
    scale = noise / head_dim**0.5
    return Inputs(
        query=normalize(rows(centers, clusters[0], scale), dim=-1),
        key=normalize(rows(centers, clusters[1], scale), dim=-1),
        value=rows(meanings, clusters[1], noise),
    )


def exact_rows(
    inputs: Inputs, positions: Tensor, kernel: Callable[[Tensor], Tensor], *, is_causal: bool
) -> Tensor:
    """Dense attention at some query positions, in float64: sum_j w_ij v_j / sum_j w_ij.

    Args:
        positions: (S,) int64, the queries to compute.
        kernel: cosines (S, chunk) float64 in [-1, 1] -> weights >= 0 of the same shape.
    Returns: (1, H, S, D) float64.
    Cost: O(S N D) per head, in chunks of keys, so memory does not grow with N.
    """
    heads = []
    for query, key, value in zip(inputs.query[0], inputs.key[0], inputs.value[0], strict=True):
        rows = query[positions].double()
        total = torch.zeros(len(positions), value.shape[-1], dtype=torch.float64)
        mass = torch.zeros(len(positions), 1, dtype=torch.float64)
        for start in range(0, len(key), KEY_CHUNK):
            chunk = slice(start, start + KEY_CHUNK)
            weights = kernel((rows @ key[chunk].double().T).clamp(-1.0, 1.0))
            if is_causal:
                place = torch.arange(start, start + weights.shape[1])
                weights = weights * (place <= positions[:, None])
            total += weights @ value[chunk].double()
            mass += weights.sum(dim=1, keepdim=True)
        heads.append(total / mass)
    return torch.stack(heads)[None]


def relative_error(result: Tensor, exact: Tensor) -> float:
    """Frobenius norm of the difference over that of `exact`."""
    return float((result.double() - exact).norm() / exact.norm())
