import dataclasses

import pytest
import torch

from anna_attn.nn import Expected, Hard, Softmax, StraightThrough
from anna_attn.training import (
    EarlyStop,
    direct_stages,
    softmax_surrogate_stages,
    straight_through_stages,
    teacher_loss,
    train,
)


def test_the_papers_way_is_one_softmax_stage():
    (stage,) = softmax_surrogate_stages(beta=0.1, steps=7)
    assert stage.mechanism(0.0) == stage.mechanism(1.0) == Softmax(0.1)
    assert stage.evaluation_mechanism == Softmax(0.1)
    assert (stage.steps, stage.learning_rate, stage.fresh_hashes) == (7, 0.01, False)


def test_direct_stages():
    stop = EarlyStop(target_error=0.0)
    expected, hard, fixed = direct_stages(
        exponent=8,
        expected_steps=5,
        straight_through_steps=6,
        fixed_steps=7,
        start_exponent=0.5,
        early_stop=stop,
    )
    assert expected.mechanism(0.0) == Expected(0.5, 0.3)
    assert expected.mechanism(0.4).exponent == pytest.approx(2.0)
    assert expected.mechanism(1.0) == Expected(8, 0.3)
    assert hard.mechanism(0.0) == hard.mechanism(1.0) == StraightThrough(8)
    assert fixed.mechanism(0.5) == StraightThrough(8)
    assert [s.fresh_hashes for s in (expected, hard, fixed)] == [False, True, False]
    assert [s.steps for s in (expected, hard, fixed)] == [5, 6, 7]
    assert [s.learning_rate for s in (expected, hard, fixed)] == [3e-3, 2e-3, 1e-3]
    assert [s.early_stop for s in (expected, hard, fixed)] == [None, stop, stop]


def test_the_last_stage_is_optional():
    assert len(direct_stages(exponent=1, expected_steps=1, straight_through_steps=1)) == 2
    assert len(straight_through_stages(exponent=1, steps=1)) == 1


def test_straight_through_from_scratch_is_annealed():
    first, last = straight_through_stages(exponent=8, steps=600, fixed_steps=200)
    assert first.mechanism(0.0) == StraightThrough(2.0)
    assert first.mechanism(0.35).exponent == pytest.approx(4.0)
    assert first.mechanism(0.7) == first.mechanism(1.0) == StraightThrough(8)
    assert (first.fresh_hashes, last.fresh_hashes) == (True, False)
    constant = straight_through_stages(exponent=8, steps=600, start_exponent=None)[0]
    assert constant.mechanism(0.0) == StraightThrough(8)


def test_teacher_loss_is_the_divergence_from_the_teacher(tiny):
    teacher, student = tiny.model(seed=1), tiny.model(seed=2)
    batch = tiny.sampler(8, torch.Generator().manual_seed(0))
    loss = teacher_loss(teacher, Hard(), temperature=2.0)
    logits = student(batch.tokens, mechanism=Hard())
    wanted = teacher(batch.tokens, mechanism=Hard())
    p = (wanted[batch.mask] / 2.0).softmax(-1)
    q = (logits[batch.mask] / 2.0).softmax(-1)
    expected = 4.0 * (p * (p / q).log()).sum(-1).mean()
    torch.testing.assert_close(loss(logits, batch), expected)
    torch.testing.assert_close(loss(wanted, batch), torch.tensor(0.0), atol=1e-6, rtol=0.0)
    with pytest.raises(ValueError, match="temperature is 0"):
        teacher_loss(teacher, Hard(), temperature=0.0)


def test_a_student_learns_from_a_teacher_alone(tiny):
    teacher = tiny.model(seed=1)
    train(teacher, tiny.sampler, tiny.stages(100, 40), tiny.config(batch_size=16))
    loss = teacher_loss(teacher, Hard())
    stages = [dataclasses.replace(stage, loss=loss) for stage in tiny.stages(100, 40)]
    student = tiny.model(seed=2)
    result = train(student, tiny.sampler, stages, tiny.config(batch_size=16))
    assert result.error < 0.05
    assert not any(
        parameter.grad is not None and parameter.grad.isnan().any()
        for parameter in student.parameters()
    )
