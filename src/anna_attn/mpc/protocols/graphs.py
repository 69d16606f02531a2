"""Graphs that decide how hard connectivity is."""

from __future__ import annotations

import numpy as np


def cycles(num_vertices: int, num_cycles: int, generator: np.random.Generator) -> np.ndarray:
    """Edges of disjoint cycles of nearly one length, under random names and in random order.

    One cycle or two: that no protocol with O(N^eps) words a machine and polynomially many machines
    tells them apart in o(log N) rounds is the conjecture on which the paper's lower bounds rest.

    Args:
        num_vertices: of all cycles.
        num_cycles: each of at least one vertex; a cycle of one is a loop, of two a double edge.
        generator: of names and orders.
    Returns: (num_vertices, 2) edges.
    Raises: ValueError for more cycles than vertices, or none.
    Source: Liu et al. 2025, the one-versus-two-cycle conjecture.
    """
    if not 1 <= num_cycles <= num_vertices:
        raise ValueError(
            f"num_cycles must lie in 1..{num_vertices} (num_vertices), got {num_cycles}"
        )
    names = generator.permutation(num_vertices)
    edges = np.concatenate(
        [np.stack([part, np.roll(part, -1)], 1) for part in np.array_split(names, num_cycles)]
    )
    turned = generator.random(num_vertices) < 0.5
    edges[turned] = edges[turned, ::-1]
    return generator.permutation(edges)
