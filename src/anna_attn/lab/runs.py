"""Training runs of named recipes, each in a folder of its own, resumable and cached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anna_attn.lab.jobs import Report
from anna_attn.lab.recipes import Recipe, get_recipe
from anna_attn.nn import AnnaTransformer
from anna_attn.training import (
    CHECKPOINT_NAME,
    Curriculum,
    ProgressCallback,
    ProgressEvent,
    best_hash_seed,
    derive_seed,
    generator_for,
    load_model,
    train,
)

MAIN = "main"
FIXED = "fixed_tables"

TABLE_CHOICE_SEQUENCES = 512


@dataclass(frozen=True)
class TrainingRun:
    """One recipe with one seed.

    Args:
        recipe_name: as `get_recipe` knows it.
        seed: of weights, data and hash functions.
        steps_scale: factor on every stage's steps.
    """

    recipe_name: str
    seed: int
    steps_scale: float = 1.0

    @property
    def folder_name(self) -> str:
        """Where it lives below the folder of all runs."""
        scaled = "" if self.steps_scale == 1.0 else f"-scale{self.steps_scale:g}"
        return f"{self.recipe_name.replace('/', '-')}-seed{self.seed}{scaled}"

    def recipe(self) -> Recipe:
        """The recipe, built."""
        return get_recipe(self.recipe_name, self.seed).scaled(self.steps_scale)

    def checkpoint(self, runs: Path, part: str = MAIN) -> Path:
        """The checkpoint of the main part or of the part with fixed tables."""
        return runs / self.folder_name / part / CHECKPOINT_NAME

    def model(self, runs: Path, part: str = MAIN) -> AnnaTransformer:
        """The trained model.

        Raises: CheckpointError if the run has not been made.
        """
        return load_model(self.checkpoint(runs, part))

    def execute(self, runs: Path, report: Report) -> dict[str, object]:
        """Train, or continue, or just load what is finished.

        Returns: JSON-able: recipe, seed, steps, seconds, final loss.
        Raises: CheckpointError for a folder made by another version of the recipe.
        """
        recipe = self.recipe()
        main, fixed = self.checkpoint(runs).parent, self.checkpoint(runs, FIXED).parent
        model = AnnaTransformer(recipe.model)
        sampler = recipe.task.sampler("train")
        progress = _shifted(report, 0, recipe.num_steps)
        done = train(
            model,
            sampler,
            recipe.stages,
            recipe.config,
            out_dir=main,
            resume=True,
            progress=progress,
        )
        result: dict[str, object] = {
            "recipe": self.recipe_name,
            "seed": self.seed,
            "steps": done.steps,
            "seconds": round(done.seconds, 1),
            "loss": done.loss,
        }
        if recipe.fixed_stages:
            model = start_of_fixed_stages(recipe, main / CHECKPOINT_NAME)
            progress = _shifted(report, done.steps, recipe.num_steps)
            last = train(
                model,
                sampler,
                recipe.fixed_stages,
                recipe.config,
                out_dir=fixed,
                resume=True,
                progress=progress,
            )
            result["fixed_steps"] = last.steps
            result["seconds"] = round(done.seconds + last.seconds, 1)
        return result


def start_of_fixed_stages(recipe: Recipe, checkpoint: Path) -> AnnaTransformer:
    """The saved model, so that both parts can be evaluated, with the tables that suit it best.

    It gets as many tables as the recipe is meant for, and of `recipe.table_draws` draws those with
    the lowest loss on sequences that the first of the fixed stages trains on.

    Raises: CheckpointError, as `load_model`.
    """
    model = load_model(checkpoint)
    if any(layer.num_tables != recipe.num_tables for layer in model.config.layers):
        model = model.with_tables(num_tables=recipe.num_tables, seed=recipe.config.seed)
    if recipe.table_draws:
        sampler = recipe.fixed_stages[0].sampler or recipe.task.sampler("train")
        if isinstance(sampler, Curriculum):
            sampler = sampler.at(0.0)
        generator = generator_for(recipe.config.seed, "choice of tables")
        batch = sampler(TABLE_CHOICE_SEQUENCES, generator)
        seeds = [
            derive_seed(recipe.config.seed, "table draw", draw)
            for draw in range(recipe.table_draws)
        ]
        model.redraw(best_hash_seed(model, [batch], seeds))
    return model


def _shifted(report: Report, before: int, total: int) -> ProgressCallback:
    def progress(event: ProgressEvent) -> None:
        report(before + event.position, total, f"{event.stage}, loss {event.loss:.4f}")

    return progress
