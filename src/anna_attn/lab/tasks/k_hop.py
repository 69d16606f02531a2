"""k-hop induction heads: follow the last earlier occurrence k times."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anna_attn.lab.tasks.task import Task
from anna_attn.training import Batch


def next_after_last(letters: Tensor, num_letters: int) -> Tensor:
    """sigma(w, i): the position after the last earlier occurrence of w_i, 0 where there is none.

    sigma(w, i) = max({0} u {j <= i : w_{j-1} = w_i}), positions from 1.

    Args: letters (B, T) int64 in [0, num_letters).
    Returns: (B, T + 1) int64; column i is sigma(w, i), and column 0 ("undefined") is 0, so that
        composing is gathering.
    Cost: O(T num_letters) per sequence.
    Source: Liu et al. 2025 (arXiv:2509.09001), Definition 5.3.
    """
    batch, length = letters.shape
    place = torch.arange(1, length + 1).expand(batch, length)
    is_letter = letters[:, None] == torch.arange(num_letters)[:, None]
    last = torch.where(is_letter, place[:, None], 0).cummax(dim=2).values
    before = torch.cat([torch.zeros_like(last[:, :, :1]), last[:, :, :-1]], dim=2)
    found = before.gather(1, letters[:, None])[:, 0]
    sigma = torch.where(found > 0, found + 1, 0)
    return torch.cat([torch.zeros_like(sigma[:, :1]), sigma], dim=1)


def hop_targets(letters: Tensor, hops: Tensor, num_letters: int) -> Tensor:
    """w at sigma^k(w, i), or num_letters ("does not exist") where a hop leads nowhere.

    Args:
        letters: (B, T) int64.
        hops: (B,) int64, k of each sequence; with k = 0 the answer is the letter itself.
    Returns: (B, T) int64 in [0, num_letters].
    Cost: O(T (num_letters + max k)) per sequence.
    Source: Liu et al. 2025, Definition 5.5.
    """
    sigma = next_after_last(letters, num_letters)
    batch, length = letters.shape
    position = torch.arange(1, length + 1).expand(batch, length)
    for step in range(int(hops.max()) if len(hops) else 0):
        position = torch.where((step < hops)[:, None], sigma.gather(1, position), position)
    undefined = torch.full_like(letters[:, :1], num_letters)
    return torch.cat([undefined, letters], dim=1).gather(1, position)


@dataclass(frozen=True)
class KHop(Task):
    """Answer w at sigma^k(w, i) at every position i (Definition 5.5).

    Letters are uniform among those that differ from the one before (no immediate repeats), as in
    Sanford et al. 2024 (arXiv:2402.09268). Tokens 0..num_letters-1 are the letters; output
    num_letters says that the answer does not exist.

    With `mixed`, the first of the `length` tokens is num_letters + k, with k uniform in 0..hops,
    and the answer there is blank (not counted); this is Sanford et al.'s data. Otherwise k is the
    same for all sequences and no token says it. The split depends on the letters alone, so a
    string seen in training with one k is never tested with another.

    Args:
        length: T, the hop token included.
        num_letters: size of the alphabet, at least 2.
        hops: k, or the largest k if mixed; at least 1.
        mixed: whether the first token carries k.
    Raises: ValueError for values out of these ranges.
    """

    length: int = 100
    num_letters: int = 4
    hops: int = 1
    mixed: bool = False

    def __post_init__(self) -> None:
        lowest = {"length": 1 + self.mixed, "num_letters": 2, "hops": 1}
        for field, least in lowest.items():
            if getattr(self, field) < least:
                raise ValueError(f"{field} is {getattr(self, field)}; accepted: >= {least}")

    @property
    def name(self) -> str:
        """ "induction_heads" for k = 1, "2_hop", ..., and "k_hop" if mixed."""
        if self.mixed:
            return "k_hop"
        return "induction_heads" if self.hops == 1 else f"{self.hops}_hop"

    @property
    def vocab_size(self) -> int:
        """The letters, and one token for each k in 0..hops if mixed."""
        return self.num_letters + (self.hops + 1 if self.mixed else 0)

    @property
    def num_outputs(self) -> int:
        """The letters, and "does not exist"."""
        return self.num_letters + 1

    @property
    def is_causal(self) -> bool:
        """Hops lead backwards."""
        return True

    def check_hops(self, hops: int | None) -> None:
        """Mixed tasks take 0..hops (there is a token for each); others any k >= 0."""
        if hops is None:
            return
        if hops < 0 or (self.mixed and hops > self.hops):
            accepted = f"0..{self.hops}" if self.mixed else ">= 0"
            raise ValueError(f"hops is {hops}; accepted by {self.name}: {accepted}, or None")

    def draw(self, num: int, generator: torch.Generator) -> Tensor:
        """(num, letters) int64 without immediate repeats; one letter fewer than tokens if mixed."""
        num_drawn = self.length - self.mixed
        first = torch.randint(0, self.num_letters, (num, 1), generator=generator)
        steps = torch.randint(1, self.num_letters, (num, num_drawn - 1), generator=generator)
        return torch.cat([first, steps], dim=1).cumsum(dim=1) % self.num_letters

    def to_batch(
        self, sequences: Tensor, generator: torch.Generator, hops: int | None = None
    ) -> Batch:
        """Every letter counts; `hops` fixes k for all sequences (used by curricula)."""
        self.check_hops(hops)
        num = len(sequences)
        if self.mixed and hops is None:
            drawn = torch.randint(0, self.hops + 1, (num,), generator=generator)
        else:
            drawn = torch.full((num,), self.hops if hops is None else hops)
        targets = hop_targets(sequences, drawn, self.num_letters)
        mask = torch.ones_like(targets, dtype=torch.bool)
        if not self.mixed:
            return Batch(sequences, targets, mask)
        blank = torch.zeros(num, 1, dtype=torch.int64)
        return Batch(
            torch.cat([self.num_letters + drawn[:, None], sequences], dim=1),
            torch.cat([blank, targets], dim=1),
            torch.cat([blank.bool(), mask], dim=1),
        )
