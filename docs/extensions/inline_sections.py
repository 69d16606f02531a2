"""Show the one-line sections of our docstrings as paragraphs with a bold label.

The house writes short sections on their label's line ("Returns: (B, H) int64."). Google style, as
the documentation's parser reads it, has them indented below the label; an inline section that goes
on over several lines would lose its first line or stop the build.
"""

import re

import griffe

INLINE = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Cost|Source): (\S.*)")


def spell_out(text: str) -> str:
    """Turn each inline section, with the lines it goes on over, into a paragraph of its own."""
    lines = []
    inside = False
    for line in text.splitlines():
        match = INLINE.fullmatch(line)
        if match:
            inside = True
            lines += ["", f"**{match[1]}:** {match[2]}"]
        elif inside and line.startswith(" "):
            lines.append(line.strip())
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)


class InlineSections(griffe.Extension):
    """Rewrite every docstring of the package before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = spell_out(obj.docstring.value)
