"""Induction heads: the letter that followed the last earlier occurrence of this one."""

from __future__ import annotations

from anna_attn.lab.tasks.k_hop import KHop


def induction_heads(length: int = 100, num_letters: int = 4) -> KHop:
    """The 1-hop task, without a hop token.

    Source: Liu et al. 2025 (arXiv:2509.09001), Definition 5.3, with N = 100 and 4 letters.
    """
    return KHop(length=length, num_letters=num_letters, hops=1, mixed=False)
