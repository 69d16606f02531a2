"""Stages of training, and the named sequences of them: the paper's way and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from anna_attn.nn import Expected, Mechanism, Softmax, StraightThrough
from anna_attn.training.batch import Batch, Curriculum, Sampler
from anna_attn.training.schedules import Geometric

MechanismSchedule = Callable[[float], Mechanism]
"""The attention mechanism as a function of the stage's progress in [0, 1]."""

Loss = Callable[[Tensor, Batch], Tensor]
"""A scalar from the logits (B, T, C) and the batch."""


@dataclass(frozen=True)
class EarlyStop:
    """When a stage ends before its last step; looked at after each validation.

    Args:
        target_error: end once the validation error is at most this; None = no target.
        patience: end after this many validations in a row without a new lowest error; None = never.
    Raises: ValueError if both are None, or one is out of range.
    """

    target_error: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.target_error is None and self.patience is None:
            raise ValueError("target_error and patience are both None; accepted: at least one")
        if self.target_error is not None and not 0.0 <= self.target_error <= 1.0:
            raise ValueError(f"target_error is {self.target_error}; accepted: a share in [0, 1]")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience is {self.patience}; accepted: an integer >= 1")


@dataclass(frozen=True)
class Stage:
    """One stretch of training under one mechanism, with its own optimizer and learning rate.

    Args:
        name: appears in metrics, progress and errors.
        steps: number of steps, >= 1.
        mechanism: the attention mechanism at each progress in [0, 1]; 1 is the last step.
        learning_rate: its peak; warm-up and cosine are in `TrainConfig`.
        fresh_hashes: True draws new hash tables for every step, so that the model learns for any
            draw, and leaves the model at the end of the stage with tables drawn once from the run's
            seed; False trains with the tables the model has.
        sampler: overrides the sampler given to `train`; a `Curriculum` changes it on the way.
        batch_size: overrides `TrainConfig.batch_size`.
        early_stop: None = all steps are made.
        evaluation_mechanism: used for the validation error; None = Hard().
        loss: None = mean cross-entropy over the positions that count.
    Raises: ValueError for a count or learning rate that is not positive, or an empty name.
    """

    name: str
    steps: int
    mechanism: MechanismSchedule
    learning_rate: float
    fresh_hashes: bool
    sampler: Sampler | Curriculum | None = None
    batch_size: int | None = None
    early_stop: EarlyStop | None = None
    evaluation_mechanism: Mechanism | None = None
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name is empty; accepted: a word for metrics and errors")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps} in stage {self.name!r}; accepted: >= 1")
        if not 0.0 < self.learning_rate < float("inf"):
            raise ValueError(
                f"learning_rate is {self.learning_rate} in stage {self.name!r}; accepted: > 0"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(
                f"batch_size is {self.batch_size} in stage {self.name!r}; accepted: >= 1"
            )


def softmax_surrogate_stages(
    *, beta: float, steps: int, learning_rate: float = 0.01, early_stop: EarlyStop | None = None
) -> tuple[Stage, ...]:
    """The paper's way: train softmax(beta q k^T) with unit-norm q and k; then call `distill`.

    The validation error is that of the softmax model, not of the hard one it is to become.

    Source: Liu et al. 2025 (arXiv:2509.09001), experiments; learning rate 0.01, and beta 0.1 for
        Match2, 1 for induction heads.
    """
    softmax = Softmax(beta)
    return (
        Stage(
            name="softmax",
            steps=steps,
            mechanism=lambda progress: softmax,
            learning_rate=learning_rate,
            fresh_hashes=False,
            early_stop=early_stop,
            evaluation_mechanism=softmax,
        ),
    )


def expected_stage(
    *,
    exponent: float,
    steps: int,
    start_exponent: float | None = 0.5,
    anneal_share: float = 0.8,
    floor: float = 0.3,
    learning_rate: float = 3e-3,
) -> Stage:
    """Train on the expected-collision kernel p^e / (sum p^e + floor), its exponent e annealed.

    Args:
        exponent: the exponent at the end; hashes_per_table of the tables to be used.
        start_exponent: the flat kernel's exponent, raised geometrically; None = no annealing.
        anneal_share: share of the steps over which it is raised.
        floor: keeps the kernel's denominator away from 0.
    """
    schedule = Geometric(start_exponent or exponent, exponent, anneal_share)
    return Stage(
        name="expected",
        steps=steps,
        mechanism=lambda progress: Expected(schedule(progress), floor),
        learning_rate=learning_rate,
        fresh_hashes=False,
    )


def straight_through_stage(
    *,
    exponent: float,
    steps: int,
    stray: float = 0.0,
    start_exponent: float | None = None,
    anneal_share: float = 0.7,
    learning_rate: float = 2e-3,
    early_stop: EarlyStop | None = None,
) -> Stage:
    """Train on hard counts of fresh tables forward and the collision probability backward.

    Args:
        exponent: the backward kernel's exponent at the end; hashes_per_table of the tables.
        stray: the chance of one more collision of any pair, so that the readout learns to stand
            those that a draw seldom has; see `straight_through_attention`.
        start_exponent: its exponent at the start, raised geometrically; None = no annealing.
    """
    schedule = Geometric(start_exponent or exponent, exponent, anneal_share)
    return Stage(
        name="straight_through",
        steps=steps,
        mechanism=lambda progress: StraightThrough(schedule(progress), stray),
        learning_rate=learning_rate,
        fresh_hashes=True,
        early_stop=early_stop,
    )


def fixed_tables_stage(
    *,
    exponent: float,
    steps: int,
    learning_rate: float = 1e-3,
    early_stop: EarlyStop | None = None,
) -> Stage:
    """Train straight-through on the model's own tables, which then belong to its weights."""
    return Stage(
        name="fixed_tables",
        steps=steps,
        mechanism=lambda progress: StraightThrough(exponent),
        learning_rate=learning_rate,
        fresh_hashes=False,
        early_stop=early_stop,
    )


def direct_stages(
    *,
    exponent: float,
    expected_steps: int,
    straight_through_steps: int,
    fixed_steps: int = 0,
    start_exponent: float | None = 0.5,
    anneal_share: float = 0.8,
    floor: float = 0.3,
    learning_rates: tuple[float, float, float] = (3e-3, 2e-3, 1e-3),
    early_stop: EarlyStop | None = None,
) -> tuple[Stage, ...]:
    """Our way: expected-collision kernel, then straight-through, then the model's own tables.

    Args:
        exponent: hashes_per_table.
        fixed_steps: 0 = without the last stage.
        learning_rates: the peaks of the three stages.
        early_stop: of the stages with hard codes; the first makes all its steps, since the hard
            error says little while the kernel is flat.
    """
    first = expected_stage(
        exponent=exponent,
        steps=expected_steps,
        start_exponent=start_exponent,
        anneal_share=anneal_share,
        floor=floor,
        learning_rate=learning_rates[0],
    )
    second = straight_through_stage(
        exponent=exponent,
        steps=straight_through_steps,
        learning_rate=learning_rates[1],
        early_stop=early_stop,
    )
    return (first, second, *_optional_last(exponent, fixed_steps, learning_rates[2], early_stop))


def straight_through_stages(
    *,
    exponent: float,
    steps: int,
    fixed_steps: int = 0,
    start_exponent: float | None = 2.0,
    anneal_share: float = 0.7,
    learning_rate: float = 3e-3,
    fixed_learning_rate: float = 1e-3,
    early_stop: EarlyStop | None = None,
) -> tuple[Stage, ...]:
    """Our way from scratch: straight-through on fresh tables, then the model's own tables.

    Args:
        exponent: hashes_per_table.
        fixed_steps: 0 = without the last stage.
        early_stop: of both stages.
    """
    first = straight_through_stage(
        exponent=exponent,
        steps=steps,
        start_exponent=start_exponent,
        anneal_share=anneal_share,
        learning_rate=learning_rate,
        early_stop=early_stop,
    )
    return (first, *_optional_last(exponent, fixed_steps, fixed_learning_rate, early_stop))


def _optional_last(
    exponent: float, steps: int, learning_rate: float, early_stop: EarlyStop | None
) -> tuple[Stage, ...]:
    if steps == 0:
        return ()
    stage = fixed_tables_stage(
        exponent=exponent, steps=steps, learning_rate=learning_rate, early_stop=early_stop
    )
    return (stage,)
