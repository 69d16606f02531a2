"""From a trained softmax transformer to hard ANNA attention: the paper's distillation, and KL."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from anna_attn.nn import AnnaTransformer, Mechanism
from anna_attn.training.batch import Batch
from anna_attn.training.stages import Loss


def distill(
    model: AnnaTransformer,
    family: str,
    num_tables: int | Sequence[int],
    hashes_per_table: int | Sequence[int],
    *,
    seed: int = 0,
) -> AnnaTransformer:
    """The same weights with hard ANNA attention: the trained queries and keys are hashed.

    Nothing is trained. The model given is left as it is.

    Args:
        model: trained with softmax(beta q k^T) on unit-norm queries and keys.
        family: name of the hash family, "hyperplane" or "cross_polytope".
        num_tables, hashes_per_table: one integer, or one per layer.
        seed: of the hash functions.
    Returns: a new model.
    Raises: ValueError, as `AnnaTransformer.with_tables`.
    Source: Liu et al. 2025 (arXiv:2509.09001), experiments.
    """
    return model.with_tables(family, num_tables, hashes_per_table, seed)


def teacher_loss(
    teacher: AnnaTransformer, mechanism: Mechanism, *, temperature: float = 1.0
) -> Loss:
    """A stage's loss that fits the logits of a teacher instead of the targets.

    t^2 KL(softmax(teacher / t) || softmax(student / t)), mean over the positions that count, in
    nats; t^2 keeps the gradient's size (Hinton et al. 2015). Not in the paper, whose distillation
    trains nothing; use it with the straight-through stages.

    Args:
        teacher: a trained model; a copy is kept, in evaluation mode.
        mechanism: the teacher's, e.g. Softmax(beta).
        temperature: t > 0.
    Raises: ValueError if temperature is not positive.
    """
    if not temperature > 0.0:
        raise ValueError(f"temperature is {temperature}; accepted: > 0")
    teacher = copy.deepcopy(teacher).eval()

    def loss(logits: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = teacher(batch.tokens, key_mask=batch.key_mask, mechanism=mechanism)
        student = functional.log_softmax(logits[batch.mask] / temperature, dim=-1)
        target = functional.log_softmax(wanted[batch.mask] / temperature, dim=-1)
        divergence = functional.kl_div(student, target, reduction="batchmean", log_target=True)
        return temperature**2 * divergence

    return loss
