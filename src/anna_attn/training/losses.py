"""Losses of a stage: the mean over the positions that count, and one that minds the worst."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from anna_attn.training.batch import Batch


def masked_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy over the positions that count, in nats.

    Args:
        logits: (B, T, C).
        batch: its targets and mask are used.
    """
    # ignore_index instead of indexing by the mask, which would make a GPU wait for the CPU.
    ignored = -100
    targets = batch.targets.masked_fill(~batch.mask, ignored)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=ignored)


def root_mean_square_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """sqrt(mean of the squared cross-entropies) over the positions that count, in nats.

    A position's share of the gradient grows with its own loss. Where nearly all positions are
    right and the few wrong ones are what is left to learn, the mean hardly sees them.

    Args: as `masked_cross_entropy`.
    """
    targets = batch.targets.masked_fill(~batch.mask, 0)
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    counted = batch.mask.flatten()
    squares = losses.square().masked_fill(~counted, 0.0).sum() / counted.sum()
    # Where every loss is 0 the root has no gradient; a loss below the floor is as good as none.
    floor = 1e-20
    return (squares + floor).sqrt()
