"""The dense definition against a loop that spells it out."""

from __future__ import annotations

import math

import pytest
import torch

from anna_attn.attention.reference import attention_weights, dense_attention

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (6, 6), (4, 9), (9, 4)]


def draw(seed, num_queries, num_keys, *, batch=2, heads=4, kv_heads=2, tables=3, values=3):
    generator = torch.Generator().manual_seed(seed)
    query_codes = torch.randint(0, values, (batch, heads, tables, num_queries), generator=generator)
    key_codes = torch.randint(0, values, (batch, kv_heads, tables, num_keys), generator=generator)
    value = torch.randn(batch, kv_heads, num_keys, 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(batch, num_keys, generator=generator) < 0.6
    decay = torch.rand(heads, generator=generator, dtype=torch.float64)
    return value, query_codes, key_codes, mask, decay


def spelled_out(value, query_codes, key_codes, is_causal, key_mask, decay, empty):
    """Weights and outputs by loops over plain numbers."""
    batch, heads, tables, num_queries = query_codes.shape
    kv_heads, num_keys, width = value.shape[1:]
    weights = torch.zeros(batch, heads, num_queries, num_keys, dtype=torch.float64)
    output = torch.zeros(batch, heads, num_queries, width, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            g = h // (heads // kv_heads)
            for i in range(num_queries):
                last = i + num_keys - num_queries if is_causal else num_keys - 1
                seen = [
                    j for j in range(num_keys) if j <= last and (key_mask is None or key_mask[b, j])
                ]
                raw = {}
                for j in seen:
                    hits = sum(
                        int(query_codes[b, h, t, i] == key_codes[b, g, t, j]) for t in range(tables)
                    )
                    rate = 0.0 if decay is None else float(decay[h])
                    lag = i + num_keys - num_queries - j
                    raw[j] = hits * math.exp(-rate * lag)
                total = sum(raw.values())
                for j in seen:
                    if total > 0:
                        weights[b, h, i, j] = raw[j] / total
                        output[b, h, i] += raw[j] / total * value[b, g, j]
                    elif empty == "mean":
                        output[b, h, i] += value[b, g, j] / len(seen)
    return weights, output


@pytest.mark.parametrize("lengths", SIZES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("is_causal", "decayed"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("empty", ["zero", "mean"])
def test_equals_the_loop(lengths, masked, is_causal, decayed, empty):
    value, query_codes, key_codes, mask, decay = draw(1, *lengths)
    mask, decay = mask if masked else None, decay if decayed else None
    weights, output = spelled_out(value, query_codes, key_codes, is_causal, mask, decay, empty)
    options = {"is_causal": is_causal, "key_mask": mask, "decay": decay}
    torch.testing.assert_close(attention_weights(query_codes, key_codes, **options), weights)
    result = dense_attention(value, query_codes, key_codes, **options, empty=empty)
    torch.testing.assert_close(result, output)


@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_sum_to_one_or_lie_on_the_null_key(is_causal):
    _, query_codes, key_codes, mask, _ = draw(2, 7, 7, tables=1, values=4)
    weights = attention_weights(query_codes, key_codes, is_causal=is_causal, key_mask=mask)
    sums = weights.sum(-1)
    empty = (weights == 0).all(-1)
    assert empty.any()
    assert not empty.all()
    torch.testing.assert_close(sums, (~empty).to(torch.float64))


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_masked_values_leave_no_bit(poison):
    value, query_codes, key_codes, mask, _ = draw(3, 6, 6)
    poisoned = value.masked_fill(~mask[:, None, :, None], poison)
    for empty in ("zero", "mean"):
        clean = dense_attention(value, query_codes, key_codes, key_mask=mask, empty=empty)
        dirty = dense_attention(poisoned, query_codes, key_codes, key_mask=mask, empty=empty)
        assert torch.equal(clean, dirty)


def test_future_changes_nothing_before_it():
    value, query_codes, key_codes, _, decay = draw(4, 6, 8)
    before = dense_attention(value, query_codes, key_codes, is_causal=True, decay=decay)
    value[:, :, 5:] += 1.0
    key_codes[..., 5:] = 0
    after = dense_attention(value, query_codes, key_codes, is_causal=True, decay=decay)
    assert torch.equal(before[:, :, :3], after[:, :, :3])
    assert not torch.equal(before[:, :, 3:], after[:, :, 3:])


@pytest.mark.parametrize("empty", ["zero", "mean"])
def test_gradients_in_value_and_decay(empty):
    value, query_codes, key_codes, mask, decay = draw(5, 4, 5)
    value.requires_grad_()
    decay.requires_grad_()

    def attend(value, decay):
        return dense_attention(
            value, query_codes, key_codes, is_causal=True, key_mask=mask, decay=decay, empty=empty
        )

    assert torch.autograd.gradcheck(attend, (value, decay))


def test_an_empty_row_has_no_gradient_under_zero():
    value, query_codes, key_codes, _, _ = draw(6, 3, 4)
    value.requires_grad_()
    output = dense_attention(value, query_codes, key_codes - 100)
    output.sum().backward()
    assert torch.equal(output, torch.zeros_like(output))
    assert torch.equal(value.grad, torch.zeros_like(value))


def test_strong_decay_never_empties_a_row_with_a_hit():
    length = 200
    codes = torch.arange(length)[None, None, None, :].clone()
    codes[..., -1] = 0  # The last query meets itself, and key 0 far behind.
    query_codes = codes.clone()
    query_codes[..., -2] = 0  # The query before it meets key 0 only, 198 positions back.
    decay = torch.tensor([50.0])
    weights = attention_weights(
        query_codes, codes, is_causal=True, decay=decay, dtype=torch.float32
    )
    assert torch.isfinite(weights).all()
    assert weights[0, 0, -2, 0] == 1.0
    assert weights[0, 0, -1, -1] == 1.0
    assert torch.equal(weights.sum(-1), torch.ones(1, 1, length))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_follows_value_and_sums_in_float32_at_least(dtype):
    # 5,000 equal values in one bucket: a 16-bit sum would stall or overflow.
    value = torch.full((1, 1, 5000, 1), 1000.0).to(dtype)
    query_codes, key_codes = torch.zeros(1, 1, 1, 2).long(), torch.zeros(1, 1, 1, 5000).long()
    output = dense_attention(value, query_codes, key_codes)
    assert output.dtype == dtype
    torch.testing.assert_close(output, torch.full_like(output, 1000.0), rtol=5e-5, atol=0)


def test_ignores_autocast():
    value, query_codes, key_codes, _, _ = draw(7, 6, 6)
    value = value.float()
    plain = dense_attention(value, query_codes, key_codes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = dense_attention(value, query_codes, key_codes)
    assert torch.equal(plain, cast)


def test_values_near_the_largest_number_do_not_overflow():
    value = torch.full((1, 1, 64, 2), 3e38)
    codes = torch.zeros(1, 1, 4, 64).long()
    output = dense_attention(value, codes, codes, empty="mean")
    torch.testing.assert_close(output, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"empty": "nan"}, "empty must be one of"),
        ({"decay": torch.ones(4)}, "is_causal=True"),
        ({"query_codes": torch.zeros(2, 3, 3, 6).long()}, "multiple of the heads"),
    ],
)
def test_bad_input_is_quoted(change, words):
    value, query_codes, key_codes, _, _ = draw(8, 6, 6)
    arguments = {"value": value, "query_codes": query_codes, "key_codes": key_codes, **change}
    with pytest.raises(ValueError, match=words):
        dense_attention(**arguments)
