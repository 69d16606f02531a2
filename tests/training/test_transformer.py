"""The room on real transformers, with a task small enough to learn in seconds.

Small Match2: is there a token in the sequence that adds up with this one to a multiple of 9?
"""

import dataclasses
import json

import pytest
import torch

from anna_attn.nn import AnnaTransformer, AttentionConfig, Softmax, TransformerConfig
from anna_attn.training import (
    Batch,
    CheckpointError,
    TrainConfig,
    direct_stages,
    distill,
    evaluate,
    load_checkpoint,
    load_model,
    save_checkpoint,
    softmax_surrogate_stages,
    straight_through_stages,
    train,
)

MODULUS = 9


def sample_match(batch_size, generator):
    # Three of the four classes {c, 9 - c} occur, some with one of their two members only.
    kept = torch.rand(batch_size, 8, generator=generator) + 1e-3
    kept = torch.where(torch.rand(kept.shape, generator=generator) < 0.4, 0.0, kept)
    kept[:, 0] = 1.0
    tokens = torch.multinomial(kept, 12, replacement=True, generator=generator) + 1
    sums = (tokens[:, :, None] + tokens[:, None, :]) % MODULUS
    return Batch(tokens, (sums == 0).any(-1).long(), torch.ones_like(tokens, dtype=torch.bool))


def make_model(seed=0, **layer):
    settings = {"head_dim": 16, "num_tables": 8, "hashes_per_table": 4, **layer}
    return AnnaTransformer(
        TransformerConfig(
            vocab_size=MODULUS,
            num_outputs=2,
            width=32,
            mlp_width=64,
            layers=(AttentionConfig(**settings),),
            seed=seed,
        )
    )


def make_config(**changes):
    settings = {"batch_size": 32, "warmup_steps": 20, "seed": 1, "checkpoint_every": 4}
    return TrainConfig(**{**settings, **changes})


def assert_same_weights(first, second):
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@pytest.fixture(scope="module")
def test_batches():
    return [sample_match(500, torch.Generator().manual_seed(1000))]


STAGES = {
    "direct": direct_stages(exponent=4, expected_steps=6, straight_through_steps=6, fixed_steps=3),
    "straight_through": straight_through_stages(exponent=4, steps=9, fixed_steps=3),
    "softmax": softmax_surrogate_stages(beta=1.0, steps=9),
}


@pytest.mark.parametrize("way", STAGES)
@pytest.mark.parametrize("after", [5, 8])
def test_resume_is_bitwise(tmp_path, way, after):
    class Cut(Exception):
        pass

    def cut(event):
        if event.position == after:
            raise Cut

    config = make_config()
    whole, first, second = make_model(), make_model(), make_model()
    train(whole, sample_match, STAGES[way], config)
    with pytest.raises(Cut):
        train(first, sample_match, STAGES[way], config, out_dir=tmp_path, progress=cut)
    train(second, sample_match, STAGES[way], config, out_dir=tmp_path, resume=True)
    assert_same_weights(whole, second)


def test_direct_training_learns_hard_attention(test_batches):
    model = make_model()
    stages = direct_stages(
        exponent=4, expected_steps=250, straight_through_steps=200, fixed_steps=50
    )
    before = evaluate(model, test_batches, hash_seeds=range(3)).mean
    train(model, sample_match, stages, make_config())
    fresh = evaluate(model, test_batches, hash_seeds=range(3))
    own = evaluate(model, test_batches, hash_seeds=None)
    assert before > 0.25
    assert fresh.mean < 0.08
    assert own.mean < 0.08
    assert fresh.num_tokens == 6000


def test_the_papers_way_survives_distillation(test_batches):
    model = make_model()
    stages = softmax_surrogate_stages(beta=1.0, steps=400)
    train(model, sample_match, stages, make_config())
    teacher = evaluate(model, test_batches, hash_seeds=None, mechanism=Softmax(1.0))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    student = distill(model, "hyperplane", 32, 2, seed=5)
    hard = evaluate(student, test_batches, hash_seeds=range(3))
    assert teacher.mean < 0.05
    assert hard.mean < 0.1
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    with torch.no_grad():
        logits = student(test_batches[0].tokens)
    assert ((logits.argmax(-1) != test_batches[0].targets).float().mean()) < 0.1


def test_a_saved_model_is_rebuilt_with_its_own_tables(tmp_path, test_batches):
    model = make_model().with_tables("cross_polytope", 5, 1, 11)
    model.redraw(12)
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, model, metadata={"task": "match"})
    rebuilt = load_model(path)
    assert not rebuilt.training
    assert rebuilt.config == model.config
    assert_same_weights(model, rebuilt)
    with torch.no_grad():
        tokens = test_batches[0].tokens
        assert torch.equal(model.eval()(tokens), rebuilt(tokens))
    assert load_checkpoint(path).metadata == {"task": "match"}


def test_the_checkpoint_of_a_run_is_a_model_file(tmp_path):
    model = make_model()
    result = train(model, sample_match, STAGES["direct"], make_config(), out_dir=tmp_path)
    assert_same_weights(model, load_model(result.checkpoint))


def test_a_model_configuration_from_elsewhere_is_refused(tmp_path):
    model = make_model()

    @dataclasses.dataclass(frozen=True)
    class Foreign:
        fields: tuple

        def to_dict(self):
            return dict(self.fields)

    path = tmp_path / "model.safetensors"
    good = json.loads(json.dumps(model.config.to_dict()))
    for bad in ({**good, "flavour": "sweet"}, {**good, "width": -1}, {}):
        model.config = Foreign(tuple(bad.items()))
        save_checkpoint(path, model)
        with pytest.raises(CheckpointError, match="cannot build") as info:
            load_model(path)
        assert "\n" not in str(info.value)
    model.config = Foreign(tuple({**good, "width": 16}.items()))
    save_checkpoint(path, model)
    with pytest.raises(CheckpointError, match="another model"):
        load_model(path)


def test_distill_takes_one_setting_per_layer():
    layer = AttentionConfig(head_dim=8, num_tables=2, hashes_per_table=2)
    config = TransformerConfig(MODULUS, 2, width=16, mlp_width=0, layers=(layer, layer))
    student = distill(AnnaTransformer(config), "cross_polytope", [3, 5], [1, 2], seed=0)
    tables = [layer.attention.tables for layer in student.layers]
    assert [t.num_tables for t in tables] == [3, 5]
    assert [t.hashes_per_table for t in tables] == [1, 2]
    with pytest.raises(ValueError, match="num_tables"):
        distill(AnnaTransformer(config), "cross_polytope", [3, 5, 7], 1, seed=0)
