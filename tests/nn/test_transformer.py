"""AnnaTransformer: rebuilt in a new process, redrawn, rehashed; the induction recipe learns."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from anna_attn.nn import (
    AnnaTransformer,
    AttentionConfig,
    Expected,
    Rotary,
    Softmax,
    StraightThrough,
    TransformerConfig,
    ValueRotary,
)


def config(**changes):
    layer = AttentionConfig(head_dim=6, num_heads=2, num_tables=4, hashes_per_table=2)
    rotated = replace(layer, rotary=Rotary(((1.0, 0.2),)), value_rotary=ValueRotary(((0.5, 0.1),)))
    fields = {
        "vocab_size": 7,
        "num_outputs": 3,
        "layers": (layer, rotated),
        "width": 8,
        "mlp_width": 16,
        "is_causal": True,
        "seed": 3,
    }
    return TransformerConfig(**{**fields, **changes})


def tokens(length=11, seed=0):
    return torch.randint(0, 7, (4, length), generator=torch.Generator().manual_seed(seed))


def codes(model, index=0):
    unit = torch.randn(1, 2, 40, 6, generator=torch.Generator().manual_seed(0))
    return model.layers[index].attention.tables(unit)


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal"])
def test_logits_have_a_row_per_token(positions):
    model = AnnaTransformer(config(positions=positions, max_length=16))
    with torch.no_grad():
        assert model(tokens()).shape == (4, 11, 3)
        assert model(tokens(length=1)).shape == (4, 1, 3)


@pytest.mark.parametrize("shape", [(0, 11), (4, 0), (0, 0)])
@pytest.mark.parametrize(
    ("mechanism", "decay"),
    [
        (Softmax(1.0), None),
        *[(m, decay) for m in (None, Expected(2.0), StraightThrough(2.0)) for decay in (None, 0.1)],
    ],
)
def test_no_sequences_and_no_tokens(shape, mechanism, decay):
    layer = AttentionConfig(head_dim=6, num_tables=4, hashes_per_table=2, decay=decay)
    model = AnnaTransformer(config(layers=(layer, layer)))
    model.requires_grad_(mechanism is not None)
    nothing = torch.zeros(shape, dtype=torch.int64)
    output = model(nothing, mechanism=mechanism)
    assert output.shape == (*shape, 3)
    if mechanism is not None:
        output.sum().backward()
        assert not any(bool(p.grad.any()) for p in model.parameters() if p.grad is not None)


def test_one_config_makes_one_model():
    before = torch.random.get_rng_state()
    first, second = AnnaTransformer(config()), AnnaTransformer(config())
    other = AnnaTransformer(config(seed=4))
    assert torch.equal(torch.random.get_rng_state(), before)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_layers_have_weights_and_tables_of_their_own():
    model = AnnaTransformer(config())
    assert not torch.equal(codes(model, 0), codes(model, 1))
    first, second = (model.layers[i].attention for i in range(2))
    assert not torch.equal(first.query.weight, second.query.weight)


SCRIPT = """
import json, sys, torch
from safetensors.torch import load_file, save_file
from anna_attn.nn import AnnaTransformer, Expected, TransformerConfig
folder = sys.argv[1]
torch.set_num_threads(1)
model = AnnaTransformer(TransformerConfig.from_dict(json.load(open(folder + "/config.json"))))
model.load_state_dict(load_file(folder + "/model.safetensors"))
tokens = load_file(folder + "/tokens.safetensors")["tokens"]
with torch.no_grad():
    save_file({"hard": model(tokens), "expected": model(tokens, mechanism=Expected(2.0))},
              folder + "/out.safetensors")
