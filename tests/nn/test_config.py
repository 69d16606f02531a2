"""Configurations: what they refuse, and their way through JSON."""

import json
from dataclasses import replace

import pytest

from anna_attn.nn import (
    AttentionConfig,
    Expected,
    Hard,
    Rotary,
    Softmax,
    StraightThrough,
    TransformerConfig,
    ValueRotary,
)

LAYER = AttentionConfig(
    head_dim=6,
    value_dim=5,
    num_heads=2,
    rotary=Rotary(((1.0, 0.5), (0.25, 0.1)), bias_value=0.3),
    value_rotary=ValueRotary(((0.8,),), learnable=False),
    decay=(0.5, 0.1),
)
CONFIG = TransformerConfig(
    vocab_size=4, num_outputs=3, width=8, mlp_width=16, layers=(LAYER, LAYER), is_causal=True
)


def test_round_trip_through_json():
    again = TransformerConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict())))
    assert again == CONFIG
    layer = AttentionConfig.from_dict(json.loads(json.dumps(LAYER.to_dict())))
    assert layer == LAYER


def test_from_dict_refuses_unknown_and_missing_fields():
    fields = CONFIG.to_dict()
    with pytest.raises(ValueError, match=r"unknown fields \['colour'\]"):
        TransformerConfig.from_dict({**fields, "colour": 1})
    del fields["vocab_size"]
    with pytest.raises(ValueError, match=r"lacks \['vocab_size'\]"):
        TransformerConfig.from_dict(fields)


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("softmax", Softmax(0.5)),
        ("expected", Expected(3.0, 0.2)),
        ("straight_through", StraightThrough(3.0)),
        ("anna", Hard()),
    ],
)
def test_names_stand_for_mechanisms(name, mechanism):
    config = AttentionConfig(head_dim=4, hashes_per_table=3, mechanism=name, beta=0.5, floor=0.2)
    assert config.default_mechanism() == mechanism


def test_exponent_overrides_the_number_of_hashes():
    config = AttentionConfig(head_dim=4, mechanism="expected", exponent=1.5)
    assert config.default_mechanism() == Expected(1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 0}, "head_dim must be an int >= 1, got 0"),
        ({"num_heads": True}, "num_heads must be an int >= 1, got True"),
        ({"num_heads": 3, "num_kv_heads": 2}, "num_kv_heads must divide num_heads=3, got 2"),
        ({"family": "simhash"}, "one of hyperplane, .*, got 'simhash'"),
        ({"rotation": "haar"}, "one of hadamard, gaussian, got 'haar'"),
        ({"mechanism": "hard"}, "one of softmax, .*, got 'hard'"),
        ({"bucket_width": 0.0}, "bucket_width must be > 0"),
        ({"bias_std": -1.0}, "bias_std must be a finite number >= 0, got -1"),
        ({"decay": 0.0}, "decay must be > 0"),
        ({"decay": (1.0, 1.0, 1.0)}, "one for each of 2 heads"),
        ({"rotary": Rotary(((1.0,) * 4,))}, "at most 3 entries a row"),
        ({"rotary": Rotary(((1.0,),) * 3)}, "1 or 2 rows for num_heads=2"),
        ({"num_kv_heads": 1}, "1 rows for num_heads=2, num_kv_heads=1; got 2"),
        ({"rotary": ((1.0,),)}, "rotary must be a Rotary or None"),
        ({"mechanism": "expected", "exponent": 0.0}, "exponent must be a finite number > 0"),
    ],
)
def test_attention_config_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        replace(LAYER, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 1.5}, "vocab_size must be an int >= 1, got 1.5"),
        ({"mlp_width": -1}, "mlp_width must be an int >= 1, got -1"),
        ({"layers": ()}, "layers must be a non-empty tuple"),
        ({"layers": ("a",)}, r"layers\[0\] must be an AttentionConfig, got 'a'"),
        ({"positions": "alibi"}, "one of none, learned, sinusoidal, got 'alibi'"),
        ({"positions": "learned"}, "max_length must be given"),
        ({"positions": "sinusoidal", "width": 7}, "width must be even"),
        ({"is_causal": False}, r"layers\[0\].decay needs is_causal=True"),
        ({"seed": -1}, "seed must be an int >= 0, got -1"),
    ],
)
def test_transformer_config_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)


def test_rotary_refuses_ragged_rows():
    with pytest.raises(ValueError, match="rows of one length"):
        Rotary(((1.0,), (1.0, 2.0)))
    with pytest.raises(ValueError, match="non-empty tuple of tuples"):
        ValueRotary(())


def test_mechanisms_refuse():
    with pytest.raises(ValueError, match="beta must be a finite number >= 0, got -1"):
        Softmax(-1)
    with pytest.raises(ValueError, match="exponent must be a finite number > 0, got 0"):
        Expected(0)
    with pytest.raises(ValueError, match="exponent must be a finite number > 0, got nan"):
        StraightThrough(float("nan"))
    with pytest.raises(ValueError, match=r"stray must be a probability, got 1\.5"):
        StraightThrough(1.0, stray=1.5)
