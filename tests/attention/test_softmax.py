"""Softmax attention against its formula, at the masks and lengths where torch alone differs."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from anna_attn.attention import softmax as room
from anna_attn.attention.softmax import softmax_attention

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 65), (65, 1), (63, 64), (64, 63), (64, 64)]


def draw(seed, num_queries, num_keys, heads=4, kv_heads=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, heads, num_queries, 8, generator=generator).to(dtype)
    key = torch.randn(2, kv_heads, num_keys, 8, generator=generator).to(dtype)
    value = torch.randn(2, kv_heads, num_keys, 5, generator=generator).to(dtype)
    return query, key, value, torch.rand(2, num_keys, generator=generator) < 0.5


def spelled_out(query, key, value, beta, is_causal, key_mask):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2) * beta
    num_queries, num_keys = scores.shape[-2:]
    position = torch.arange(num_queries)[:, None] + num_keys - num_queries
    visible = torch.ones(1, 1, num_queries, num_keys, dtype=torch.bool)
    if is_causal:
        visible = visible & (torch.arange(num_keys) <= position)
    if key_mask is not None:
        visible = visible & key_mask[:, None, None, :]
    weights = torch.where(visible, scores, -math.inf).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-300) @ value


@pytest.mark.parametrize("lengths", SIZES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_equals_the_formula(lengths, is_causal, masked, kv_heads):
    query, key, value, mask = draw(1, *lengths, kv_heads=kv_heads)
    mask = mask if masked else None
    for beta in (None, 0.7):
        expected = spelled_out(query, key, value, beta or 1 / math.sqrt(8), is_causal, mask)
        result = softmax_attention(
            query,
            key,
            value,
            beta=beta,
            is_causal=is_causal,
            key_mask=mask,
            enable_gqa=kv_heads != 4,
        )
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("lengths", [(3, 0), (0, 3), (5, 3), (3, 5), (4, 4)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_blind_rows_are_zero_with_finite_gradients(lengths, is_causal):
    query, key, value, mask = draw(2, *lengths)
    mask[0] = False
    for tensor in (query, key, value):
        tensor.requires_grad_()
    output = softmax_attention(query, key, value, is_causal=is_causal, key_mask=mask)
    output.square().sum().backward()
    assert torch.equal(output[0], torch.zeros_like(output[0]))
    for tensor in (query, key, value):
        assert torch.isfinite(tensor.grad).all()
        assert torch.equal(tensor.grad[0], torch.zeros_like(tensor.grad[0]))


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("is_causal", [False, True])
def test_masked_keys_leave_no_bit(poison, is_causal):
    query, key, value, mask = draw(3, 6, 6)
    hidden = ~mask[:, None, :, None]
    options = {"is_causal": is_causal, "key_mask": mask}
    clean = softmax_attention(query, key, value, **options)
    dirty = softmax_attention(
        query, key.masked_fill(hidden, poison), value.masked_fill(hidden, poison), **options
    )
    assert torch.equal(clean, dirty)


@pytest.mark.parametrize(
    ("lengths", "is_causal", "masked", "flag", "has_mask"),
    [
        ((6, 6), False, False, False, False),
        ((6, 6), True, False, True, False),
        ((4, 6), False, False, False, False),
        ((1, 6), True, False, False, False),
        ((4, 6), True, False, False, True),
        ((6, 6), True, True, False, True),
    ],
)
def test_builds_a_mask_only_where_torch_needs_one(
    lengths, is_causal, masked, flag, has_mask, monkeypatch
):
    seen = []
    original = F.scaled_dot_product_attention

    def spy(*args, attn_mask=None, is_causal=False, **options):
        seen.append((is_causal, attn_mask is not None))
        return original(*args, attn_mask=attn_mask, is_causal=is_causal, **options)

    monkeypatch.setattr(room.F, "scaled_dot_product_attention", spy)
    query, key, value, mask = draw(4, *lengths)
    softmax_attention(query, key, value, is_causal=is_causal, key_mask=mask if masked else None)
    assert seen == [(flag, has_mask)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept(dtype):
    query, key, value, mask = draw(5, 6, 7, dtype=dtype)
    result = softmax_attention(query, key, value, is_causal=True, key_mask=mask)
    expected = spelled_out(
        query.double(), key.double(), value.double(), 1 / math.sqrt(8), True, mask
    )
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"query": torch.zeros(1, 2, 3)}, ValueError, r"\(B, H, T, D\)"),
        ({"key": torch.zeros(2, 4, 6, 7)}, ValueError, "must agree"),
        ({"value": torch.zeros(2, 4, 5, 5)}, ValueError, "must agree"),
        (
            {"query": torch.zeros(2, 4, 6, 8).double()},
            TypeError,
            "share a dtype, got torch.float64",
        ),
        ({"query": torch.zeros(2, 8, 6, 8)}, ValueError, "8 heads and key has 4, enable_gqa=False"),
        ({"query": torch.zeros(2, 6, 6, 8), "enable_gqa": True}, ValueError, "6 heads"),
        ({"beta": math.nan}, ValueError, "beta must be finite"),
        ({"key_mask": torch.ones(2, 6)}, TypeError, "must be bool"),
        ({"is_causal": "no"}, TypeError, "is_causal must be a bool, got 'no' of type str"),
        ({"key_mask": torch.ones(2, 5).bool()}, ValueError, r"shape \(2, 5\); .* B=2, Tk=6"),
        ({"key_mask": torch.ones(6, 6).bool()}, ValueError, r"shape \(6, 6\); .* pairs"),
    ],
)
def test_bad_input_is_quoted(change, error, words):
    arguments = {
        "query": torch.zeros(2, 4, 6, 8),
        "key": torch.zeros(2, 4, 6, 8),
        "value": torch.zeros(2, 4, 6, 5),
        **change,
    }
    with pytest.raises(error, match=words):
        softmax_attention(**arguments)
