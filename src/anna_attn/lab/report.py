"""One HTML page of what was run here, and the numbers behind it as JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from anna_attn.lab import atomic
from anna_attn.lab.inline_svg import inline
from anna_attn.lab.provenance import Provenance

try:
    import jinja2
    from markupsafe import Markup
except ImportError as error:
    raise ImportError(
        "the report needs jinja2; install it with: pip install 'anna-attn[lab]'"
    ) from error

PAGE = "index.html"
RESULTS = "results.json"
# The greys of figures/style.py, repeated here so that the page needs no matplotlib.
FIGURE_INK = "#232a31"
FIGURE_GRID = "#c9cfd6"


@dataclass(frozen=True)
class Table:
    """Numbers under a heading.

    Args:
        columns: headings.
        rows: cells as text, one list per row; numbers are shown right-aligned.
        caption: what the table shows; may be empty.
        folded: whether the reader opens it by a click (long tables).
    Raises: ValueError if a row has another length than the headings.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} has {len(row)} cells; accepted: {len(self.columns)}"
                )


@dataclass(frozen=True)
class Picture:
    """A drawn figure: an .svg or .png file, embedded into the page.

    Args:
        path: the file.
        caption: what it shows and how to read it.
    """

    path: Path
    caption: str


@dataclass(frozen=True)
class Section:
    """One experiment of the report.

    Args:
        name: anchor and prefix, unique; a letter, then letters, digits, "-" and "_".
        title: heading.
        text: paragraphs before the figures.
        pictures, tables: shown in this order.
        provenance: what made it; None only where nothing was run.
        not_run: why the section is empty, e.g. that quick mode leaves it out; None = it was run.
    Raises: ValueError for a section that was run without provenance.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    provenance: Provenance | None = None
    not_run: str | None = None

    def __post_init__(self) -> None:
        if self.provenance is None and self.not_run is None:
            raise ValueError(
                f"section {self.name!r} says neither what made it (provenance) nor why it is "
                "missing (not_run); accepted: one of them"
            )


@dataclass(frozen=True)
class Report:
    """The whole page.

    Args:
        title: of the page.
        summary: paragraphs under the title.
        sections: in order; names are unique.
        headlines: a short table at the top, e.g. the results against the paper's; may be None.
        results: everything, as JSON-able values, for results.json.
        provenance: of the whole run.
    Raises: ValueError for sections that share a name.
    """

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    provenance: Provenance
    results: Mapping[str, object] = field(default_factory=dict)
    headlines: Table | None = None

    def __post_init__(self) -> None:
        names = [section.name for section in self.sections]
        if len(set(names)) != len(names):
            raise ValueError(f"section names are {names}; accepted: all different")


def write(report: Report, folder: Path | str) -> Path:
    """Write index.html and results.json into `folder`, which is made if needed.

    The page holds everything it shows: it opens from a file, without network. Both files are
    replaced as a whole or not at all.

    Returns: the path of index.html.
    Raises: OSError if the folder cannot be written; ValueError for NaN in the results; TypeError
        for what JSON cannot hold; FileNotFoundError for a picture that is not there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page = render(report)
    document = {"provenance": report.provenance.to_dict(), "results": dict(report.results)}
    atomic.write_json(folder / RESULTS, document)
    return atomic.write_text(folder / PAGE, page)


def render(report: Report) -> str:
    """The page as one string of HTML."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["is_number"] = _is_number
    source = resources.files("anna_attn.lab").joinpath("report.html.j2")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    pictures = {
        section.name: [
            (_embed(picture, f"{section.name}-{number}"), picture.caption)
            for number, picture in enumerate(section.pictures)
        ]
        for section in report.sections
    }
    return template.render(report=report, pictures=pictures)


def _embed(picture: Picture, name: str) -> Markup:
    path = Path(picture.path)
    if path.suffix == ".svg":
        svg = path.read_text(encoding="utf-8")
        label = picture.caption
        return Markup(inline(svg, name, ink=FIGURE_INK, grid=FIGURE_GRID, label=label))
    if path.suffix == ".png":
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        image = Markup('<img class="figure" src="data:image/png;base64,{}" alt="{}">')
        return image.format(data, picture.caption)
    raise ValueError(f"picture is {path.name!r}; accepted: a name ending in .svg or .png")


def _is_number(text: str) -> bool:
    """Whether a cell should be right-aligned."""
    return text[:1].isdigit() or text[:2] in ("± ", "< ") or text[:1] in ("-", "±")
