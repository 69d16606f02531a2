import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from anna_attn.lsh import HashTables, Hyperplane
from anna_attn.nn import StraightThrough
from anna_attn.training import (
    Batch,
    CheckpointError,
    Curriculum,
    EarlyStop,
    NonFiniteError,
    derive_seed,
    evaluate,
    load_checkpoint,
    masked_cross_entropy,
    read_metrics,
    root_mean_square_cross_entropy,
    train,
)


def _trained(tiny, tmp_path=None, seed=3, **changes):
    model = tiny.model()
    result = train(model, tiny.sampler, tiny.stages(), tiny.config(seed=seed), **changes)
    return model, result


def test_training_lowers_the_error_below_a_bound(tiny):
    model = tiny.model()
    test = [tiny.sampler(200, torch.Generator().manual_seed(99))]
    before = evaluate(model, test, hash_seeds=range(5)).mean
    result = train(model, tiny.sampler, tiny.stages(100, 40), tiny.config(batch_size=16))
    assert before > 0.2
    assert evaluate(model, test, hash_seeds=range(5)).mean < 0.05
    assert evaluate(model, test, hash_seeds=None).mean == 0.0
    assert result.error == 0.0
    assert [stage.steps for stage in result.stages] == [100, 40]


def test_same_seed_same_weights_other_seed_other_weights(tiny):
    first, second, third = (_trained(tiny, seed=seed)[0] for seed in (3, 3, 4))
    tiny.assert_same_weights(tiny.weights(first), tiny.weights(second))
    assert not torch.equal(first.embedding, third.embedding)
    assert not torch.equal(first.tables, third.tables)


@pytest.mark.parametrize("after", [0, 4, 7, 11, 12, 14, 19])
def test_interrupted_and_resumed_equals_uninterrupted_bitwise(tiny, tmp_path, after):
    whole, expected = _trained(tiny, out_dir=tmp_path / "whole")
    model = tiny.model()
    # validate_every draws two validation batches at the start of each of the two stages.
    calls = after + (2 if after < 12 else 4)
    with pytest.raises(KeyboardInterrupt):
        train(
            model,
            tiny.interrupting_sampler(calls),
            tiny.stages(),
            tiny.config(),
            out_dir=tmp_path / "cut",
        )
    fresh = tiny.model(seed=8)
    fresh.config = model.config
    result = train(
        fresh, tiny.sampler, tiny.stages(), tiny.config(), out_dir=tmp_path / "cut", resume=True
    )
    tiny.assert_same_weights(tiny.weights(whole), tiny.weights(fresh))
    assert result.resumed_from_step == max(s for s in (0, 5, 10, 12, 15) if s <= after)
    assert result.stages == expected.stages
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "cut")]
    untimed = [[dataclasses.replace(line, seconds=0.0) for line in file] for file in lines]
    assert untimed[0] == untimed[1]
    assert [line.step for line in lines[1]] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


_KILLED = """
import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("tiny_conftest", sys.argv[1])
conftest = importlib.util.module_from_spec(spec)
sys.modules["tiny_conftest"] = conftest
spec.loader.exec_module(conftest)
from anna_attn.training import train
tiny = conftest.TinyWorld
calls = iter(range(100))
def sampler(batch_size, generator):
    if next(calls) == 2 + 8:
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
    return tiny.sampler(batch_size, generator)
train(tiny.model(), sampler, tiny.stages(), tiny.config(), out_dir=sys.argv[2])
"""


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_killed_process_resumes_bitwise(tiny, tmp_path, signal):
    conftest = Path(__file__).with_name("conftest.py")
    command = [sys.executable, "-c", _KILLED, str(conftest), str(tmp_path), signal]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in (-9, -15), ended.stderr
    assert load_checkpoint(tmp_path / "checkpoint.safetensors").state["progress"]["step"] == 5
    model, result = _trained(tiny, out_dir=tmp_path, resume=True)
    assert result.resumed_from_step == 5
    tiny.assert_same_weights(tiny.weights(_trained(tiny)[0]), tiny.weights(model))


def test_a_finished_run_is_loaded_not_trained_again(tiny, tmp_path):
    whole, expected = _trained(tiny, out_dir=tmp_path)
    model = tiny.model()
    sampler = tiny.interrupting_sampler(0, AssertionError("drew a batch"))
    result = train(model, sampler, tiny.stages(), tiny.config(), out_dir=tmp_path, resume=True)
    tiny.assert_same_weights(tiny.weights(whole), tiny.weights(model))
    assert (result.stages, result.steps) == (expected.stages, expected.steps)


