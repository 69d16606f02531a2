"""The files that describe a release agree with each other."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anna_attn import __version__

ROOT = Path(__file__).parents[2]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in requirements}


def requirements():
    stated = [Requirement(line) for line in metadata.requires("anna-attn") or []]
    return [one for one in stated if one.name != "anna-attn"]


def test_the_installed_version_is_the_one_in_the_source():
    assert metadata.version("anna-attn") == __version__


def test_the_citation_names_this_version_and_the_paper():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(__version__)}$", citation, re.MULTILINE)
    assert "arXiv:2509.09001" in citation


def test_every_requirement_is_pinned_inside_its_range():
    pinned = pins()
    outside = [
        str(requirement)
        for requirement in requirements()
        if pinned.get(canonicalize_name(requirement.name)) not in requirement.specifier
    ]
    assert len(requirements()) > 10
    assert outside == []
