"""Progress of a run: the events `train` reports, and rich bars that draw them.

`train` takes any callable. This is the only file of the room that knows about terminals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@dataclass(frozen=True)
class ProgressEvent:
    """Reported after every step.

    Args:
        stage: name of the stage.
        stage_index, num_stages: which of how many, from 0.
        stage_step, stage_steps: steps made and planned in the stage.
        position, total_steps: of the whole plan; steps an early stop saved count as made, so
            position reaches total_steps in every run that ends.
        loss: of the step.
        error: the stage's last validation error; None before the first.
    """

    stage: str
    stage_index: int
    num_stages: int
    stage_step: int
    stage_steps: int
    position: int
    total_steps: int
    loss: float
    error: float | None


ProgressCallback = Callable[[ProgressEvent], None]


class TrainingBars:
    """Rich bars for one run or many; a context manager.

    Example:
        with TrainingBars() as bars:
            for seed in seeds:
                train(..., progress=bars.add(f"seed {seed}"))

    Args:
        console: where to draw; None = the standard one. Nothing moves where it is no terminal.
        transient: whether the bars vanish at the end.
    """

    def __init__(self, *, console: Console | None = None, transient: bool = False) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            transient=transient,
        )

    def __enter__(self) -> TrainingBars:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def add(self, description: str) -> ProgressCallback:
        """One more bar, for one run; hand the result to `train`."""
        task = self._progress.add_task(description, total=None, detail="")

        def report(event: ProgressEvent) -> None:
            self._progress.update(
                task,
                total=event.total_steps,
                completed=event.position,
                detail=describe_event(event),
            )

        return report

    def add_runs(self, description: str, num_runs: int) -> Callable[[int], ProgressCallback]:
        """One bar shared by many runs of equal weight; call the result with the run's index."""
        task = self._progress.add_task(description, total=num_runs, detail="")

        def for_run(run: int) -> ProgressCallback:
            def report(event: ProgressEvent) -> None:
                self._progress.update(
                    task,
                    completed=run + event.position / event.total_steps,
                    detail=f"run {run + 1}/{num_runs}, {describe_event(event)}",
                )

            return report

        return for_run


def describe_event(event: ProgressEvent) -> str:
    """A few words for the end of a line: stage, loss and, where known, error."""
    error = "" if event.error is None else f", error {event.error:.3%}"
    return f"{event.stage}: loss {event.loss:.4f}{error}"
