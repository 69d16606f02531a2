"""How figures look, and how they are saved; the only file that imports matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(
        "figures need matplotlib; install it with: pip install 'anna-attn[lab]'"
    ) from error

# Okabe and Ito's palette: told apart under the common colour-vision deficiencies. Their black and
# yellow are left out: the figures are shown on a light and on a dark page.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
# Two greys that the report swaps for the page's own ink, so that text is legible when dark.
INK = "#232a31"
GRID = "#c9cfd6"

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, and read aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.7,
    "lines.markersize": 5.0,
    "errorbar.capsize": 2.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the house style inside, and leave matplotlib's settings as they were.

    Everything from making axes to saving belongs inside: settings are read at each step.
    """
    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, free of pyplot's global list of figures."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path | str) -> Path:
    """Save as .svg (transparent, text as text, the same bytes for the same data) or .png.

    Raises: ValueError for another ending.
    """
    path = Path(path)
    if path.suffix == ".svg":
        # The salt makes element ids a function of the file's name and not of the clock.
        with matplotlib.rc_context({"svg.hashsalt": path.stem}):
            figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
    elif path.suffix == ".png":
        figure.savefig(path, format="png", dpi=150, facecolor="white")
    else:
        raise ValueError(f"figure path is {path.name!r}; accepted: a name ending in .svg or .png")
    return path


def look(index: int) -> dict[str, str]:
    """Colour and marker of the index-th series (they change together, for readers in grey)."""
    return {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}
