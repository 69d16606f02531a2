import builtins
import importlib
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from anna_attn.lab import provenance, report
from anna_attn.lab.figures import style
from anna_attn.lab.inline_svg import inline


@pytest.fixture
def made():
    return provenance.collect("anna reproduce --out 'a<b'", [7, 8])


@pytest.fixture
def picture(tmp_path):
    with style.drawing():
        figure = style.new_figure(3, 2)
        axes = figure.subplots()
        axes.plot([1, 2], [1, 2], label="a < b & c")
        axes.legend()
        return style.save(figure, tmp_path / "line.svg")


def build(made, pictures=(), **changes):
    fields = {
        "title": "What was run",
        "summary": ["A <script>alert(1)</script> paragraph."],
        "sections": [
            report.Section(
                "figure-1a",
                "Figure 1a",
                pictures=[report.Picture(path, 'The "caption" & more.') for path in pictures],
                tables=[
                    report.Table(["z", "error"], [["1", "0.5%"]], "Errors"),
                    report.Table(["z"], [["<i>"]], "Long", folded=True),
                ],
                provenance=made,
            ),
            report.Section("four-hop", "4-hop", not_run="Only --full runs it."),
        ],
        "provenance": made,
        "results": {"figure_1a": {"points": [1, 2]}},
    }
    return report.Report(**(fields | changes))


class Outline(HTMLParser):
    """Ids, references and tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.ids, self.links, self.loads, self.tags = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "href", "xlink:href"):
                (self.links if value.startswith("#") else self.loads).append(value)


def test_the_page_stands_alone_and_is_sound(made, picture, tmp_path):
    png = tmp_path / "line.png"
    with style.drawing():
        style.save(style.new_figure(1, 1), png)
    path = report.write(build(made, [picture, picture, png]), tmp_path / "report")
    page = path.read_text()
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(outline.ids)
    assert all(load.startswith("data:image/png;base64,") for load in outline.loads)
    assert outline.tags.count("svg") == 2
    assert "script" not in outline.tags
    assert "&lt;script&gt;" in page
    assert "<i>" not in page
    assert "a &lt; b &amp; c" in page


def test_the_page_says_what_made_it_and_what_is_missing(made, tmp_path):
    page = report.render(build(made))
    assert "anna reproduce --out &#39;a&lt;b&#39;" in page
    assert "7, 8" in page
    assert f"torch {made.versions['torch']}" in page
    assert made.processor in page
    assert "Only --full runs it." in page
    assert "(not run)" in page


def test_colours_follow_the_theme(made, picture):
    page = report.render(build(made, [picture]))
    assert style.INK not in page.split("</style>", 1)[1]
    assert "var(--ink)" in page.split("<svg", 1)[1]
    assert "prefers-color-scheme: dark" in page
    assert (report.FIGURE_INK, report.FIGURE_GRID) == (style.INK, style.GRID)


def test_results_are_beside_the_page(made, tmp_path):
    report.write(build(made), tmp_path)
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["results"] == {"figure_1a": {"points": [1, 2]}}
    assert document["provenance"]["command"] == made.command


def test_refused_results_leave_the_old_report(made, tmp_path):
    report.write(build(made), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write(build(made, title="new", results={"error": float("nan")}), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_bad_parts_are_refused(made, tmp_path):
    with pytest.raises(ValueError, match="row 1 has 1 cells; accepted: 2"):
        report.Table(["a", "b"], [["1", "2"], ["1"]])
    with pytest.raises(ValueError, match="'x' says neither"):
        report.Section("x", "X")
    with pytest.raises(ValueError, match="all different"):
        build(made, sections=[report.Section("x", "X", not_run="y")] * 2)
    with pytest.raises(ValueError, match=r"'a.gif'; accepted: a name ending in .svg or .png"):
        report.render(build(made, [tmp_path / "a.gif"]))
    with pytest.raises(FileNotFoundError):
        report.render(build(made, [tmp_path / "missing.svg"]))
    with pytest.raises(ValueError, match="name is '1 x'"):
        inline("<svg/>", "1 x", ink="#000", grid="#111", label="")
    with pytest.raises(ValueError, match="no <svg>"):
        inline("", "x", ink="#000", grid="#111", label="")


@pytest.mark.parametrize(
    ("module", "package"),
    [("anna_attn.lab.report", "jinja2"), ("anna_attn.lab.figures.style", "matplotlib")],
)
def test_a_missing_extra_is_named(module, package, monkeypatch):
    importing = builtins.__import__

    def without(name, *arguments):
        if name.split(".")[0] == package:
            raise ImportError(f"No module named {name!r}")
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ImportError, match=r"pip install 'anna-attn\[lab\]'"):
        importlib.import_module(module)
