"""AnnaAttention: mechanisms, masks, grouped heads, decay, state."""

import math
import warnings

import pytest
import torch

from anna_attn.attention.surrogate import COSINE_SCALE
from anna_attn.nn import (
    AnnaAttention,
    AttentionConfig,
    Expected,
    Hard,
    Rotary,
    Softmax,
    StraightThrough,
    ValueRotary,
)

MECHANISMS = [Softmax(1.0), Expected(2.0), StraightThrough(2.0), Hard()]


def layer(seed=0, **changes):
    fields = {"head_dim": 6, "value_dim": 5, "num_heads": 2, "num_tables": 4, "hashes_per_table": 2}
    return AnnaAttention(AttentionConfig(**{**fields, **changes}), 8, seed=seed)


def rows(batch=3, length=9, seed=0):
    return torch.randn(batch, length, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _hard_attention_may_say_it_has_no_gradient():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*gradient.*")
        yield


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_causal_outputs_do_not_see_the_future(mechanism):
    attention, x = layer(), rows()
    out = attention(x, is_causal=True, mechanism=mechanism)
    changed = x.clone()
    changed[:, 5:] = 7.0
    again = attention(changed, is_causal=True, mechanism=mechanism)
    torch.testing.assert_close(again[:, :5], out[:, :5])
    assert not torch.allclose(again[:, 5:], out[:, 5:])


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_masked_tokens_are_not_attended(mechanism):
    attention, x = layer(), rows()
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, 3:6] = False
    out = attention(x, key_mask=mask, mechanism=mechanism)
    changed = x.clone()
    changed[0, 3:6] = 100.0
    again = attention(changed, key_mask=mask, mechanism=mechanism)
    torch.testing.assert_close(again[mask], out[mask])
    shorter = torch.cat([x[:1, :3], x[:1, 6:]], dim=1)
    torch.testing.assert_close(
        attention(shorter, mechanism=mechanism)[0], out[0][mask[0]], rtol=1e-5, atol=1e-6
    )


def test_each_name_selects_its_mechanism():
    x = rows()
    for name, mechanism in zip(
        ("softmax", "expected", "straight_through", "anna"), MECHANISMS, strict=True
    ):
        named = layer(mechanism=name)
        assert torch.equal(named(x), layer()(x, mechanism=mechanism))


def test_straight_through_equals_hard_in_value():
    attention, x = layer(), rows()
    hard = attention(x, is_causal=True, mechanism=Hard())
    soft = attention(x, is_causal=True, mechanism=StraightThrough(2.0))
    torch.testing.assert_close(soft, hard)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3], ids=str)
def test_stand_ins_train_every_parameter(mechanism):
    attention = layer(
        rotary=Rotary(((1.0, 0.3),)), value_rotary=ValueRotary(((0.5,),)), output_bias=True
    )
    attention(rows(), mechanism=mechanism).square().sum().backward()
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_hard_trains_values_only():
    attention = layer()
    attention(rows(), mechanism=Hard()).square().sum().backward()
    assert attention.value.weight.grad is not None
    assert attention.value.weight.grad.abs().sum() > 0
    assert attention.query.weight.grad is None or not attention.query.weight.grad.any()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("value_dim", [None, 1, 7])
def test_grouped_heads_equal_repeated_ones(mechanism, value_dim):
    grouped = layer(num_heads=4, num_kv_heads=2, value_dim=value_dim)
    full = layer(num_heads=4, value_dim=value_dim)
    state = grouped.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        state[name] = state[name].unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1)
    state["tables.signs"] = state["tables.signs"].repeat_interleave(2, 0)
    full.load_state_dict(state)
    x = rows()
    out, expected = (
        attention(x, is_causal=True, mechanism=mechanism) for attention in (grouped, full)
    )
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:], ids=str)
def test_decay_weighs_by_recency(mechanism):
    """At a strong decay each token hears itself alone, which always collides."""
    attention, x = layer(decay=60.0), rows()
    attention.key.load_state_dict(attention.query.state_dict())
    out = attention(x, is_causal=True, mechanism=mechanism)
    own = attention._heads(attention.value(x), 2)
    if isinstance(mechanism, Expected):
        weight = (1 - math.acos(COSINE_SCALE) / math.pi) ** mechanism.exponent
        own = own * weight / (weight + mechanism.floor)
    expected = attention.output(own.transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="needs is_causal=True"):
        attention(x, mechanism=mechanism)


