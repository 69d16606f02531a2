"""SVG files made by the figures, turned into parts of one HTML page."""

from __future__ import annotations

import re

INK_VARIABLE = "var(--ink)"
GRID_VARIABLE = "var(--grid)"


def inline(svg: str, name: str, *, ink: str, grid: str, label: str) -> str:
    """Prepare one SVG document for embedding in HTML.

    Drops the XML prologue and metadata, makes element ids unique to the figure, lets the page's
    theme colour text and grid, and names the figure for screen readers.

    Args:
        svg: a document of our own figures (trusted: its text was escaped when it was written).
        name: unique in the page; letters, digits, "-" and "_".
        ink, grid: the two colours that stand for the theme's.
        label: what the figure shows, in a line.
    Raises: ValueError if `svg` has no svg element or `name` is not a valid prefix.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise ValueError(f"name is {name!r}; accepted: a letter, then letters, digits, - and _")
    start = svg.find("<svg")
    if start < 0:
        raise ValueError(f"figure {name!r} has no <svg> element")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[start:], flags=re.DOTALL)
    # matplotlib's style element would apply to every SVG of the page.
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = svg.replace(ink, INK_VARIABLE).replace(grid, GRID_VARIABLE)
    spoken = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg", f'<svg class="figure" role="img" aria-label="{spoken}"', 1).strip()
