import json
import re

import torch

from anna_attn.lab import provenance


def test_it_says_what_made_a_result():
    made = provenance.collect("anna reproduce", [0, 1])
    assert made.command == "anna reproduce"
    assert made.seeds == (0, 1)
    assert made.versions["torch"] == torch.__version__
    assert made.num_threads == torch.get_num_threads()
    assert made.num_cores >= 1
    assert made.processor
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", made.created)
    assert json.loads(json.dumps(made.to_dict()))["seeds"] == [0, 1]


def test_a_foreign_repository_around_the_package_is_not_named(monkeypatch, tmp_path):
    # An installed copy inside somebody's project: git answers, but for the wrong tree.
    monkeypatch.setattr(provenance, "_git", lambda folder, *arguments: str(tmp_path))
    assert provenance.collect("x", []).commit is None


def test_without_git_there_is_no_commit(monkeypatch):
    def missing(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(provenance.subprocess, "run", missing)
    assert provenance.collect("x", []).commit is None
