import json
import os
import stat

import pytest

from anna_attn.lab import atomic


def test_it_writes_json_and_leaves_nothing_else(tmp_path):
    path = atomic.write_json(tmp_path / "results.json", {"error": [0.5, None]})
    assert json.loads(path.read_text()) == {"error": [0.5, None]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_the_file_is_as_readable_as_any_new_file(tmp_path):
    path = atomic.write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_the_old_file_survives_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_numbers_that_json_lacks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        atomic.write_json(tmp_path / "results.json", {"error": float("nan")})
    assert not list(tmp_path.iterdir())
