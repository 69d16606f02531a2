"""The configurations that learned: models and stages for the paper's tasks, both ways.

A recipe is a model configuration, the stages it is trained by, and the settings of the run. The
paper's way trains softmax(beta q k^T) on unit rows and hashes the result; ours trains on ANNA.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anna_attn.lab.tasks import Task
from anna_attn.nn import AttentionConfig, Rotary, TransformerConfig, ValueRotary
from anna_attn.training import (
    Stage,
    TrainConfig,
    straight_through_stages,
)


@dataclass(frozen=True)
class Recipe:
    """Everything a training run needs besides its data.

    Attributes:
        method: "anna" (ours) or "softmax" (the paper's).
        family, hashes_per_table: of the tables it is meant to be evaluated with.
    """

    name: str
    method: str
    model: TransformerConfig
    stages: tuple[Stage, ...]
    config: TrainConfig
    family: str
    hashes_per_table: int
    beta: float | None = None


def log_spaced(high: float, low: float, count: int) -> tuple[float, ...]:
    """`count` values from high to low in equal ratios."""
    if count == 1:
        return (high,)
    ratio = math.log(low / high) / (count - 1)
    return tuple(high * math.exp(ratio * step) for step in range(count))


VALUE_FREQUENCIES = (0.8, 0.3, 0.1, 0.03)
"""Radians per position: the fastest tells neighbours apart, the slowest spans 100 tokens."""

POSITION_SHARPNESS = (1.2, 0.6, 0.3, 0.15)
"""Decay rates per position that the heads' distance kernels imitate at the start."""


def previous_token_layer(num_heads: int = 1, value_dim: int = 16) -> AttentionConfig:
    """A layer whose queries and keys are positions: random biases, all dims rotary.

    With every coordinate rotated, the kernel is a function of the distance from the start, and
    which distance it peaks at is learned quickly; content stays free to enter.
    """
    frequencies = log_spaced(3.0, 0.1, 16)
    return AttentionConfig(
        num_heads=num_heads,
        head_dim=32,
        value_dim=value_dim,
        family="hyperplane",
        num_tables=32,
        hashes_per_table=8,
        rotary=Rotary((frequencies,) * num_heads, bias_std=1.0),
    )


def matching_layer(num_heads: int) -> AttentionConfig:
    """A layer that matches content in one half of the dims and prefers the recent in the other.

    On rows that agree in content, (1 - angle / pi)^Z then falls about like exp(-a distance), with
    a different rate per head: plain collision counts, no decay. Rotary values tell the readout
    how far back an average came from.
    """
    hashes = 8
    frequencies = tuple(
        tuple(POSITION_SHARPNESS[head % 4] * math.pi / hashes * f for f in log_spaced(2.0, 0.2, 8))
        for head in range(num_heads)
    )
    value = tuple(f for f in VALUE_FREQUENCIES for _ in range(4))
    return AttentionConfig(
        num_heads=num_heads,
        head_dim=32,
        value_dim=32,
        family="hyperplane",
        num_tables=32,
        hashes_per_table=hashes,
        rotary=Rotary(frequencies, bias_value=1.5 / math.sqrt(16), weight_scale=0.1),
        value_rotary=ValueRotary((value,) * num_heads),
    )


def k_hop_model(task: Task, seed: int, *, heads: Sequence[int] = (1, 4)) -> TransformerConfig:
    """One previous-token layer, then matching layers; heads gives the number of each."""
    layers = (previous_token_layer(heads[0]), *(matching_layer(count) for count in heads[1:]))
    return TransformerConfig(
        vocab_size=task.vocab_size,
        num_outputs=task.num_outputs,
        layers=layers,
        is_causal=task.is_causal,
        seed=seed,
    )


def induction_ours(task: Task, seed: int, *, steps: int = 600, fixed_steps: int = 0) -> Recipe:
    """Straight-through from scratch on fresh hyperplane tables, two layers, strict ANNA."""
    return Recipe(
        name="induction_heads",
        method="anna",
        model=k_hop_model(task, seed),
        stages=straight_through_stages(exponent=8.0, steps=steps, fixed_steps=fixed_steps),
        config=TrainConfig(seed=seed, batch_size=32, warmup_steps=40),
        family="hyperplane",
        hashes_per_table=8,
    )
