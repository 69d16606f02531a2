"""Token error over fresh draws of the hash functions, or on the model's own tables."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from anna_attn.nn import AnnaTransformer, Hard, Mechanism
from anna_attn.training.batch import Batch
from anna_attn.training.errors import NonFiniteError


@dataclass(frozen=True)
class Evaluation:
    """Errors of one model on one set of batches, one per draw of the hash functions.

    Args:
        num_tokens: positions that count, in all batches.
        num_sequences: sequences, in all batches.
        wrong_tokens: per draw, positions whose largest logit is not the target's.
        wrong_sequences: per draw, sequences with at least one wrong token.
        hash_seeds: the seed of each draw; None = the model's own tables (one entry above).
    """

    num_tokens: int
    num_sequences: int
    wrong_tokens: tuple[int, ...]
    wrong_sequences: tuple[int, ...]
    hash_seeds: tuple[int, ...] | None

    @property
    def errors(self) -> tuple[float, ...]:
        """Share of wrong tokens, per draw, in [0, 1]."""
        return tuple(wrong / self.num_tokens for wrong in self.wrong_tokens)

    @property
    def mean(self) -> float:
        """Mean of `errors` over the draws."""
        return sum(self.wrong_tokens) / (self.num_tokens * len(self.wrong_tokens))

    @property
    def std(self) -> float:
        """Sample standard deviation (n - 1) of `errors` over the draws; 0 for a single draw."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else 0.0

    @property
    def sequence_errors(self) -> tuple[float, ...]:
        """Share of sequences with at least one wrong token, per draw."""
        return tuple(wrong / self.num_sequences for wrong in self.wrong_sequences)


def evaluate(
    model: AnnaTransformer,
    batches: Iterable[Batch],
    *,
    hash_seeds: Sequence[int] | None,
    mechanism: Mechanism | None = None,
) -> Evaluation:
    """Count wrong tokens, with hard ANNA attention unless told otherwise.

    Works on a copy, so the model keeps its tables, its mode and its gradients.

    Args:
        model: any mode, any device; batches are moved to it.
        batches: what to evaluate on; each is used once per draw.
        hash_seeds: one draw of all hash tables per seed; None = the model's own tables, once.
        mechanism: None = Hard(); e.g. Softmax(beta) for the error of a softmax teacher.
    Returns: an `Evaluation`.
    Raises:
        ValueError: no batch, or an empty list of seeds.
        NonFiniteError: a logit that is NaN or infinite at a position that counts.
    Cost: (number of draws) forward passes over all batches, without gradients.
    """
    batches = tuple(batches)
    if not batches:
        raise ValueError("batches is empty; accepted: at least one Batch")
    if hash_seeds is not None and len(hash_seeds) == 0:
        raise ValueError("hash_seeds is empty; accepted: at least one seed, or None (own tables)")
    mechanism = Hard() if mechanism is None else mechanism
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    batches = tuple(batch.to(device) for batch in batches)
    counts = []
    for seed in [None] if hash_seeds is None else hash_seeds:
        if seed is not None:
            model.redraw(int(seed))
        counts.append(_count_wrong(model, batches, mechanism))
    return Evaluation(
        num_tokens=sum(int(batch.mask.sum()) for batch in batches),
        num_sequences=sum(len(batch.tokens) for batch in batches),
        wrong_tokens=tuple(tokens for tokens, _ in counts),
        wrong_sequences=tuple(sequences for _, sequences in counts),
        hash_seeds=None if hash_seeds is None else tuple(int(seed) for seed in hash_seeds),
    )


def best_hash_seed(
    model: AnnaTransformer, batches: Iterable[Batch], hash_seeds: Sequence[int]
) -> int:
    """Pick the draw of hash tables under which a model has the lowest loss.

    A model trained for any tables has only to run on its own: a draw in which no two of its keys
    share more buckets than they should is found among a few, and no training makes up for it.

    Args:
        model: any mode, any device; it is left as it is.
        batches: what to judge on; not test data, since the choice is part of training.
        hash_seeds: at least one.
    Returns: one of the seeds, the first among equals.
    Raises: ValueError: no batch, or no seed.
    Cost: (number of seeds) forward passes over all batches.
    """
    batches = tuple(batches)
    if not batches or len(hash_seeds) == 0:
        raise ValueError("batches or hash_seeds is empty; accepted: at least one of each")
    model = copy.deepcopy(model).eval()
    device = next(model.parameters()).device
    batches = tuple(batch.to(device) for batch in batches)
    losses = []
    for seed in hash_seeds:
        model.redraw(int(seed))
        losses.append(sum(_total_loss(model, batch) for batch in batches))
    return int(hash_seeds[losses.index(min(losses))])


def _total_loss(model: AnnaTransformer, batch: Batch) -> float:
    with torch.no_grad():
        logits = model(batch.tokens, key_mask=batch.key_mask, mechanism=Hard())
        loss = cross_entropy(logits[batch.mask], batch.targets[batch.mask], reduction="sum")
    return float(loss)


def _count_wrong(
    model: AnnaTransformer, batches: Sequence[Batch], mechanism: Mechanism
) -> tuple[int, int]:
    wrong_tokens = wrong_sequences = 0
    for number, batch in enumerate(batches):
        with torch.no_grad():
            logits = model(batch.tokens, key_mask=batch.key_mask, mechanism=mechanism)
        # argmax of a NaN is a class like any other and may even be right, so this is an error.
        if not bool(torch.isfinite(logits[batch.mask]).all()):
            raise NonFiniteError(f"logits of batch {number} are NaN or infinite under {mechanism}")
        wrong = (logits.argmax(dim=-1) != batch.targets) & batch.mask
        wrong_tokens += int(wrong.sum())
        wrong_sequences += int(wrong.any(dim=1).sum())
    return wrong_tokens, wrong_sequences
