"""Exact-match attention against comparing every pair of rows."""

from __future__ import annotations

import math

import pytest
import torch

from anna_attn.attention import exact_match as room
from anna_attn.attention.exact_match import exact_match_attention

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 65), (65, 1), (63, 64), (64, 63)]


def draw(seed, num_queries, num_keys, heads=4, kv_heads=2, dim=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randint(-1, 2, (2, heads, num_queries, dim), generator=generator).to(dtype)
    key = torch.randint(-1, 2, (2, kv_heads, num_keys, dim), generator=generator).to(dtype)
    value = torch.randn(2, kv_heads, num_keys, 5, generator=generator)
    return query, key, value, torch.rand(2, num_keys, generator=generator) < 0.6


def spelled_out(query, key, value, is_causal=False, key_mask=None, empty="zero"):
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1).double()
    num_queries, num_keys = query.shape[2], key.shape[2]
    equal = (query[:, :, :, None] == key[:, :, None]).all(-1)
    visible = torch.ones(num_queries, num_keys, dtype=torch.bool)
    if is_causal:
        visible = visible.tril(num_keys - num_queries)
    visible = visible.expand(2, 1, -1, -1)
    if key_mask is not None:
        visible = visible & key_mask[:, None, None]
        value = value.masked_fill(~key_mask[:, None, :, None], 0.0)
    weights = (equal & visible).double()
    if empty == "mean":
        weights = torch.where(weights.sum(-1, keepdim=True) > 0, weights, visible.double())
    return (weights / weights.sum(-1, keepdim=True).clamp(min=1.0) @ value).float()


@pytest.mark.parametrize("lengths", SIZES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("empty", ["zero", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_equals_comparing_all_pairs(lengths, is_causal, empty, dtype):
    query, key, value, mask = draw(1, *lengths, dtype=dtype)
    for key_mask in (None, mask):
        options = {"is_causal": is_causal, "key_mask": key_mask, "empty": empty}
        result = exact_match_attention(query, key, value, enable_gqa=True, **options)
        torch.testing.assert_close(result, spelled_out(query, key, value, **options))


def test_equals_comparing_all_pairs_beyond_the_dense_sizes():
    query, key, value, mask = draw(2, 700, 900, dim=6)
    for is_causal in (False, True):
        options = {"is_causal": is_causal, "key_mask": mask}
        result = exact_match_attention(query, key, value, enable_gqa=True, **options)
        torch.testing.assert_close(result, spelled_out(query, key, value, **options))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_negative_zero_is_zero_and_the_next_number_is_not(dtype):
    one = torch.tensor([1.0], dtype=dtype)
    # nextafter knows no float16: one unit in the last place of 1.
    above = one + torch.finfo(dtype).eps
    query = torch.stack([torch.tensor([0.0], dtype=dtype), one])[None, None]
    key = torch.stack([torch.tensor([-0.0], dtype=dtype), one, above])[None, None]
    value = torch.tensor([10.0, 20.0, 40.0])[None, None, :, None].to(dtype)
    result = exact_match_attention(query, key, value)
    assert result.flatten().tolist() == [10.0, 20.0]


def test_large_integers_are_compared_as_integers():
    # As float64, these two would be one number.
    key = torch.tensor([2**60, 2**60 + 1])[None, None, :, None]
    value = torch.tensor([1.0, 3.0])[None, None, :, None]
    assert torch.equal(exact_match_attention(key, key, value), value)


@pytest.mark.parametrize("constant", [0, -7])
def test_rows_that_share_a_hash_are_told_apart(constant, monkeypatch):
    query, key, value, _ = draw(3, 20, 30)
    expected = exact_match_attention(query, key, value, enable_gqa=True)
    monkeypatch.setattr(room, "_hash_rows", lambda words: torch.full_like(words[:, 0], constant))
    result = exact_match_attention(query, key, value, enable_gqa=True)
    assert torch.equal(result, expected)
    torch.testing.assert_close(result, spelled_out(query, key, value))


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_masked_keys_leave_no_bit(poison):
    query, key, value, mask = draw(4, 20, 20)
    hidden = ~mask[:, None, :, None]
    options = {"key_mask": mask, "enable_gqa": True}
    clean = exact_match_attention(query, key, value, **options)
    dirty = exact_match_attention(
        query, key.masked_fill(hidden, poison), value.masked_fill(hidden, poison), **options
    )
    assert torch.equal(clean, dirty)


def test_gradient_reaches_values_only():
    query, key, value, mask = draw(5, 12, 10)
    value = value.double().requires_grad_()

    def attend(value):
        return exact_match_attention(
            query, key, value, is_causal=True, key_mask=mask, enable_gqa=True
        )

    assert torch.autograd.gradcheck(attend, (value,))
    # Rows that require grad (a learned embedding) are compared without a warning or an error.
    output = exact_match_attention(query.requires_grad_(), key, value.detach(), enable_gqa=True)
    assert not output.requires_grad


def test_heads_and_batches_do_not_meet():
    query = torch.zeros(2, 2, 1, 3)
    key = torch.zeros(2, 2, 1, 3)
    value = torch.arange(4.0).reshape(2, 2, 1, 1)
    assert torch.equal(exact_match_attention(query, key, value), value)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"query": torch.zeros(1, 2, 3)}, ValueError, r"\(B, H, T, D\)"),
        ({"key": torch.zeros(2, 4, 6, 7)}, ValueError, "must agree"),
        ({"value": torch.zeros(2, 4, 5, 5)}, ValueError, "must agree"),
        ({"value": torch.zeros(2, 4, 6, 5).long()}, TypeError, "float dtype, got torch.int64"),
        ({"query": torch.zeros(2, 4, 6, 8).long()}, TypeError, "share a dtype, got torch.int64"),
        ({"query": torch.zeros(2, 8, 6, 8)}, ValueError, "8 heads and key has 4, enable_gqa=False"),
        ({"empty": "none"}, ValueError, "empty must be one of zero, mean, got 'none'"),
        ({"key_mask": torch.ones(2, 5).bool()}, ValueError, "key_mask has shape"),
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
        exact_match_attention(**arguments)
