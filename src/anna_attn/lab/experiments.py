"""The experiments of `anna reproduce` as picklable jobs, and how much of each a plan asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anna_attn
from anna_attn.lab.figures import figure_1a, figure_1b, remark_3_6, theorem_3_4
from anna_attn.lab.figures.sweep import Evaluations, Method, measure, spread
from anna_attn.lab.jobs import Job, Report
from anna_attn.lab.runs import FIXED, MAIN, TrainingRun
from anna_attn.lab.tasks import Task, get_task
from anna_attn.nn import AnnaTransformer, Softmax
from anna_attn.training import evaluate

RUNS = "runs"
OURS, PAPERS = "trained on ANNA (ours)", "softmax, then hashed (the paper's)"


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Args:
        name: "quick" or "full".
        seeds: training seeds of the paper's two tasks, for both methods.
        match2_hashes: z for which our method is trained on Match2.
        paper_hashes: z with which the paper's models are hashed.
        match2_tables, match2_draws, match2_sequences: of Figure 1a; match2_test_sequences: of the
            one point that is compared with the paper, l = 8 and z = 1.
        induction_tables, induction_draws, induction_sequences: of Figure 1b, per cell.
        test_draws, test_sequences: of the induction and k-hop tables.
        more: further recipes with their seeds, for the table of hops.
        theorem_sizes, theorem_seeds: of Theorem 3.4.
        scaling_sizes, scaling_repeats: of the timing.
        steps_scale: shortens or lengthens every training; tests use a small one.
    """

    name: str
    seeds: tuple[int, ...]
    match2_hashes: tuple[int, ...]
    paper_hashes: tuple[int, ...]
    match2_tables: tuple[int, ...]
    match2_draws: int
    match2_sequences: int
    match2_test_sequences: int
    induction_tables: tuple[int, ...]
    induction_draws: int
    induction_sequences: int
    test_draws: int
    test_sequences: int
    more: tuple[tuple[str, tuple[int, ...]], ...]
    theorem_sizes: tuple[int, ...]
    theorem_seeds: int
    scaling_sizes: tuple[int, ...]
    scaling_repeats: int
    steps_scale: float = 1.0

    def run(self, recipe_name: str, seed: int) -> TrainingRun:
        """One training of this plan."""
        return TrainingRun(recipe_name, seed, self.steps_scale)

    def models(self, recipe_name: str, runs: Path, part: str = MAIN) -> list[AnnaTransformer]:
        """The trained models of one recipe, one per seed."""
        seeds = self.seeds_of(recipe_name)
        return [self.run(recipe_name, seed).model(runs, part) for seed in seeds]

    def seeds_of(self, recipe_name: str) -> tuple[int, ...]:
        """The training seeds of one recipe."""
        return dict(self.more).get(recipe_name, self.seeds)


QUICK = Plan(
    name="quick",
    seeds=(0,),
    match2_hashes=(1, 2),
    paper_hashes=(1, 2, 3, 4),
    match2_tables=(1, 2, 4, 8, 16, 32),
    match2_draws=5,
    match2_sequences=200,
    match2_test_sequences=800,
    induction_tables=(4, 8, 32),
    induction_draws=2,
    induction_sequences=64,
    test_draws=5,
    test_sequences=256,
    more=(),
    theorem_sizes=theorem_3_4.QUICK_SIZES,
    theorem_seeds=40,
    scaling_sizes=(256, 1024, 4096, 16384),
    scaling_repeats=3,
)

FULL = Plan(
    name="full",
    seeds=(0, 1, 2),
    match2_hashes=(1, 2),
    paper_hashes=(1, 2, 3, 4),
    match2_tables=(1, 2, 4, 8, 16, 32),
    match2_draws=10,
    match2_sequences=400,
    match2_test_sequences=3200,
    induction_tables=(8, 32, 64),
    induction_draws=3,
    induction_sequences=128,
    test_draws=5,
    test_sequences=512,
    more=(("2_hop/anna", (0, 1, 2)), ("4_hop/anna", (0,))),
    theorem_sizes=theorem_3_4.FULL_SIZES,
    theorem_seeds=40,
    scaling_sizes=(256, 1024, 4096, 16384, 65536, 262144),
    scaling_repeats=5,
)