def test_softmax_refuses_decay():
    with pytest.raises(ValueError, match="no decay"):
        layer(decay=1.0)(rows(), is_causal=True, mechanism=Softmax(1.0))


def test_head_norm_gives_heads_unit_size():
    attention = layer(head_norm=True)
    seen = []
    attention.output.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    attention(rows(), mechanism=Softmax(1.0))
    size = seen[0].unflatten(-1, (2, 5)).square().mean(-1).sqrt()
    torch.testing.assert_close(size, torch.ones_like(size), rtol=1e-2, atol=1e-2)


def test_initial_biases_and_weights_are_as_stated():
    plain = layer(num_heads=1, head_dim=8)
    rotated = layer(
        num_heads=1, head_dim=8, rotary=Rotary(((1.0, 0.5),), bias_value=0.4, weight_scale=0.1)
    )
    for projection, base in ((rotated.query, plain.query), (rotated.key, plain.key)):
        assert torch.equal(projection.bias, torch.tensor([0.0] * 4 + [0.4] * 4))
        assert torch.equal(projection.weight[:4], base.weight[:4])
        torch.testing.assert_close(projection.weight[4:], base.weight[4:] * 0.1)
    random = layer(head_dim=64, rotary=Rotary(((0.1,) * 32,), bias_std=1.0), bias_std=0.1)
    assert 0.7 < random.query.bias.std() < 1.3
    assert not torch.equal(random.query.bias, random.key.bias)


def test_seeds_decide_everything_and_nothing_global_does():
    before = torch.random.get_rng_state()
    first, second, other = layer(seed=1), layer(seed=1), layer(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    x = rows()
    assert torch.equal(first(x), second(x))
    assert not torch.equal(first.query.weight, other.query.weight)
    unit = torch.nn.functional.normalize(torch.randn(1, 2, 50, 6, generator=torch.Generator()))
    assert not torch.equal(first.tables(unit), other.tables(unit))


def test_another_operator_takes_the_place_of_attend():
    calls = []

    def attend(query, key, value, tables, *, is_causal, key_mask, enable_gqa, decay):
        calls.append((query.shape, is_causal, enable_gqa, decay))
        return value

    attention = AnnaAttention(AttentionConfig(head_dim=4, num_heads=2), 8, attend=attend)
    assert attention(rows(), is_causal=True).shape == (3, 9, 8)
    attention(rows(), mechanism=Softmax(1.0))
    assert calls == [((3, 2, 9, 4), True, False, None)]


def test_errors_quote_what_came():
    with pytest.raises(ValueError, match=r"x must be \(B, T, 8\), got \(9, 8\)"):
        layer()(rows()[0])
    with pytest.raises(TypeError, match=r"mechanism must be Softmax.*got 'anna'"):
        layer()(rows(), mechanism="anna")


def test_empty_sequence():
    for mechanism in MECHANISMS:
        assert layer()(rows(length=0), mechanism=mechanism).shape == (3, 0, 8)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_autocast_stays_close_to_full_precision(mechanism):
    attention = layer(rotary=Rotary(((1.0, 0.3),)), value_rotary=ValueRotary(((0.5,),)))
    attention.tables.redraw(1)
    x = rows()
    with torch.autocast("cpu", torch.bfloat16):
        low = attention(x, is_causal=True, mechanism=mechanism)
    low.float().square().sum().backward()
    assert attention.value.weight.grad is not None
    assert attention.value.weight.grad.isfinite().all()
    high = attention(x, is_causal=True, mechanism=mechanism)
    # Rounding moves a few rows across a hyperplane, so single outputs may differ.
    assert (low.float() - high).abs().median() < 0.02


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_layer_cast_to_bfloat16_runs(mechanism):
    attention = layer(rotary=Rotary(((1.0, 0.3),))).to(torch.bfloat16)
    out = attention(rows().to(torch.bfloat16), mechanism=mechanism)
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()
