"""Metrics as JSON lines, one object a line, that stay in step with the checkpoint.

Fields: step (completed steps of the whole run), stage, stage_step, loss, lr, exponent (null where
the mechanism has none), error (share of wrong tokens in validation; null where none was made),
seconds (of training, summed over interruptions).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from anna_attn.training.checkpoint import write_atomically
from anna_attn.training.errors import MetricsError


@dataclass(frozen=True)
class MetricsLine:
    """One line of the metrics file; see the module's docstring for the fields."""

    step: int
    stage: str
    stage_step: int
    loss: float
    lr: float
    exponent: float | None
    error: float | None
    seconds: float


def append_metrics(path: str | Path, line: MetricsLine) -> None:
    """Add a line. The file is opened for each, so that a killed run loses none.

    Raises: MetricsError with the system's reason (a full disk, say).
    """
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(line), allow_nan=False) + "\n")
    except OSError as error:
        raise MetricsError(f"cannot write {path}: {error.strerror or error}") from error


def read_metrics(path: str | Path) -> list[MetricsLine]:
    """All lines; a last line that was cut short by a kill is left out.

    Raises: MetricsError if the file cannot be read or another line is not one of ours.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MetricsError(f"cannot read {path}: {error}") from error
    lines = []
    # Whatever follows the last newline was cut short.
    for number, row in enumerate(text.split("\n")[:-1], start=1):
        try:
            lines.append(MetricsLine(**json.loads(row)))
        except (json.JSONDecodeError, TypeError) as error:
            raise MetricsError(
                f"{path}, line {number}: {row[:60]!r}; accepted: a JSON object of metrics"
            ) from error
    return lines


def truncate_metrics(path: str | Path, step: int) -> None:
    """Drop the lines after a step, which a resumed run will write again; no file is no error."""
    path = Path(path)
    if not path.exists():
        return
    kept = [json.dumps(asdict(line)) + "\n" for line in read_metrics(path) if line.step <= step]
    write_atomically(path, "".join(kept).encode())
