"""The configurations that learned: models and stages for the paper's tasks, both ways.

A recipe is a model configuration, the stages it is trained by, and the settings of the run. The
paper's way trains softmax(beta q k^T) on unit rows and hashes the result; ours trains on ANNA.
Recipes have names, so that a run can be started in another process or from the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anna_attn.lab.tasks import Task, get_task
from anna_attn.nn import AttentionConfig, Rotary, TransformerConfig, ValueRotary
from anna_attn.training import (
    Stage,
    TrainConfig,
    expected_stage,
    fixed_tables_stage,
    root_mean_square_cross_entropy,
    softmax_surrogate_stages,
    straight_through_stage,
)


@dataclass(frozen=True)
class Recipe:
    """Everything a training run needs besides its folder.

    Attributes:
        name: e.g. "match2/anna/z1".
        task: what is learned.
        method: "anna" (ours, direct) or "softmax" (the paper's surrogate).
        model: the model at the start.
        stages: trained for any draw of the tables.
        fixed_stages: then, on a copy, for the model's own tables; may be empty.
        table_draws: draws among which its own tables are chosen, on what the first of the fixed
            stages trains on; 0 = those it was built with.
        config: of the run.
        family, num_tables, hashes_per_table: of the tables it is meant for.
        beta: of the softmax surrogate.
    """

    name: str
    task: Task
    method: str
    model: TransformerConfig
    stages: tuple[Stage, ...]
    fixed_stages: tuple[Stage, ...]
    config: TrainConfig
    family: str
    num_tables: int
    hashes_per_table: int
    beta: float | None = None
    table_draws: int = 0

    @property
    def num_steps(self) -> int:
        """Steps of all stages together."""
        return sum(stage.steps for stage in (*self.stages, *self.fixed_stages))

    def scaled(self, factor: float) -> Recipe:
        """The same recipe with `factor` times the steps of every stage, at least one.

        Raises: ValueError if the factor is not positive and finite.
        """
        if not (factor > 0.0 and math.isfinite(factor)):
            raise ValueError(f"steps scale is {factor}; accepted: finite numbers > 0")
        if factor == 1.0:
            return self
        stages, fixed_stages = (
            tuple(replace(stage, steps=max(1, round(stage.steps * factor))) for stage in part)
            for part in (self.stages, self.fixed_stages)
        )
        return replace(self, stages=stages, fixed_stages=fixed_stages)


def log_spaced(high: float, low: float, count: int) -> tuple[float, ...]:
    """`count` values from high to low in equal ratios."""
    ratio = (low / high) ** (1.0 / max(1, count - 1))
    return tuple(high * ratio**step for step in range(count))


VALUE_FREQUENCIES = (0.8, 0.3, 0.1, 0.03)
"""Radians per position: the fastest tells neighbours apart, the slowest spans 100 tokens."""

SHARPNESS = (1.2, 0.6, 0.3, 0.15)
"""Decay rates per position that the heads' distance kernels imitate at the start."""

MATCH2_HEAD_DIM = 64
MATCH2_TABLES = 8
MATCH2_TRAINING_TABLES = 4
HOP_HASHES = 8
HOP_TABLES = 32


def _value_rotary(value_dim: int) -> ValueRotary:
    return ValueRotary((tuple(f for f in VALUE_FREQUENCIES for _ in range(value_dim // 8)),))


def previous_token_layer(num_heads: int = 1, value_dim: int = 16) -> AttentionConfig:
    """A layer whose queries and keys are mostly positions: random biases, all dims rotary.

    With every coordinate rotated, the kernel starts as a function of the distance, and which
    distance it peaks at is learned quickly; content stays free to enter.
    """
    return AttentionConfig(
        num_heads=num_heads,
        head_dim=32,
        value_dim=value_dim,
        family="hyperplane",
        num_tables=HOP_TABLES,
        hashes_per_table=HOP_HASHES,
        rotary=Rotary((log_spaced(3.0, 0.1, 16),), bias_std=1.0),
        value_rotary=_value_rotary(value_dim),
    )


def matching_layer(num_heads: int) -> AttentionConfig:
    """A layer that matches content in one half of the dims and prefers the recent in the other.

    On rows that agree in content, (1 - angle / pi)^Z then falls about like exp(-a distance), at a
    rate of its own per head: plain collision counts, no decay. Rotary values tell the readout how
    far back an average came from.
    """
    frequencies = tuple(
        tuple(SHARPNESS[head % 4] * math.pi / HOP_HASHES * f for f in log_spaced(2.0, 0.2, 8))
        for head in range(num_heads)
    )
    return AttentionConfig(
        num_heads=num_heads,
        head_dim=32,
        value_dim=32,
        family="hyperplane",
        num_tables=HOP_TABLES,
        hashes_per_table=HOP_HASHES,
        rotary=Rotary(frequencies, bias_value=1.5 / math.sqrt(16), weight_scale=0.1),
        value_rotary=_value_rotary(32),
    )


def _model(
    task: Task, layers: Sequence[AttentionConfig], seed: int, positions: str = "none"
) -> TransformerConfig:
    return TransformerConfig(
        vocab_size=task.vocab_size,
        num_outputs=task.num_outputs,
        width=64,
        mlp_width=256,
        layers=tuple(layers),
        positions=positions,
        max_length=task.length if positions == "learned" else None,
        is_causal=task.is_causal,
        seed=seed,
    )


def _match2_layer(hashes_per_table: int, num_tables: int = MATCH2_TABLES) -> AttentionConfig:
    return AttentionConfig(
        head_dim=MATCH2_HEAD_DIM,
        family="cross_polytope",
        num_tables=num_tables,
        hashes_per_table=hashes_per_table,
    )


def match2_anna(seed: int, hashes_per_table: int = 1) -> Recipe:
    """The expected kernel, flat at first; then hard codes of fresh tables; then the model's own.

    The high learning rate of the first stage matters: at 3e-3 one pair of residues in eighteen
    stays apart in some seeds, and no later stage brings it together. What is left after it are
    single collisions of residues that are far apart, which the readout takes for a match. Training
    on fewer tables than are used makes each of them weigh more, and strays show those that no step
    would otherwise have seen; see docs/decisions/0009-stray-collisions.md.
    """
    task = get_task("match2")
    exponent = float(hashes_per_table)
    stages = (
        expected_stage(exponent=exponent, steps=1000, start_exponent=0.2, learning_rate=1e-2),
        straight_through_stage(exponent=exponent, steps=1800, stray=0.02, learning_rate=3e-3),
    )
    own_tables = replace(
        fixed_tables_stage(exponent=exponent, steps=800),
        sampler=replace(task, crowded=True).sampler("train"),
        loss=root_mean_square_cross_entropy,
    )
    return Recipe(
        name=f"match2/anna/z{hashes_per_table}",
        task=task,
        method="anna",
        model=_model(task, [_match2_layer(hashes_per_table, MATCH2_TRAINING_TABLES)], seed),
        stages=stages,
        fixed_stages=(own_tables,),
        config=TrainConfig(seed=seed, batch_size=64),
        family="cross_polytope",
        num_tables=MATCH2_TABLES,
        hashes_per_table=hashes_per_table,
        table_draws=128,
    )


def match2_softmax(seed: int, beta: float = 0.1) -> Recipe:
    """The paper's way on the same one-layer model: softmax(0.1 q k^T), learning rate 0.01."""
    task = get_task("match2")
    return Recipe(
        name=f"match2/softmax/beta{beta:g}",
        task=task,
        method="softmax",
        model=_model(task, [_match2_layer(1)], seed),
        stages=softmax_surrogate_stages(beta=beta, steps=1500, learning_rate=0.01),
        fixed_stages=(),
        config=TrainConfig(seed=seed, batch_size=64),
        family="cross_polytope",
        num_tables=MATCH2_TABLES,
        hashes_per_table=1,
        beta=beta,
    )


def induction_softmax(seed: int, beta: float = 1.0) -> Recipe:
    """The paper's way: two layers, learned positions, softmax(q k^T), learning rate 0.01."""
    task = get_task("induction_heads")
    layer = AttentionConfig(
        num_heads=4,
        head_dim=32,
        family="cross_polytope",
        num_tables=HOP_TABLES,
        hashes_per_table=2,
    )
    return Recipe(
        name=f"induction_heads/softmax/beta{beta:g}",
        task=task,
        method="softmax",
        model=_model(task, [layer, layer], seed, positions="learned"),
        stages=softmax_surrogate_stages(beta=beta, steps=1000, learning_rate=0.01),
        fixed_stages=(),
        config=TrainConfig(seed=seed, batch_size=32),
        family="cross_polytope",
        num_tables=HOP_TABLES,
        hashes_per_table=2,
        beta=beta,
    )


def induction_rotary_softmax(seed: int, beta: float = 1.0) -> Recipe:
    """The paper's training on our architecture, to tell the two apart."""
    task = get_task("induction_heads")
    return Recipe(
        name=f"induction_heads/softmax_rotary/beta{beta:g}",
        task=task,
        method="softmax",
        model=_model(task, [previous_token_layer(), matching_layer(4)], seed),
        stages=softmax_surrogate_stages(beta=beta, steps=1000, learning_rate=0.01),
        fixed_stages=(),
        config=TrainConfig(seed=seed, batch_size=32),
        family="hyperplane",
        num_tables=HOP_TABLES,
        hashes_per_table=HOP_HASHES,
        beta=beta,
    )


def hop_anna(
    task_name: str,
    seed: int,
    *,
    heads: Sequence[int],
    steps: int,
    easier: Sequence[tuple[int, int]] = (),
) -> Recipe:
    """Straight-through from scratch: a previous-token layer, then matching layers.

    Args:
        heads: of each layer.
        steps: on the task itself.
        easier: stages on fewer hops before it, each as (hops, steps). Every stage starts its
            learning rate afresh: a rate that has decayed does not learn the next hop.
    """
    task = get_task(task_name)
    layers = [previous_token_layer(heads[0]), *(matching_layer(count) for count in heads[1:])]
    parts = [(f"{hops}_hop", task.sampler("train", hops=hops), count) for hops, count in easier]
    parts.append((task.name, task.sampler("train"), steps))
    stages = []
    for number, (name, sampler, count) in enumerate(parts):
        stage = straight_through_stage(
            exponent=float(HOP_HASHES),
            steps=count,
            # Wide gradients find the first match; later hops build on sharp ones.
            start_exponent=2.0 if number == 0 else 4.0,
            learning_rate=3e-3,
        )
        stages.append(replace(stage, name=name, sampler=sampler))
    return Recipe(
        name=f"{task_name}/anna",
        task=task,
        method="anna",
        model=_model(task, layers, seed),
        stages=tuple(stages),
        fixed_stages=(fixed_tables_stage(exponent=float(HOP_HASHES), steps=100),),
        config=TrainConfig(seed=seed, batch_size=32, warmup_steps=40),
        family="hyperplane",
        num_tables=HOP_TABLES,
        hashes_per_table=HOP_HASHES,
    )


_RECIPES: dict[str, Callable[[int], Recipe]] = {
    "match2/anna/z1": lambda seed: match2_anna(seed, 1),
    "match2/anna/z2": lambda seed: match2_anna(seed, 2),
    "match2/anna/z3": lambda seed: match2_anna(seed, 3),
    "match2/anna/z4": lambda seed: match2_anna(seed, 4),
    "match2/softmax/beta0.1": lambda seed: match2_softmax(seed, 0.1),
    "match2/softmax/beta1": lambda seed: match2_softmax(seed, 1.0),
    "induction_heads/anna": lambda seed: hop_anna("induction_heads", seed, heads=(1, 4), steps=600),
    "induction_heads/softmax/beta1": lambda seed: induction_softmax(seed, 1.0),
    "induction_heads/softmax_rotary/beta1": lambda seed: induction_rotary_softmax(seed, 1.0),
    "2_hop/anna": lambda seed: hop_anna(
        "2_hop", seed, heads=(1, 4, 4), steps=800, easier=((1, 300),)
    ),
    "4_hop/anna": lambda seed: hop_anna(
        "4_hop", seed, heads=(1, 4, 4, 4, 4), steps=600, easier=((1, 250), (2, 350))
    ),
}


def recipe_names() -> tuple[str, ...]:
    """The names `get_recipe` knows."""
    return tuple(_RECIPES)


def find_recipe(task: str, method: str, hashes_per_table: int | None = None) -> str:
    """The name of a recipe for a task and a method, "anna" or "softmax".

    Args: hashes_per_table: for tasks with a model per z; None = the first one there is.
    Raises: ValueError listing what there is.
    """
    get_task(task)
    start = f"{task}/{method}"
    names = [name for name in _RECIPES if name == start or name.startswith(f"{start}/")]
    if hashes_per_table is not None:
        names = [name for name in names if name.endswith(f"/z{hashes_per_table}")]
    if not names:
        wanted = start if hashes_per_table is None else f"{start} with z = {hashes_per_table}"
        raise ValueError(f"no recipe for {wanted}; accepted: {', '.join(_RECIPES)}")
    return names[0]


def get_recipe(name: str, seed: int) -> Recipe:
    """Build a recipe by name.

    Raises: ValueError for an unknown name; the message lists the known ones.
    """
    if name not in _RECIPES:
        raise ValueError(f"recipe is {name!r}; accepted: {', '.join(_RECIPES)}")
    return _RECIPES[name](seed)
