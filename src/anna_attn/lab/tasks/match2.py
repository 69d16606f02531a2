"""Match2: does another token complete mine to a multiple of M?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anna_attn.lab.tasks.task import Task
from anna_attn.training import Batch


def match2_labels(tokens: Tensor, modulus: int) -> Tensor:
    """1 where some j has x_i + x_j = 0 mod M, else 0; j may be i itself, as in the definition.

    Args: tokens (B, T) int64 in [0, modulus).
    Returns: (B, T) int64.
    Cost: O(T + M) per sequence, by a table of the residues that occur.
    Source: Liu et al. 2025 (arXiv:2509.09001), Definition 5.1.
    """
    occurs = torch.zeros(len(tokens), modulus, dtype=torch.int64)
    occurs.scatter_(1, tokens, 1)
    return occurs.gather(1, (modulus - tokens) % modulus)


@dataclass(frozen=True)
class Match2(Task):
    """Definition 5.1 on sequences whose share of matched tokens varies widely.

    The residues 1..M-1 form (M-1)/2 classes {c, M-c}. Each sequence declares some of the classes
    *paired* (their number is uniform, at least one and not all) and fixes one member of each of
    the others. It draws f ~ U(0, 1); every token is, with probability f, a uniform member of a
    uniform paired class, and otherwise the fixed member of a uniform single class. Labels are
    then computed from the definition, so a token of a paired class whose partner happens not to
    occur is a 0. About 35% of the labels are 1.

    The law is ours. The paper says "generated the same way as" a work that, as far as could be
    found, describes only a related three-term task, balanced by permuting existing examples, so
    that a random split leaks. Here the sorted sequence decides the split: no multiset of tokens
    occurs both in training and in the test.

    Args:
        length: N.
        modulus: M, odd and at least 5 (0 never occurs: it would match itself).
        crowded: then one residue per sequence, uniform in 1..M-1, takes the place of every token
            with probability g ~ U(0, 1). The law without it hardly ever shows a lone partner among
            many copies of another residue, where it is hardest to find.
    Raises: ValueError for a modulus that is even or below 5, or a length below 1.
    """

    length: int = 32
    modulus: int = 37
    crowded: bool = False

    def __post_init__(self) -> None:
        if self.modulus < 5 or self.modulus % 2 == 0:
            raise ValueError(f"modulus is {self.modulus}; accepted: an odd integer >= 5")
        if self.length < 1:
            raise ValueError(f"length is {self.length}; accepted: an integer >= 1")

    @property
    def name(self) -> str:
        """See `Task`."""
        return "match2"

    @property
    def vocab_size(self) -> int:
        """M; token 0 is never drawn."""
        return self.modulus

    @property
    def num_outputs(self) -> int:
        """0 = no match, 1 = a match."""
        return 2

    @property
    def is_causal(self) -> bool:
        """A partner may come later."""
        return False

    def draw(self, num: int, generator: torch.Generator) -> Tensor:
        """(num, length) int64 in 1..M-1, as the class says."""
        num_classes = (self.modulus - 1) // 2
        shape = (num, self.length)
        num_paired = torch.randint(1, num_classes, (num, 1), generator=generator)
        rank = torch.rand(num, num_classes, generator=generator).argsort(dim=1)
        fixed_high = torch.randint(0, 2, (num, num_classes), generator=generator)
        paired_share = torch.rand(num, 1, generator=generator)
        is_paired = torch.rand(shape, generator=generator) < paired_share
        # float64, since a float32 just below 1 times the number of classes can round up to it.
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        from_paired = (uniform * num_paired).long()
        from_single = num_paired + (uniform * (num_classes - num_paired)).long()
        token_class = rank.gather(1, torch.where(is_paired, from_paired, from_single))
        either = torch.randint(0, 2, shape, generator=generator)
        high = torch.where(is_paired, either, fixed_high.gather(1, token_class)).bool()
        low_member = token_class + 1
        tokens = torch.where(high, self.modulus - low_member, low_member)
        return self._crowd(tokens, generator) if self.crowded else tokens

    def _crowd(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        """Let one residue of each sequence take a share of its places."""
        of_sequence = (len(tokens), 1)
        share = torch.rand(of_sequence, generator=generator)
        residue = torch.randint(1, self.modulus, of_sequence, generator=generator)
        is_taken = torch.rand(tokens.shape, generator=generator) < share
        return torch.where(is_taken, residue, tokens)

    def canonical(self, sequences: Tensor) -> Tensor:
        """The sorted tokens: permutations of one sequence are one example."""
        return sequences.sort(dim=1).values

    def to_batch(
        self, sequences: Tensor, generator: torch.Generator, hops: int | None = None
    ) -> Batch:
        """Every position counts."""
        self.check_hops(hops)
        targets = match2_labels(sequences, self.modulus)
        return Batch(sequences, targets, torch.ones_like(targets, dtype=torch.bool))