def hash_seeds(count: int) -> tuple[int, ...]:
    """Seeds of fresh draws, apart from those of any training."""
    return tuple(1_000_000 + draw for draw in range(count))


@dataclass(frozen=True)
class Training:
    """Train one recipe with one seed."""

    run: TrainingRun

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train, continue, or load."""
        return self.run.execute(folder / RUNS, report)


@dataclass(frozen=True)
class Figure1a:
    """Match2 error against tables, and the errors on the models' own tables."""

    plan: Plan

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Evaluate all Match2 models."""
        plan, runs = self.plan, folder / RUNS
        on = Evaluations(
            task=get_task("match2"),
            hash_seeds=hash_seeds(plan.match2_draws),
            num_sequences=plan.match2_sequences,
            batch_size=400,
        )
        batches = on.batches("test")
        teachers = plan.models("match2/softmax/beta0.1", runs)
        methods = [
            Method.one_model_for_every_z(
                PAPERS,
                "cross_polytope",
                teachers,
                plan.paper_hashes,
                {"softmax teacher": _teacher_error(teachers, batches, beta=0.1)},
            ),
            Method(
                OURS,
                "cross_polytope",
                tuple(
                    {z: plan.run(f"match2/anna/z{z}", seed).model(runs) for z in plan.match2_hashes}
                    for seed in plan.seeds
                ),
                {},
            ),
        ]
        results = figure_1a.run(methods, on, plan.match2_tables, progress=_told(report))
        return {**results, **self._compared(methods, runs, on)}

    def _compared(self, methods: Sequence[Method], runs: Path, on: Evaluations) -> dict[str, Any]:
        """The point the paper reports, l = 8 and z = 1, on more sequences; and own tables."""
        # Another seed: sequences used for nothing else.
        on = replace(on, num_sequences=self.plan.match2_test_sequences, seed=1)
        batches = on.batches("test")
        own = [
            evaluate(model, batches, hash_seeds=None)
            for model in self.plan.models("match2/anna/z1", runs, FIXED)
        ]
        return {
            "compared": {method.label: measure(method, 1, 8, on, batches) for method in methods},
            "compared_tokens": own[0].num_tokens,
            "own_tables": {"wrong_tokens": [sum(e.wrong_tokens) for e in own]},
        }


@dataclass(frozen=True)
class Figure1b:
    """Induction-heads error by tables in each layer."""

    plan: Plan

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Evaluate all induction-heads models on a grid of tables."""
        plan, runs = self.plan, folder / RUNS
        on = Evaluations(
            task=get_task("induction_heads"),
            hash_seeds=hash_seeds(plan.induction_draws),
            num_sequences=plan.induction_sequences,
            batch_size=64,
        )
        batches = on.batches("test")
        teachers = plan.models("induction_heads/softmax/beta1", runs)
        ours = plan.models("induction_heads/anna", runs)
        methods = [
            Method.one_model_for_every_z(
                PAPERS,
                "cross_polytope",
                teachers,
                plan.paper_hashes,
                {"softmax teacher": _teacher_error(teachers, batches, beta=1.0)},
            ),
            Method.one_model_for_every_z(OURS, "hyperplane", ours, (8,)),
        ]
        return figure_1b.run(methods, on, plan.induction_tables, progress=_told(report))