def test_resume_refuses_another_plan_model_or_folder(tiny, tmp_path):
    _trained(tiny, out_dir=tmp_path)

    def resume(model=None, stages=None, config=None):
        train(
            model or tiny.model(),
            tiny.sampler,
            stages or tiny.stages(),
            config or tiny.config(),
            out_dir=tmp_path,
            resume=True,
        )

    with pytest.raises(CheckpointError, match="seed = 3, here it is 4"):
        resume(config=tiny.config(seed=4))
    with pytest.raises(CheckpointError, match="steps = 12 in stage 0, here it is 13"):
        resume(stages=tiny.stages(13))
    with pytest.raises(CheckpointError, match="2 stages, here are 1"):
        resume(stages=tiny.stages()[:1])
    with pytest.raises(CheckpointError, match="seed = 0, here it is 5"):
        resume(model=tiny.model(seed=5))
    with pytest.raises(CheckpointError, match="accepted: resume=True"):
        _trained(tiny, out_dir=tmp_path)
    with pytest.raises(ValueError, match="out_dir is None"):
        _trained(tiny, resume=True)


def test_an_unwritable_folder_is_found_before_the_first_step(tiny, tmp_path):
    (tmp_path / "file").write_text("in the way")
    sampler = tiny.interrupting_sampler(2, AssertionError("trained"))
    with pytest.raises(CheckpointError, match="cannot create"):
        train(
            tiny.model(), sampler, tiny.stages(), tiny.config(), out_dir=tmp_path / "file" / "run"
        )


def test_early_stop_at_a_target_ends_the_stage_only(tiny):
    model = tiny.model()
    stages = tiny.stages(200, 8, EarlyStop(target_error=0.05))
    result = train(model, tiny.sampler, stages, tiny.config(batch_size=16))
    first, second = result.stages
    assert first.stopped_early
    assert first.error <= 0.05
    assert first.steps < 200
    assert first.steps % 4 == 0
    assert (second.steps, second.stopped_early) == (8, False)


def test_early_stop_by_patience(tiny):
    # Untrainable on purpose: a learning rate this small never finds a lower error.
    stage = dataclasses.replace(
        tiny.stages(100)[0], learning_rate=1e-12, early_stop=EarlyStop(patience=3)
    )
    result = train(tiny.model(), tiny.sampler, [stage], tiny.config())
    assert result.stages[0].stopped_early
    assert result.steps == 16


def test_early_stop_survives_an_interruption(tiny, tmp_path):
    stage = dataclasses.replace(
        tiny.stages(100)[0], learning_rate=1e-12, early_stop=EarlyStop(patience=3)
    )
    sampler = tiny.interrupting_sampler(2 + 13)
    with pytest.raises(KeyboardInterrupt):
        train(tiny.model(), sampler, [stage], tiny.config(), out_dir=tmp_path)
    model = tiny.model()
    result = train(model, tiny.sampler, [stage], tiny.config(), out_dir=tmp_path, resume=True)
    assert (result.resumed_from_step, result.steps) == (10, 16)


def test_early_stop_without_validation_is_refused(tiny):
    stages = tiny.stages(early_stop=EarlyStop(patience=1))
    with pytest.raises(ValueError, match="validate_every is 0"):
        train(tiny.model(), tiny.sampler, stages, tiny.config(validate_every=0))
    with pytest.raises(ValueError, match="both None"):
        EarlyStop()


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tiny, tmp_path):
    calls = iter(range(100))

    def poisoned(logits, batch):
        loss = masked_cross_entropy(logits, batch)
        return loss * float("nan") if next(calls) == 7 else loss

    stages = tuple(dataclasses.replace(stage, loss=poisoned) for stage in tiny.stages())
    model = tiny.model()
    with pytest.raises(
        NonFiniteError, match=r"loss nan.* at step 7 of 12 of stage 'fresh'"
    ) as info:
        train(model, tiny.sampler, stages, tiny.config(), out_dir=tmp_path)
    assert "\n" not in str(info.value)
    assert str(tmp_path) in str(info.value)
    checkpoint = load_checkpoint(tmp_path / "checkpoint.safetensors")
    assert checkpoint.state["progress"]["step"] == 5
    assert all(bool(torch.isfinite(t).all()) for t in checkpoint.model_state.values())
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_weights_that_are_not_finite_are_not_saved(tiny, tmp_path):
    model = tiny.model()

    def ruined(event):
        if event.position == 5:
            model.embedding.data[0, 0] = float("inf")

    with pytest.raises(NonFiniteError, match=r"embedding is NaN or infinite at step 5"):
        train(model, tiny.sampler, tiny.stages(), tiny.config(), out_dir=tmp_path, progress=ruined)
    assert load_checkpoint(tmp_path / "checkpoint.safetensors").state["progress"]["step"] == 0


def test_fresh_stages_draw_every_step_and_fixed_ones_never(tiny):
    model = tiny.model()
    tables = []
    train(
        model,
        tiny.sampler,
        tiny.stages(5, 5),
        tiny.config(),
        progress=lambda event: tables.append(model.tables.clone()),
    )
    assert len({tuple(table.flatten().tolist()) for table in tables}) == 6
    assert all(torch.equal(table, model.tables) for table in tables[5:])
    own = tiny.model()
    own.redraw(derive_seed(3, "own tables"))
    assert torch.equal(own.tables, model.tables)


def test_fresh_hashes_refuse_learnable_tables(tiny):
    model = tiny.model()
    model.hashing = HashTables(Hyperplane(8), 2, 2, learnable=True)
    with pytest.raises(ValueError, match="learnable"):
        train(model, tiny.sampler, tiny.stages(), tiny.config())


