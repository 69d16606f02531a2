"""The first example of the README runs as printed, and links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md"]


def fenced_blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_first_example_runs_and_prints_what_the_readme_says(tmp_path):
    readme = (ROOT / "README.md").read_text()
    example, rest = fenced_blocks(readme, "python")[0], readme.split("```python\n", 1)[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = fenced_blocks(rest, "text")
    assert printed, "the example's output stands in a text block below it"
    assert done.stdout == printed[0]


def test_the_first_example_is_short():
    example = fenced_blocks((ROOT / "README.md").read_text(), "python")[0]
    assert 5 <= len(example.splitlines()) <= 25


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_to_files(page):
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)|<img[^>]+src=\"([^\"]+)\"", text)
    links = [first or second for first, second in targets]
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []
