"""The training loop: stages, checkpoints, metrics, validation, early stop, resume."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from anna_attn.lsh import HashTables
from anna_attn.nn import AnnaTransformer, Expected, Mechanism, StraightThrough
from anna_attn.training.batch import Batch, Curriculum, Sampler
from anna_attn.training.checkpoint import load_checkpoint, save_checkpoint
from anna_attn.training.config import TrainConfig
from anna_attn.training.errors import CheckpointError, NonFiniteError
from anna_attn.training.evaluate import evaluate
from anna_attn.training.losses import masked_cross_entropy
from anna_attn.training.metrics import MetricsLine, append_metrics, truncate_metrics
from anna_attn.training.progress import ProgressCallback, ProgressEvent
from anna_attn.training.schedules import learning_rate_at, progress_at
from anna_attn.training.seeds import derive_seed, generator_for
from anna_attn.training.stages import Stage
from anna_attn.training.state import (
    StageResult,
    TrainState,
    check_same_model,
    check_same_plan,
    describe_plan,
)

CHECKPOINT_NAME = "checkpoint.safetensors"
METRICS_NAME = "metrics.jsonl"


@dataclass(frozen=True)
class TrainResult:
    """How a run ended; the weights are in the model that was given.

    Args:
        steps: made in all, earlier sittings included.
        seconds: spent in all, earlier sittings included.
        stages: how each stage ended.
        checkpoint: the last one; None without an out_dir.
        resumed_from_step: the step this sitting continued from; None if it began the run.
    """

    steps: int
    seconds: float
    stages: tuple[StageResult, ...]
    checkpoint: Path | None
    resumed_from_step: int | None

    @property
    def loss(self) -> float:
        """Loss of the last step."""
        return self.stages[-1].loss

    @property
    def error(self) -> float | None:
        """Last validation error of the last stage; None if it never validated."""
        return self.stages[-1].error


def train(
    model: AnnaTransformer,
    sampler: Sampler,
    stages: Sequence[Stage],
    config: TrainConfig,
    *,
    validation: Sequence[Batch] | None = None,
    out_dir: str | Path | None = None,
    resume: bool = False,
    progress: ProgressCallback | None = None,
) -> TrainResult:
    """Train a model in place, stage after stage, with AdamW.

    Each step draws its batch and, in stages with fresh hashes, its tables from seeds derived from
    (config.seed, stage, step). The weights are therefore a function of the arguments, on one
    machine with one number of threads, and a run that was interrupted or killed and is resumed
    ends with bitwise the weights of one that was not. The global random state is not touched.
    Every stage starts a new optimizer.

    Args:
        model: any mode, any device; it is left in training mode.
        sampler: draws batches on the CPU; stages may override it.
        stages: at least one; see `direct_stages` and its neighbours.
        config: everything else.
        validation: batches to validate on in all stages; None = drawn from each stage's sampler
            (the last one of a curriculum), apart from all training batches.
        out_dir: where `checkpoint.safetensors` and `metrics.jsonl` go; created if missing; None =
            nothing is written.
        resume: continue from the checkpoint in out_dir, if there is one. A finished run is loaded
            and returned. False refuses a folder that holds a checkpoint.
        progress: called after every step.
    Returns: a `TrainResult`.
    Raises:
        ValueError: no stage, resume without out_dir, early stop without validation, fresh hashes
            for learnable tables.
        CheckpointError: out_dir cannot be written, holds a checkpoint and resume is False, or holds
            one of another plan or model. The sampler is not compared.
        NonFiniteError: a loss, gradient or weight is NaN or infinite; names the step and the stage.
            The weights are those before that step, and the last checkpoint is kept.
        MetricsError: the metrics cannot be written.
    """
    stages = tuple(stages)
    _check_stages(model, stages, config)
    if resume and out_dir is None:
        raise ValueError("resume is True and out_dir is None; accepted: the folder to resume from")
    run = _Run(model, sampler, stages, config, validation, progress)
    resumed_from = None if out_dir is None else run.open(Path(out_dir), resume)
    while run.state.stage_index < len(stages):
        run.finish_stage()
    return TrainResult(
        steps=run.state.step,
        seconds=run.state.seconds,
        stages=run.state.finished,
        checkpoint=run.checkpoint_path,
        resumed_from_step=resumed_from,
    )


def _check_stages(model: AnnaTransformer, stages: Sequence[Stage], config: TrainConfig) -> None:
    if not stages:
        raise ValueError("stages is empty; accepted: at least one Stage")
    learnable = any(isinstance(m, HashTables) and m.learnable for m in model.modules())
    for stage in stages:
        if stage.early_stop is not None and config.validate_every == 0:
            raise ValueError(
                f"stage {stage.name!r} has an early_stop and validate_every is 0; accepted: "
                "validate_every >= 1"
            )
        if stage.fresh_hashes and learnable:
            raise ValueError(
                f"stage {stage.name!r} has fresh_hashes=True and the model's tables are learnable; "
                "accepted: fresh_hashes=False, which keeps what they learn"
            )


class _Run:
    """One call of `train`: the model, where it stands, and where that is written."""

    def __init__(
        self,
        model: AnnaTransformer,
        sampler: Sampler,
        stages: tuple[Stage, ...],
        config: TrainConfig,
        validation: Sequence[Batch] | None,
        progress: ProgressCallback | None,
    ) -> None:
        self.model = model
        self.sampler = sampler
        self.stages = stages
        self.config = config
        self.validation = validation
        self.progress = progress
        self.device = next(model.parameters()).device
        self.state = TrainState()
        self.error: float | None = None
        self.checkpoint_path: Path | None = None
        self.metrics_path: Path | None = None
        self.optimizer = self.new_optimizer()
        self.clock = time.perf_counter()

    def new_optimizer(self) -> torch.optim.AdamW:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        return torch.optim.AdamW(
            parameters, betas=self.config.betas, weight_decay=self.config.weight_decay
        )

    def open(self, out_dir: Path, resume: bool) -> int | None:
        """Prepare the folder; returns the step resumed from, None for a new run."""
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot create {out_dir}: {error.strerror or error}") from error
        self.checkpoint_path = out_dir / CHECKPOINT_NAME
        self.metrics_path = out_dir / METRICS_NAME
        found = self.checkpoint_path.exists()
        if found and not resume:
            raise CheckpointError(
                f"{self.checkpoint_path} exists; accepted: resume=True, or a new folder"
            )
        if found:
            self.restore(self.checkpoint_path)
        truncate_metrics(self.metrics_path, self.state.step)
        if not found:
            # Saved before the first step, so that an unwritable folder is found at once.
            self.save()
        self.clock = time.perf_counter()
        return self.state.step if found else None

    def restore(self, path: Path) -> None:
        checkpoint = load_checkpoint(path)
        if "plan" not in checkpoint.state:
            raise CheckpointError(f"{path} was not saved by a training run; accepted: one that was")
        here = describe_plan(self.stages, self.config)
        check_same_plan(checkpoint.state["plan"], here, path)
        # Through JSON, which is how the saved one came: tuples become lists.
        check_same_model(
            checkpoint.model_config, json.loads(json.dumps(self.model.config.to_dict())), path
        )
        checkpoint.restore(self.model, self.optimizer)
        self.state = TrainState.from_dict(checkpoint.state["progress"])

    def save(self) -> None:
        if self.checkpoint_path is None:
            return
        for name, parameter in self.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise NonFiniteError(f"{name} is NaN or infinite {self.where()}; {self.kept()}")
        self.tick()
        plan = describe_plan(self.stages, self.config)
        save_checkpoint(
            self.checkpoint_path,
            self.model,
            optimizer=self.optimizer,
            state={"plan": plan, "progress": self.state.to_dict()},
        )

    def finish_stage(self) -> None:
        """Make the remaining steps of the stage in progress."""
        stage = self.stages[self.state.stage_index]
        batches = self.validation_batches(stage)
        loss, stopped = float("nan"), False
        self.error = None
        self.model.train()
        while self.state.stage_step < stage.steps and not stopped:
            loss = self.step(stage)
            validated = self.validate(stage, batches)
            stopped = validated and self.state.should_stop(stage.early_stop)
            is_last = stopped or self.state.stage_step == stage.steps
            self.report(stage, loss, validated=validated, is_last=is_last)
            if not is_last and self.state.step % self.config.checkpoint_every == 0:
                self.save()
        if stage.fresh_hashes:
            # The last step's draw is one the weights were just fitted to; what follows (a stage
            # with fixed tables, the saved model) gets tables of the run's own.
            self.model.redraw(derive_seed(self.config.seed, "own tables"))
        early = stopped and self.state.stage_step < stage.steps
        result = StageResult(stage.name, self.state.stage_step, loss, self.error, early)
        self.state = self.state.after_stage(result)
        self.optimizer = self.new_optimizer()
        self.save()

    def step(self, stage: Stage) -> float:
        """One step of AdamW; returns its loss."""
        index, step = self.state.stage_index, self.state.stage_step
        progress = progress_at(step, stage.steps)
        batch = self.draw(stage, progress, generator_for(self.config.seed, "data", index, step))
        if stage.fresh_hashes:
            self.model.redraw(derive_seed(self.config.seed, "hashes", index, step))
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(stage, step)
        self.optimizer.zero_grad(set_to_none=True)
        mechanism = stage.mechanism(progress)
        logits = self.model(batch.tokens, key_mask=batch.key_mask, mechanism=mechanism)
        loss = (stage.loss or masked_cross_entropy)(logits, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        # Before the optimizer's step, so that the weights stay good.
        if not bool(torch.isfinite(loss) & torch.isfinite(norm)):
            raise NonFiniteError(
                f"loss {loss.item()}, gradient norm {norm.item()} {self.where()} ({mechanism}, "
                f"learning rate {self.learning_rate(stage, step):.3g}); {self.kept()}"
            )
        self.optimizer.step()
        self.state = self.state.after_step()
        return loss.item()

    def draw(self, stage: Stage, progress: float, generator: torch.Generator) -> Batch:
        sampler = stage.sampler or self.sampler
        if isinstance(sampler, Curriculum):
            sampler = sampler.at(progress)
        return sampler(stage.batch_size or self.config.batch_size, generator).to(self.device)

    def learning_rate(self, stage: Stage, step: int) -> float:
        return learning_rate_at(
            step,
            stage.steps,
            peak=stage.learning_rate,
            warmup_steps=self.config.warmup_steps,
            final_share=self.config.final_learning_rate_share,
        )

    def validation_batches(self, stage: Stage) -> tuple[Batch, ...]:
        if self.config.validate_every == 0:
            return ()
        if self.validation is not None:
            return tuple(self.validation)
        seed, number = self.config.seed, self.config.validation_batches
        streams = (generator_for(seed, "validation", index) for index in range(number))
        return tuple(self.draw(stage, 1.0, stream) for stream in streams)

    def validate(self, stage: Stage, batches: tuple[Batch, ...]) -> bool:
        """Validate if it is time to; returns whether it was."""
        done = self.state.stage_step
        if not batches or (done % self.config.validate_every and done != stage.steps):
            return False
        seeds = None
        if stage.fresh_hashes:
            draws = range(self.config.validation_draws)
            seeds = [derive_seed(self.config.seed, "validation hashes", draw) for draw in draws]
        evaluation = evaluate(
            self.model, batches, hash_seeds=seeds, mechanism=stage.evaluation_mechanism
        )
        self.error = evaluation.mean
        self.state = self.state.after_validation(evaluation.mean)
        return True

    def report(self, stage: Stage, loss: float, *, validated: bool, is_last: bool) -> None:
        """Write a line of metrics where one is due, and tell the progress callback."""
        due = validated or is_last or self.state.step % self.config.log_every == 0
        if self.metrics_path is not None and due:
            self.tick()
            step = self.state.stage_step - 1
            line = MetricsLine(
                step=self.state.step,
                stage=stage.name,
                stage_step=self.state.stage_step,
                loss=loss,
                lr=self.learning_rate(stage, step),
                exponent=_exponent(stage.mechanism(progress_at(step, stage.steps))),
                error=self.error if validated else None,
                seconds=round(self.state.seconds, 3),
            )
            append_metrics(self.metrics_path, line)
        if self.progress is not None:
            self.progress(self.event(stage, loss, is_last))

    def event(self, stage: Stage, loss: float, is_last: bool) -> ProgressEvent:
        index = self.state.stage_index
        before = sum(earlier.steps for earlier in self.stages[:index])
        return ProgressEvent(
            stage=stage.name,
            stage_index=index,
            num_stages=len(self.stages),
            stage_step=self.state.stage_step,
            stage_steps=stage.steps,
            position=before + (stage.steps if is_last else self.state.stage_step),
            total_steps=sum(planned.steps for planned in self.stages),
            loss=loss,
            error=self.error,
        )

    def tick(self) -> None:
        """Add the time since the last tick to the state."""
        now = time.perf_counter()
        self.state = replace(self.state, seconds=self.state.seconds + now - self.clock)
        self.clock = now

    def where(self) -> str:
        index = min(self.state.stage_index, len(self.stages) - 1)
        stage = self.stages[index]
        return f"at step {self.state.stage_step} of {stage.steps} of stage {stage.name!r}"

    def kept(self) -> str:
        if self.checkpoint_path is None:
            return "nothing was saved, since no out_dir was given"
        return f"the last good checkpoint is kept in {self.checkpoint_path}"


def _exponent(mechanism: Mechanism) -> float | None:
    return mechanism.exponent if isinstance(mechanism, Expected | StraightThrough) else None
