"""How a run is made, apart from its stages and its data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; together with stages, sampler and model they fix its weights.

    Args:
        seed: of the batches, the hash functions and the validation data.
        batch_size: sequences a step; a stage may override it.
        betas, weight_decay: of AdamW.
        clip_norm: largest Euclidean norm of the whole gradient.
        warmup_steps: of each stage's learning rate.
        final_learning_rate_share: the end of each stage's cosine, as a share of its peak.
        validate_every: steps between validations; 0 = none. A stage's last step validates too.
        validation_batches: batches drawn once for validation, from streams no step uses.
        validation_draws: hash draws a validation averages over; one, the model's own tables, in
            stages that keep them fixed.
        checkpoint_every: steps between checkpoints; the end of a stage is saved too.
        log_every: steps between lines of metrics; steps that validate have one too.
    Raises: ValueError for a setting out of range.
    """

    seed: int = 0
    batch_size: int = 64
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    warmup_steps: int = 50
    final_learning_rate_share: float = 0.03
    validate_every: int = 0
    validation_batches: int = 4
    validation_draws: int = 1
    checkpoint_every: int = 100
    log_every: int = 10

    def __post_init__(self) -> None:
        positive = (
            "batch_size",
            "clip_norm",
            "validation_batches",
            "validation_draws",
            "checkpoint_every",
            "log_every",
        )
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: > 0")
        for name in ("weight_decay", "warmup_steps", "validate_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: >= 0")
        if not 0.0 <= self.final_learning_rate_share <= 1.0:
            raise ValueError(
                f"final_learning_rate_share is {self.final_learning_rate_share}; accepted: [0, 1]"
            )
        if len(self.betas) != 2 or not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; accepted: two numbers in [0, 1)")
