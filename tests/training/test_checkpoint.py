import errno
import json
import os

import pytest
import safetensors.torch
import torch

from anna_attn.training import (
    CheckpointError,
    MetricsError,
    MetricsLine,
    load_checkpoint,
    read_metrics,
    save_checkpoint,
    train,
)
from anna_attn.training.metrics import append_metrics, truncate_metrics


@pytest.fixture
def saved(tiny, tmp_path):
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, tiny.model(seed=1), state={"a": 1}, metadata={"task": "parity"})
    return path


def _refusal(path):
    with pytest.raises(CheckpointError) as info:
        load_checkpoint(path)
    message = str(info.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_round_trip(tiny, saved):
    checkpoint = load_checkpoint(saved)
    assert checkpoint.state == {"a": 1}
    assert checkpoint.metadata == {"task": "parity"}
    assert checkpoint.model_config == tiny.Config(seed=1).to_dict()
    model = tiny.model(seed=2)
    checkpoint.restore(model)
    tiny.assert_same_weights(tiny.weights(model), tiny.weights(tiny.model(seed=1)))
    assert os.listdir(saved.parent) == [saved.name]


def test_optimizer_round_trip(tiny, tmp_path):
    model = tiny.model()
    optimizer = torch.optim.AdamW(model.parameters())
    (model.embedding.square().sum() + model.readout.sum()).backward()
    optimizer.step()
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, model, optimizer=optimizer)
    copy = tiny.model(seed=4)
    other = torch.optim.AdamW(copy.parameters())
    load_checkpoint(path).restore(copy, other)
    for old, new in zip(model.parameters(), copy.parameters(), strict=True):
        assert optimizer.state[old].keys() == other.state[new].keys()
        for field, value in optimizer.state[old].items():
            assert torch.equal(value, other.state[new][field])


def test_tied_weights_are_saved(tiny, tmp_path):
    model = tiny.model()
    model.tied = model.embedding
    save_checkpoint(tmp_path / "c.safetensors", model)
    state = load_checkpoint(tmp_path / "c.safetensors").model_state
    assert torch.equal(state["tied"], state["embedding"])


def test_a_full_disk_leaves_the_old_checkpoint(tiny, saved):
    before = saved.read_bytes()
    # The temporary file's name leads to /dev/full, which fails every write as a full disk does.
    temporary = saved.with_name(f".{saved.name}.tmp")
    temporary.symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"No space left on device; .*unchanged") as info:
        save_checkpoint(saved, tiny.model(seed=2))
    assert "\n" not in str(info.value)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failing_flush_or_rename_leaves_the_old_checkpoint(tiny, saved, monkeypatch, function):
    before = saved.read_bytes()

    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(saved, tiny.model(seed=2))
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_a_link_stays_a_link_and_its_file_is_replaced(tiny, saved, tmp_path):
    link = tmp_path / "latest.safetensors"
    link.symlink_to(saved.name)
    before = saved.read_bytes()
    save_checkpoint(link, tiny.model(seed=2))
    assert link.is_symlink()
    assert saved.read_bytes() != before
    torch.testing.assert_close(load_checkpoint(link).model_state, tiny.model(seed=2).state_dict())


def test_what_is_no_file_is_not_replaced(tiny, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    circle = tmp_path / "circle"
    circle.symlink_to(circle.name)
    for path, words in ((pipe, "not a regular file"), (tmp_path, "it is a folder"), (circle, "")):
        with pytest.raises(CheckpointError, match=f"cannot write {path}: .*{words}") as info:
            save_checkpoint(path, tiny.model())
        assert "unchanged" not in str(info.value)
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["circle", "pipe"]


def test_an_interruption_while_saving_leaves_the_old_checkpoint(tiny, saved, monkeypatch):
    before = saved.read_bytes()

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(saved, tiny.model(seed=2))
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_a_full_disk_during_training_then_resumed(tiny, tmp_path):
    whole = tiny.model()
    train(whole, tiny.sampler, tiny.stages(), tiny.config())
    temporary = tmp_path / ".checkpoint.safetensors.tmp"

    def fill(event):
        if event.position == 9:
            temporary.symlink_to("/dev/full")

    with pytest.raises(CheckpointError, match="No space left"):
        train(
            tiny.model(),
            tiny.sampler,
            tiny.stages(),
            tiny.config(),
            out_dir=tmp_path,
            progress=fill,
        )
    model = tiny.model()
    result = train(model, tiny.sampler, tiny.stages(), tiny.config(), out_dir=tmp_path, resume=True)
    assert result.resumed_from_step == 5
    tiny.assert_same_weights(tiny.weights(whole), tiny.weights(model))


def test_a_missing_folder_is_refused(tiny, tmp_path):
    with pytest.raises(CheckpointError, match="No such file or directory"):
        save_checkpoint(tmp_path / "nowhere" / "c.safetensors", tiny.model())


def test_foreign_files_are_refused(tmp_path, saved):
    assert "does not exist" in _refusal(tmp_path / "missing.safetensors")
    assert "is a folder" in _refusal(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("not a checkpoint\nat all")
    assert "not a whole safetensors file" in _refusal(text)
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(b"")
    assert "is empty" in _refusal(empty)
    foreign = tmp_path / "foreign.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2)}, foreign)
    assert "another origin" in _refusal(foreign)
    pickled = tmp_path / "pickled.pt"
    torch.save({"a": torch.zeros(2)}, pickled)
    assert "not a whole safetensors file" in _refusal(pickled)
    if os.path.exists("/dev/null"):
        with pytest.raises(CheckpointError, match="not a regular file"):
            load_checkpoint("/dev/null")


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.99])
def test_truncated_files_are_refused(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: max(1, int(share * len(data)))])
    assert "not a whole safetensors file" in _refusal(saved)


def test_a_flipped_bit_in_the_data_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    data[-3] ^= 1
    saved.write_bytes(bytes(data))
    assert "damaged" in _refusal(saved)


def test_another_format_version_is_refused(saved):
    data = saved.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["format_version"] = "99"
    text = json.dumps(header).encode()
    saved.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    assert "format version '99'; accepted: " in _refusal(saved)


def test_another_model_is_refused(tiny, saved):
    model = tiny.model()
    model.extra = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(CheckpointError, match="another model") as info:
        load_checkpoint(saved).restore(model)
    assert "\n" not in str(info.value)


def test_a_checkpoint_saved_by_hand_cannot_be_resumed(tiny, tmp_path):
    save_checkpoint(tmp_path / "checkpoint.safetensors", tiny.model())
    with pytest.raises(CheckpointError, match="not saved by a training run"):
        train(
            tiny.model(), tiny.sampler, tiny.stages(), tiny.config(), out_dir=tmp_path, resume=True
        )


def _line(step):
    return MetricsLine(step, "s", step, 0.5, 1e-3, None, None, 0.1)


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        append_metrics(path, _line(step))
    with open(path, "a") as file:
        file.write('{"step": 4, "sta')
    assert [line.step for line in read_metrics(path)] == [1, 2, 3]
    truncate_metrics(path, 2)
    assert read_metrics(path) == [_line(1), _line(2)]
    truncate_metrics(tmp_path / "none.jsonl", 2)
    assert not (tmp_path / "none.jsonl").exists()


def test_metrics_that_cannot_be_written_or_read(tmp_path):
    with pytest.raises(MetricsError, match="No space left"):
        append_metrics("/dev/full", _line(1))
    bad = tmp_path / "bad.jsonl"
    bad.write_text("hello\n")
    with pytest.raises(MetricsError, match="line 1: 'hello'"):
        read_metrics(bad)
