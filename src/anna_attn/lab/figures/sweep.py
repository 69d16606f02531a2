"""Errors of trained models over numbers of tables and hashes, over runs and hash draws."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anna_attn.lab.tasks import Split, Task
from anna_attn.nn import AnnaTransformer
from anna_attn.training import Batch, evaluate, generator_for

NumTables = int | tuple[int, ...]
Progress = Callable[[str, int, int], None]
"""Told after each piece of work: what it was, how many are done, how many there are."""


@dataclass(frozen=True)
class Method:
    """One way of training, with the models it gave.

    Args:
        label: as shown above its panel.
        family_name: hash family of the evaluated models, as `AnnaTransformer.with_tables` takes it.
        runs: one mapping per training seed, from hashes per table (z) to the model evaluated with
            it. The paper's method has one model for every z; a model trained on hard codes belongs
            to the z it was trained with.
        baselines: errors to show beside it, e.g. {"softmax teacher": 0.002}.
    Raises: ValueError without runs, or with runs that differ in their z.
    """

    label: str
    family_name: str
    runs: tuple[Mapping[int, AnnaTransformer], ...]
    baselines: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.runs or not self.runs[0]:
            raise ValueError(f"method {self.label!r} has no models; accepted: at least one run")
        if any(set(run) != set(self.runs[0]) for run in self.runs):
            found = [sorted(run) for run in self.runs]
            raise ValueError(f"runs of {self.label!r} have z in {found}; accepted: all the same")

    @classmethod
    def one_model_for_every_z(
        cls,
        label: str,
        family_name: str,
        models: Sequence[AnnaTransformer],
        z_list: Sequence[int],
        baselines: Mapping[str, float] | None = None,
    ) -> Method:
        """The paper's way: each run's trained model is hashed with each z."""
        runs = tuple({z: model for z in z_list} for model in models)
        return cls(label, family_name, runs, dict(baselines or {}))

    @property
    def z_list(self) -> tuple[int, ...]:
        """The z that have models, ascending."""
        return tuple(sorted(self.runs[0]))


@dataclass(frozen=True)
class Evaluations:
    """What errors are measured on.

    Args:
        task: gives the sequences.
        hash_seeds: one fresh draw of all hash functions per seed, for every run.
        num_sequences: sequences per draw, the same for all models.
        batch_size: sequences evaluated at a time.
        seed: of the sequences.
    """

    task: Task
    hash_seeds: tuple[int, ...]
    num_sequences: int = 512
    batch_size: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.hash_seeds:
            raise ValueError("hash_seeds is empty; accepted: at least one seed")
        for name in ("num_sequences", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: an integer >= 1")

    def batches(self, split: Split) -> list[Batch]:
        """The sequences of one split, the same at every call."""
        generator = generator_for(self.seed, f"figures {split}")
        sampler = self.task.sampler(split)
        whole, rest = divmod(self.num_sequences, self.batch_size)
        sizes = [self.batch_size] * whole + ([rest] if rest else [])
        return [sampler(size, generator) for size in sizes]

    def to_dict(self) -> dict[str, object]:
        """The settings as a JSON-able dictionary."""
        return {
            "task": self.task.name,
            "length": self.task.length,
            "hash_seeds": list(self.hash_seeds),
            "num_sequences": self.num_sequences,
            "seed": self.seed,
        }


def measure(
    method: Method, z: int, num_tables: NumTables, on: Evaluations, batches: Sequence[Batch]
) -> dict[str, object]:
    """Hard-ANNA error of every run under every hash draw.

    Returns: z, num_tables, errors (one list over draws per run), and over all of them mean, std
        (sample standard deviation, 0 for one value), low and high.
    """
    errors = []
    for run in method.runs:
        hashed = run[z].with_tables(method.family_name, num_tables, z, on.hash_seeds[0])
        errors.append(list(evaluate(hashed, batches, hash_seeds=on.hash_seeds).errors))
    tables = list(num_tables) if isinstance(num_tables, tuple) else num_tables
    return {"z": z, "num_tables": tables, "errors": errors, **spread(errors)}


def spread(errors: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean, standard deviation and range over runs and draws together."""
    pooled = [error for run in errors for error in run]
    std = statistics.stdev(pooled) if len(pooled) > 1 else 0.0
    mean = math.fsum(pooled) / len(pooled)
    return {"mean": mean, "std": std, "low": min(pooled), "high": max(pooled)}


def panel_title(panel: dict) -> str:
    """Two lines over a panel of figure 1: the method, then its hash family and runs."""
    runs = "1 run" if panel["num_runs"] == 1 else f"{panel['num_runs']} runs"
    return f"{panel['label']}\n{panel['family_name'].replace('_', '-')} hashing, {runs}"
