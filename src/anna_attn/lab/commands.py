"""What `anna train`, `distill` and `eval` do, apart from reading their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from anna_attn.lab import atomic
from anna_attn.lab.experiments import hash_seeds
from anna_attn.lab.figures.sweep import Evaluations
from anna_attn.lab.lock import exclusive
from anna_attn.lab.recipes import Recipe, find_recipe, get_recipe
from anna_attn.lab.runs import FIXED, MAIN, start_of_fixed_stages
from anna_attn.lab.tasks import get_task
from anna_attn.nn import AnnaTransformer, Softmax
from anna_attn.training import (
    CHECKPOINT_NAME,
    TrainingBars,
    distill,
    evaluate,
    load_model,
    save_checkpoint,
    train,
)

DEFAULT_DRAWS = 10


def train_task(
    task_name: str,
    method: str,
    out: Path,
    *,
    seed: int,
    hashes_per_table: int | None,
    steps_scale: float,
    console: Console,
) -> Path:
    """Train one recipe into `out`, or continue there.

    Returns: the checkpoint of the part trained for any tables.
    Raises: OSError if `out` cannot be written or another run is writing there.
    """
    name = find_recipe(task_name, method, hashes_per_table)
    recipe = get_recipe(name, seed).scaled(steps_scale)
    console.print(recipe.task.describe())
    out.mkdir(parents=True, exist_ok=True)
    with exclusive(out):
        _train(recipe, f"{name}, seed {seed}", out, console)
        about = {"recipe": name, "seed": seed, "steps_scale": steps_scale, "task": task_name}
        atomic.write_json(out / "run.json", about)
    return out / MAIN / CHECKPOINT_NAME


def _train(recipe: Recipe, label: str, out: Path, console: Console) -> None:
    model = AnnaTransformer(recipe.model)
    sampler = recipe.task.sampler("train")
    with TrainingBars(console=console) as bars:
        bar = bars.add(label)
        train(
            model,
            sampler,
            recipe.stages,
            recipe.config,
            out_dir=out / MAIN,
            resume=True,
            progress=bar,
        )
        if recipe.fixed_stages:
            model = start_of_fixed_stages(recipe, out / MAIN / CHECKPOINT_NAME)
            train(
                model,
                sampler,
                recipe.fixed_stages,
                recipe.config,
                out_dir=out / FIXED,
                resume=True,
                progress=bars.add("its own tables"),
            )


def distill_checkpoint(
    checkpoint: Path, out: Path, *, family: str, num_tables: int, hashes_per_table: int, seed: int
) -> Path:
    """Hash the trained queries and keys of a model and save the result.

    Raises: CheckpointError if `checkpoint` is none, or `out` cannot be written.
    """
    model = distill(load_model(checkpoint), family, num_tables, hashes_per_table, seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(out, model)
    return out


def evaluate_checkpoint(
    task_name: str,
    checkpoint: Path,
    *,
    family: str | None,
    num_tables: int | None,
    hashes_per_table: int | None,
    draws: int | None,
    num_sequences: int,
    length: int | None,
    beta: float | None,
) -> dict[str, Any]:
    """Error of a saved model on test sequences.

    Args:
        family, num_tables, hashes_per_table: other tables than the model's; None = its own kind.
        draws: fresh draws of the hash functions; 0 = the tables saved with the model; None = 10.
        beta: evaluate softmax attention at this temperature instead, which has no tables.
    Returns: JSON-able: what was evaluated, errors per draw, mean and std.
    Raises: ValueError for options that exclude each other, or a model that does not fit the task.
    """
    sizes = (family, num_tables, hashes_per_table)
    if beta is not None and any(option is not None for option in (*sizes, draws)):
        raise ValueError(
            f"beta is {beta}: softmax attention has no hash tables; accepted with it: no family, "
            "num_tables, hashes_per_table or draws"
        )
    if draws is None:
        draws = 0 if beta is not None else DEFAULT_DRAWS
    if draws < 0:
        raise ValueError(f"draws is {draws}; accepted: integers >= 0, 0 = the saved tables")
    task = get_task(task_name, length=length)
    model = load_model(checkpoint)
    for field, wanted in (("vocab_size", task.vocab_size), ("num_outputs", task.num_outputs)):
        if getattr(model.config, field) != wanted:
            raise ValueError(
                f"{checkpoint} has {field} = {getattr(model.config, field)}; "
                f"accepted for {task_name}: {wanted}"
            )
    if draws > 0:
        model = model.with_tables(family, num_tables, hashes_per_table, 0)
    elif any(option is not None for option in sizes):
        raise ValueError(
            "draws is 0, which means the saved tables; accepted with other tables: draws >= 1"
        )
    seeds = hash_seeds(draws) if draws > 0 else None
    on = Evaluations(
        task=task, hash_seeds=hash_seeds(max(1, draws)), num_sequences=num_sequences, batch_size=128
    )
    found = evaluate(
        model,
        on.batches("test"),
        hash_seeds=seeds,
        mechanism=None if beta is None else Softmax(beta),
    )
    return {
        "task": task.name,
        "length": task.length,
        "checkpoint": str(checkpoint),
        "mechanism": _described(model) if beta is None else f"softmax, beta = {beta:g}",
        "num_tokens": found.num_tokens,
        "errors": list(found.errors),
        "mean": found.mean,
        "std": found.std,
    }


def _described(model: AnnaTransformer) -> str:
    """Hash tables by layer: "anna, l = 32/32, z = 8/8"."""
    layers = model.config.layers
    tables = "/".join(str(layer.num_tables) for layer in layers)
    hashes = "/".join(str(layer.hashes_per_table) for layer in layers)
    return f"anna, {layers[0].family}, l = {tables}, z = {hashes}"
