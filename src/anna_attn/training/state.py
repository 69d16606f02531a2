"""Where a run stands: what a checkpoint keeps beside the tensors so that the run can go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anna_attn.training.config import TrainConfig
from anna_attn.training.errors import CheckpointError
from anna_attn.training.stages import EarlyStop, Stage


@dataclass(frozen=True)
class StageResult:
    """How a stage ended.

    Args:
        name: of the stage.
        steps: made.
        loss: of its last step.
        error: its last validation error; None if it never validated.
        stopped_early: whether `EarlyStop` ended it.
    """

    name: str
    steps: int
    loss: float
    error: float | None
    stopped_early: bool


@dataclass(frozen=True)
class TrainState:
    """Progress of a run; immutable, JSON-able.

    Args:
        stage_index: the stage in progress; the number of stages once all are done.
        stage_step: steps made in it.
        step: steps made in all.
        seconds: spent in all, interruptions not counted.
        best_error: lowest validation error of the stage; None before the first.
        num_worse: validations since then.
        finished: the stages that are done.
    """

    stage_index: int = 0
    stage_step: int = 0
    step: int = 0
    seconds: float = 0.0
    best_error: float | None = None
    num_worse: int = 0
    finished: tuple[StageResult, ...] = ()

    def after_step(self) -> TrainState:
        """One more step made."""
        return replace(self, stage_step=self.stage_step + 1, step=self.step + 1)

    def after_validation(self, error: float) -> TrainState:
        """One more validation made."""
        if self.best_error is None or error < self.best_error:
            return replace(self, best_error=error, num_worse=0)
        return replace(self, num_worse=self.num_worse + 1)

    def after_stage(self, result: StageResult) -> TrainState:
        """The stage in progress done."""
        return replace(
            self,
            stage_index=self.stage_index + 1,
            stage_step=0,
            best_error=None,
            num_worse=0,
            finished=(*self.finished, result),
        )

    def should_stop(self, early_stop: EarlyStop | None) -> bool:
        """Whether the stage in progress ends now, by its validation errors so far."""
        if early_stop is None or self.best_error is None:
            return False
        target, patience = early_stop.target_error, early_stop.patience
        # The target is met only by a validation that just was the lowest, so best_error will do.
        reached = target is not None and self.best_error <= target
        return reached or (patience is not None and self.num_worse >= patience)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able dictionaries."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainState:
        """Inverse of `to_dict`, also after a trip through JSON."""
        finished = tuple(StageResult(**result) for result in data["finished"])
        return cls(**{**data, "finished": finished})


def describe_plan(stages: Sequence[Stage], config: TrainConfig) -> dict[str, Any]:
    """What must be equal for a run to be continued, as JSON-able dictionaries.

    Samplers and losses are functions, which JSON cannot hold and equality cannot judge: handing a
    resumed run other data is not noticed.
    """
    settings = asdict(config)
    settings["betas"] = list(config.betas)
    # How often things are reported or saved may change between two sittings.
    for name in ("checkpoint_every", "log_every"):
        del settings[name]
    return {"config": settings, "stages": [_describe_stage(stage) for stage in stages]}


def check_same_plan(saved: dict[str, Any], here: dict[str, Any], path: object) -> None:
    """Refuse to continue a run under another plan, naming the first difference.

    Raises: CheckpointError.
    """
    for name, value in here["config"].items():
        if saved["config"].get(name) != value:
            raise CheckpointError(
                f"{path} was trained with {name} = {saved['config'].get(name)!r}, here it is "
                f"{value!r}; accepted: the same configuration, or a new folder"
            )
    if len(saved["stages"]) != len(here["stages"]):
        raise CheckpointError(
            f"{path} was trained in {len(saved['stages'])} stages, here are {len(here['stages'])}; "
            "accepted: the same stages, or a new folder"
        )
    for number, (old, new) in enumerate(zip(saved["stages"], here["stages"], strict=True)):
        for name, value in new.items():
            if old.get(name) != value:
                raise CheckpointError(
                    f"{path} was trained with {name} = {old.get(name)!r} in stage {number}, here "
                    f"it is {value!r}; accepted: the same stages, or a new folder"
                )


def check_same_model(saved: dict[str, Any], here: dict[str, Any], path: object) -> None:
    """Refuse to continue with a model of another configuration, naming the first difference.

    Raises: CheckpointError.
    """
    for name in sorted({*saved, *here}):
        if saved.get(name) != here.get(name):
            raise CheckpointError(
                f"{path} holds a model with {name} = {saved.get(name)!r}, here it is "
                f"{here.get(name)!r}; accepted: the same model, or a new folder"
            )


def _describe_stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "steps": stage.steps,
        "learning_rate": stage.learning_rate,
        "fresh_hashes": stage.fresh_hashes,
        "batch_size": stage.batch_size,
        "early_stop": None if stage.early_stop is None else asdict(stage.early_stop),
        "evaluation_mechanism": repr(stage.evaluation_mechanism),
        # Sampled, since the schedule itself is a function.
        "mechanism": [repr(stage.mechanism(progress)) for progress in (0.0, 0.3, 0.6, 1.0)],
    }
