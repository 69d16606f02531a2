"""Pictures of traces; the only file of the room that imports matplotlib."""

from __future__ import annotations

from pathlib import Path

from .model import Trace

_INK, _MEMORY, _SENT, _RECEIVED = "#232a31", "#0072B2", "#D55E00", "#009E73"


def plot_trace(trace: Trace, path: Path | str) -> Path:
    """Draw the most words that a machine kept, sent and received in each round, and the limit s.

    Args:
        trace: of a run.
        path: where to write; the ending picks the format (png, svg, pdf).
    Returns: the path.
    Raises: ImportError without matplotlib; ValueError for an unknown ending; OSError.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib; install it with: pip install 'anna-attn[lab]'"
        ) from error
    kept, sent, received = _by_round(trace)
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    memory, traffic = figure.subplots(2, 1, sharex=True)
    limit = {"color": _INK, "linestyle": "--", "linewidth": 1.0}
    memory.step(range(len(kept)), kept, where="mid", color=_MEMORY, label="kept")
    memory.axhline(trace.local_memory, label=f"s = {trace.local_memory:,}", **limit)
    rounds = range(1, len(sent) + 1)
    traffic.step(rounds, sent, where="mid", color=_SENT, label="sent")
    # Dotted: in many rounds machines receive as much as they send.
    dotted = {"color": _RECEIVED, "linestyle": ":", "linewidth": 2.5}
    traffic.step(rounds, received, where="mid", label="received", **dotted)
    traffic.axhline(trace.local_memory, **limit)
    memory.set_title(
        f"{trace.protocol}: {trace.num_machines:,} machines, {trace.num_rounds} rounds", loc="left"
    )
    memory.set_ylabel("words kept")
    traffic.set(xlabel="round", ylabel="words moved")
    for axes in (memory, traffic):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper right")
    path = Path(path)
    figure.savefig(path, dpi=150)
    return path


def _by_round(trace: Trace) -> tuple[list[int], list[int], list[int]]:
    """The most words kept after 0, 1, ... rounds, and those sent and received in each round."""
    kept, sent, received = [0], [], []
    for step in trace.steps:
        # A step that sends keeps its memory while its messages travel.
        kept[-1] = max(kept[-1], step.memory_words)
        if step.round_index is not None:
            sent.append(step.sent_words)
            received.append(step.received_words)
            kept.append(step.memory_words)
    return kept, sent, received