@dataclass(frozen=True)
class Hops:
    """Strict errors of induction heads and k-hop, at several numbers of tables and lengths."""

    plan: Plan

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Evaluate every k-hop model on sequences used for nothing else."""
        plan = self.plan
        cases = [("induction_heads/anna", 100, num_tables) for num_tables in (8, 16, 32, 128)]
        cases += [("induction_heads/anna", length, 32) for length in (200, 400)]
        for name, _ in plan.more:
            cases += [(name, 100, 32), (name, 200, 32)]
        rows = []
        for done, (name, length, num_tables) in enumerate(cases):
            report(done, len(cases), f"{name}, N = {length}, {num_tables} tables")
            rows.append(self._row(folder / RUNS, name, length, num_tables))
        names = ["induction_heads/anna", *(name for name, _ in plan.more)]
        own = [self._own_tables(folder / RUNS, name) for name in names]
        report(len(cases), len(cases), "")
        return {"rows": rows, "own_tables": own}

    def _evaluations(self, task: Task) -> Evaluations:
        plan = self.plan
        return Evaluations(
            task=task,
            hash_seeds=hash_seeds(plan.test_draws),
            # As many tokens at every length.
            num_sequences=max(1, plan.test_sequences * 100 // task.length),
            batch_size=64,
            # Apart from the sequences of figure 1b: used for nothing else.
            seed=1,
        )

    def _row(self, runs: Path, name: str, length: int, num_tables: int) -> dict[str, Any]:
        task = get_task(name.split("/")[0], length=length)
        on = self._evaluations(task)
        batches = on.batches("test")
        errors = []
        for model in self.plan.models(name, runs):
            hashed = model.with_tables("hyperplane", num_tables, 8, on.hash_seeds[0])
            errors.append(list(evaluate(hashed, batches, hash_seeds=on.hash_seeds).errors))
        return {
            "recipe": name,
            "length": length,
            "num_tables": num_tables,
            "num_tokens": sum(int(batch.mask.sum()) for batch in batches),
            "errors": errors,
            **spread(errors),
        }

    def _own_tables(self, runs: Path, name: str) -> dict[str, Any]:
        batches = self._evaluations(get_task(name.split("/")[0])).batches("test")
        models = self.plan.models(name, runs, FIXED)
        errors = [list(evaluate(model, batches, hash_seeds=None).errors) for model in models]
        return {"recipe": name, "errors": errors, **spread(errors)}


@dataclass(frozen=True)
class Remark36:
    """Collisions against distance."""

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Measure both families."""
        return remark_3_6.run()


@dataclass(frozen=True)
class Theorem34:
    """How often Definition 3.3 holds under Theorem 3.4's parameters."""

    plan: Plan

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Check planted data over seeds."""
        return theorem_3_4.run(
            sizes=self.plan.theorem_sizes,
            num_seeds=self.plan.theorem_seeds,
            progress=_told(report),
        )


def training_runs(plan: Plan) -> list[TrainingRun]:
    """Every training of a plan, the longest first, so that no core idles at the end."""
    names = [
        *(name for name, _ in reversed(plan.more)),
        "induction_heads/anna",
        "induction_heads/softmax/beta1",
        *(f"match2/anna/z{z}" for z in reversed(plan.match2_hashes)),
        "match2/softmax/beta0.1",
    ]
    return [plan.run(name, seed) for name in names for seed in plan.seeds_of(name)]


def jobs(plan: Plan) -> list[Job]:
    """All jobs of a plan: trainings, and what is measured on them."""
    trainings = [
        Job(name=run.folder_name, work=Training(run), settings=_settings(run))
        for run in training_runs(plan)
    ]
    measured = [
        ("remark_3_6", Remark36(), ()),
        ("theorem_3_4", Theorem34(plan), ()),
        ("figure_1a", Figure1a(plan), _names(trainings, "match2")),
        ("figure_1b", Figure1b(plan), _names(trainings, "induction_heads")),
        ("hops", Hops(plan), _names(trainings, "induction_heads", "2_hop", "4_hop")),
    ]
    return trainings + [
        Job(name, work, _measured_on(plan, [t for t in trainings if t.name in needs]), needs)
        for name, work, needs in measured
    ]


def _measured_on(plan: Plan, trainings: Sequence[Job]) -> dict[str, Any]:
    """A measurement is kept only while the models it was made on are the same."""
    made_of = _digest([training.settings for training in trainings])
    return {**asdict(plan), "trainings": made_of, "version": anna_attn.__version__}


def _settings(run: TrainingRun) -> dict[str, Any]:
    recipe = run.recipe()
    return {
        **asdict(run),
        "steps": recipe.num_steps,
        "model": _digest(recipe.model.to_dict()),
        "config": asdict(recipe.config),
        "version": anna_attn.__version__,
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _names(trainings: Sequence[Job], *prefixes: str) -> tuple[str, ...]:
    return tuple(job.name for job in trainings if job.name.startswith(prefixes))


def _told(report: Report):
    return lambda what, done, total: report(done, total, what)


def _teacher_error(models: Sequence[AnnaTransformer], batches, beta: float) -> float:
    errors = [
        evaluate(model, batches, hash_seeds=None, mechanism=Softmax(beta)).mean for model in models
    ]
    return sum(errors) / len(errors)