def test_stage_sampler_curriculum_and_batch_size(tiny):
    seen = []

    def sampler_named(name):
        def sampler(batch_size, generator):
            seen.append((name, batch_size))
            return tiny.sampler(batch_size, generator)

        return sampler

    first, second = tiny.stages(4, 2)
    curriculum = Curriculum((sampler_named("easy"), sampler_named("hard")), (0.5,))
    first = dataclasses.replace(first, sampler=curriculum, batch_size=4)
    train(tiny.model(), sampler_named("main"), [first, second], tiny.config(validate_every=0))
    assert seen == [("easy", 4)] * 2 + [("hard", 4)] * 2 + [("main", 8)] * 2


def test_validation_data_differ_from_training_data_and_may_be_given(tiny):
    drawn = []

    def sampler(batch_size, generator):
        drawn.append(tiny.sampler(batch_size, generator))
        return drawn[-1]

    train(tiny.model(), sampler, tiny.stages(4, 2), tiny.config())
    assert len(drawn) == 2 + 4 + 2 + 2
    distinct = {tuple(batch.tokens.flatten().tolist()) for batch in drawn}
    # The two stages validate on the same two batches; everything else is drawn once.
    assert len(distinct) == 2 + 4 + 2
    del drawn[:]
    given = [tiny.sampler(8, torch.Generator().manual_seed(1))]
    result = train(tiny.model(), sampler, tiny.stages(4, 2), tiny.config(), validation=given)
    assert len(drawn) == 6
    assert result.error is not None


def test_metrics_lines(tiny, tmp_path):
    _, result = _trained(tiny, out_dir=tmp_path)
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line.stage for line in lines] == ["fresh"] * 6 + ["fixed"] * 4
    assert [line.exponent for line in lines][5:7] == [2.0, 2.0]
    assert lines[0].exponent == pytest.approx(1 + 1 / 11)
    assert [line.error is not None for line in lines] == [False, True] * 5
    assert lines[-1].error == result.error
    assert lines[-1].loss == result.loss
    assert lines[-1].lr == pytest.approx(0.03 * 0.02)
    seconds = [line.seconds for line in lines]
    assert seconds == sorted(seconds)
    assert all("\n" not in row for row in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_progress_events(tiny):
    events = []
    _trained(tiny, progress=events.append)
    assert [event.position for event in events] == list(range(1, 21))
    assert {event.total_steps for event in events} == {20}
    assert (events[-1].stage, events[-1].stage_index, events[-1].stage_step) == ("fixed", 1, 8)


def test_loss_counts_masked_positions_only():
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[0, 1, 2], [3, 0, 99]])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    batch = Batch(torch.zeros(2, 3, dtype=torch.int64), targets, mask)
    log_softmax = logits.log_softmax(-1)
    expected = -(log_softmax[0, 0, 0] + log_softmax[0, 2, 2] + log_softmax[1, 0, 3]) / 3
    torch.testing.assert_close(masked_cross_entropy(logits, batch), expected)
    losses = -torch.stack([log_softmax[0, 0, 0], log_softmax[0, 2, 2], log_softmax[1, 0, 3]])
    root = losses.square().mean().sqrt()
    torch.testing.assert_close(root_mean_square_cross_entropy(logits, batch), root)


def test_the_root_mean_square_has_a_gradient_where_every_loss_is_zero():
    logits = torch.tensor([[[200.0, 0.0], [200.0, 0.0]]], requires_grad=True)
    targets = torch.zeros(1, 2, dtype=torch.int64)
    batch = Batch(targets, targets, torch.ones(1, 2, dtype=torch.bool))
    root_mean_square_cross_entropy(logits, batch).backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("clip_norm", 0.0),
        ("warmup_steps", -1),
        ("final_learning_rate_share", 1.5),
        ("betas", (0.9, 1.0)),
        ("checkpoint_every", 0),
    ],
)
def test_config_refuses_what_is_out_of_range(tiny, name, value):
    with pytest.raises(ValueError, match=f"{name} is .*accepted"):
        tiny.config(**{name: value})


def test_stage_refuses_what_is_out_of_range(tiny):
    stage = tiny.stages()[0]
    for name, value in {"steps": 0, "learning_rate": float("nan"), "batch_size": 0}.items():
        with pytest.raises(ValueError, match=f"{name} is .*'fresh'"):
            dataclasses.replace(stage, **{name: value})
    with pytest.raises(ValueError, match="stages is empty"):
        train(tiny.model(), tiny.sampler, [], tiny.config())


def test_mechanism_schedule_sees_both_ends(tiny):
    seen = []

    def mechanism(progress):
        seen.append(progress)
        return StraightThrough(1.0)

    stage = dataclasses.replace(tiny.stages(3)[0], mechanism=mechanism)
    train(tiny.model(), tiny.sampler, [stage], tiny.config(validate_every=0))
    assert seen == [0.0, 0.5, 1.0]
