"""A. Masked keys have no influence."""

import pytest
import torch

from anna_attn.attention import anna_attention, count_empty

BACKENDS = ("auto", "torch", "torch_one_table", "reference")
NUMBER = 90


def padding(side: str) -> torch.Tensor:
    mask = torch.ones(2, NUMBER, dtype=torch.bool)
    if side == "left":
        mask[0, :30] = False
    elif side == "right":
        mask[0, 61:] = False
    else:
        mask[:, 20:50] = False
    return mask


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_poisoned_padding_changes_no_bit(problem, backend, is_causal, side, poison):
    clean = problem(NUMBER, NUMBER, dtype=torch.float32)
    options = {"key_mask": padding(side), "is_causal": is_causal, "backend": backend}
    expected = clean.gradients([clean.value], **options)
    dead = ~padding(side)[:, None, :, None]
    dirty = type(clean)(
        clean.query,
        clean.key.masked_fill(dead, poison),
        clean.value.detach().masked_fill(dead, poison).requires_grad_(),
        clean.tables,
    )
    actual = dirty.gradients([dirty.value], **options)
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e)
    assert not bool(actual[1][dead.expand_as(actual[1])].any())


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("empty", ["zero", "mean"])
def test_masked_equals_removed(problem, backend, is_causal, empty):
    """Right padding is the same as a shorter sequence."""
    full = problem(NUMBER, NUMBER)
    mask = torch.ones(2, NUMBER, dtype=torch.bool)
    mask[:, 61:] = False
    masked = full.run(key_mask=mask, is_causal=is_causal, backend=backend, empty=empty)
    queries = 61 if is_causal else NUMBER
    short = anna_attention(
        full.query[:, :, :queries],
        full.key[:, :, :61],
        full.value[:, :, :61],
        full.tables,
        is_causal=is_causal,
        backend=backend,
        empty=empty,
    )
    torch.testing.assert_close(masked[:, :, :queries], short, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_do_not_depend_on_the_batch(problem, backend, is_causal):
    full = problem(NUMBER, NUMBER, batch=3, dtype=torch.float32)
    mask = torch.ones(3, NUMBER, dtype=torch.bool)
    mask[1, 40:] = False
    together = full.run(key_mask=mask, is_causal=is_causal, backend=backend)
    alone = anna_attention(
        full.query[1:2],
        full.key[1:2],
        full.value[1:2],
        full.tables,
        key_mask=mask[1:2],
        is_causal=is_causal,
        backend=backend,
    )
    torch.testing.assert_close(together[1:2], alone, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("empty", ["zero", "mean"])
def test_a_fully_masked_row_gives_zero(problem, backend, empty):
    full = problem(NUMBER, NUMBER)
    mask = torch.ones(2, NUMBER, dtype=torch.bool)
    mask[1] = False
    output = full.run(key_mask=mask, backend=backend, empty=empty)
    assert not bool(output[1].any())
    assert bool(output[0].any())


def test_the_shape_that_sdpa_broadcasts(problem):
    full = problem(NUMBER, NUMBER)
    mask = padding("left")
    assert torch.equal(full.run(key_mask=mask), full.run(key_mask=mask[:, None, None]))
    same = mask[1:].expand(2, -1)
    assert torch.equal(full.run(key_mask=same), full.run(key_mask=mask[1:, None, None]))


def test_count_empty_counts_rows_without_a_hit(problem):
    full = problem(NUMBER, NUMBER, num_tables=1, hashes=9)
    mask = padding("middle")
    counted = count_empty(full.query, full.key, full.tables, key_mask=mask)
    ones = torch.ones_like(full.value)
    hits = anna_attention(
        full.query, full.key, ones, full.tables, key_mask=mask, backend="reference"
    )
    assert counted.shape == (2, 2)
    assert torch.equal(counted, (hits[..., 0] == 0).sum(-1))
    assert int(counted.sum()) > 0


def test_mean_is_what_rows_without_a_hit_get(problem):
    full = problem(NUMBER, NUMBER, num_tables=1, hashes=9)
    mask = padding("left")
    zero = full.run(key_mask=mask, empty="zero")
    mean = full.run(key_mask=mask, empty="mean")
    missed = (zero == 0).all(-1)
    live = full.value.masked_fill(~mask[:, None, :, None], 0.0)
    expected = live.sum(2) / mask.sum(1)[:, None, None]
    torch.testing.assert_close(
        mean[missed], expected[:, :, None].expand_as(mean)[missed], atol=1e-12, rtol=1e-12
    )
    assert torch.equal(mean[~missed], zero[~missed])
