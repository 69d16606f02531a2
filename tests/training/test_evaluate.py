import pytest
import torch
from torch.nn.functional import cross_entropy

from anna_attn.nn import Hard, StraightThrough
from anna_attn.training import Evaluation, NonFiniteError, best_hash_seed, evaluate


def _batches(tiny, number=2):
    return [tiny.sampler(16, torch.Generator().manual_seed(seed)) for seed in range(number)]


def test_the_model_is_left_as_it_was(tiny):
    model = tiny.model()
    before = tiny.weights(model)
    model.embedding.sum().backward()
    evaluate(model, _batches(tiny), hash_seeds=[5, 6])
    tiny.assert_same_weights(before, tiny.weights(model))
    assert model.training
    assert torch.equal(model.embedding.grad, torch.ones_like(model.embedding))


def test_counts_equal_a_count_by_hand(tiny):
    model, batches = tiny.model(), _batches(tiny)
    result = evaluate(model, batches, hash_seeds=[5, 6])
    assert result.hash_seeds == (5, 6)
    assert result.num_sequences == 32
    assert result.num_tokens == sum(int(batch.mask.sum()) for batch in batches)
    for draw, seed in enumerate([5, 6]):
        other = tiny.model()
        other.redraw(seed)
        wrong = [
            ((other(batch.tokens, mechanism=Hard()).argmax(-1) != batch.targets) & batch.mask)
            for batch in batches
        ]
        assert result.wrong_tokens[draw] == sum(int(w.sum()) for w in wrong)
        assert result.wrong_sequences[draw] == sum(int(w.any(1).sum()) for w in wrong)


def test_statistics():
    result = Evaluation(100, 10, (1, 3), (1, 2), (0, 1))
    assert result.errors == (0.01, 0.03)
    assert result.mean == pytest.approx(0.02)
    assert result.std == pytest.approx(0.02 / 2**0.5)
    assert result.sequence_errors == (0.1, 0.2)
    assert Evaluation(100, 10, (1,), (1,), None).std == 0.0


def test_own_tables_once_and_other_mechanisms(tiny):
    model = tiny.model(seed=2)
    own = evaluate(model, _batches(tiny), hash_seeds=None)
    drawn = evaluate(model, _batches(tiny), hash_seeds=[2])
    assert own.hash_seeds is None
    assert own.wrong_tokens == drawn.wrong_tokens
    same = evaluate(model, _batches(tiny), hash_seeds=None, mechanism=StraightThrough(1.0))
    assert same.wrong_tokens == own.wrong_tokens


def test_nothing_to_evaluate_is_refused(tiny):
    with pytest.raises(ValueError, match="batches is empty"):
        evaluate(tiny.model(), [], hash_seeds=None)
    with pytest.raises(ValueError, match="hash_seeds is empty"):
        evaluate(tiny.model(), _batches(tiny), hash_seeds=[])


def test_logits_that_are_not_finite_are_an_error(tiny):
    model = tiny.model()
    model.readout.data[:] = float("nan")
    with pytest.raises(NonFiniteError, match="batch 0"):
        evaluate(model, _batches(tiny), hash_seeds=None)


def test_the_best_draw_has_the_lowest_loss(tiny):
    model, batches, seeds = tiny.model(), _batches(tiny), range(5)
    before = tiny.weights(model)
    losses = []
    for seed in seeds:
        other = tiny.model()
        other.redraw(seed)
        logits = [other(batch.tokens, mechanism=Hard())[batch.mask] for batch in batches]
        targets = [batch.targets[batch.mask] for batch in batches]
        loss = cross_entropy(torch.cat(logits), torch.cat(targets))
        losses.append(float(loss.detach()))
    assert len(set(losses)) == 5
    assert best_hash_seed(model, batches, seeds) == losses.index(min(losses))
    assert best_hash_seed(model, batches, [3]) == 3
    tiny.assert_same_weights(before, tiny.weights(model))
    assert model.training
    for nothing in (([], [1]), (batches, [])):
        with pytest.raises(ValueError, match="is empty"):
            best_hash_seed(model, *nothing)