"""


def test_a_new_process_rebuilds_the_model_to_the_bit(tmp_path):
    from safetensors.torch import load_file

    model = AnnaTransformer(config())
    model.redraw(77)
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict()))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    save_file({"tokens": tokens()}, tmp_path / "tokens.safetensors")
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True)
    out = load_file(tmp_path / "out.safetensors")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            assert torch.equal(out["hard"], model(tokens()))
            assert torch.equal(out["expected"], model(tokens(), mechanism=Expected(2.0)))
    finally:
        torch.set_num_threads(threads)


def test_redraw_changes_every_layer_and_is_reproducible():
    model = AnnaTransformer(config())
    weights = model.embedding.weight.clone()
    drawn = [codes(model, i) for i in range(2)]
    model.redraw(5)
    first = [codes(model, i) for i in range(2)]
    model.redraw(6)
    second = codes(model)
    model.redraw(5)
    assert all(not torch.equal(a, b) for a, b in zip(drawn, first, strict=True))
    assert not torch.equal(first[0], second)
    assert all(torch.equal(codes(model, i), first[i]) for i in range(2))
    assert torch.equal(model.embedding.weight, weights)
    model.redraw(config().seed)
    assert torch.equal(codes(model), drawn[0])


def test_with_tables_keeps_weights_and_hashes_anew():
    layers = tuple(replace(layer, mechanism="softmax") for layer in config().layers)
    model = AnnaTransformer(config(layers=layers)).eval()
    hashed = model.with_tables("cross_polytope", (3, 5), 1, 9)
    sizes = [layer.attention.tables.num_tables for layer in hashed.layers]
    assert sizes == [3, 5]
    assert [layer.mechanism for layer in hashed.config.layers] == ["anna", "anna"]
    assert not hashed.training
    for (name, one), (_, two) in zip(
        model.named_parameters(), hashed.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name
        assert one.data_ptr() != two.data_ptr(), name
    with torch.no_grad():
        softmax = Softmax(1.0)
        assert torch.equal(model(tokens()), hashed(tokens(), mechanism=softmax))
        rebuilt = AnnaTransformer(hashed.config)
        assert torch.equal(codes(rebuilt), codes(hashed))
    hashed.redraw(9)
    assert torch.equal(codes(rebuilt), codes(hashed))
    assert model.with_tables(seed=1).config.layers[0].num_tables == 4
    with pytest.raises(ValueError, match="one for each of 2 layers"):
        model.with_tables(num_tables=(1, 2, 3))


def test_a_mechanism_is_not_remembered():
    model = AnnaTransformer(config())
    with torch.no_grad():
        first = model(tokens())
        model(tokens(), mechanism=Softmax(5.0))
        assert torch.equal(model(tokens()), first)


def test_padding_does_not_change_real_tokens():
    model, x = AnnaTransformer(config(is_causal=False)), tokens()
    mask = torch.ones(4, 15, dtype=torch.bool)
    mask[:, 11:] = False
    padded = torch.cat([x, torch.zeros(4, 4, dtype=torch.int64)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded, key_mask=mask)[:, :11], model(x))


def test_no_mlp_and_double_precision():
    model = AnnaTransformer(config(mlp_width=0)).double()
    assert model.layers[0].mlp is None
    with torch.no_grad():
        assert model(tokens()).dtype == torch.float64


def test_errors_quote_what_came():
    model = AnnaTransformer(config(positions="learned", max_length=5))
    with pytest.raises(ValueError, match=r"length 11.*max_length=5"):
        model(tokens())
    with pytest.raises(ValueError, match=r"tokens must be \(B, T\), got \(11,\)"):
        model(tokens()[0])


def induction_config():
    """The strict recipe's two layers: previous token, then matching with rotary values."""
    geometric = [
        [high * (low / high) ** (i / (n - 1)) for i in range(n)]
        for high, low, n in ((3.0, 0.1, 16), (2.0, 0.2, 8))
    ]
    previous = AttentionConfig(
        head_dim=32, value_dim=16, rotary=Rotary((tuple(geometric[0]),), bias_std=1.0)
    )
    rates = tuple(tuple(a * math.pi / 8 * f for f in geometric[1]) for a in (1.2, 0.6, 0.3, 0.15))
    matching = AttentionConfig(
        head_dim=32,
        num_heads=4,
        rotary=Rotary(rates, bias_value=1.5 / 4, weight_scale=0.1),
        value_rotary=ValueRotary((tuple(w for w in (0.8, 0.3, 0.1, 0.03) for _ in range(4)),)),
    )
    return TransformerConfig(
        vocab_size=4, num_outputs=4, layers=(previous, matching), is_causal=True
    )


def test_straight_through_training_lowers_the_loss_of_a_copy_task():
    """Predict the previous token: the recipe's first layer finds it within a few steps."""
    model = AnnaTransformer(replace(induction_config(), layers=induction_config().layers[:1]))
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for step in range(60):
        model.redraw(step)
        x = torch.randint(0, 4, (16, 24), generator=generator)
        logits = model(x, mechanism=StraightThrough(2.0))[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses
