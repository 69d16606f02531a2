"""C. Types, large numbers, few buckets."""

import pytest
import torch

from anna_attn.attention import anna_attention
from anna_attn.lsh import HashTables, Hyperplane

BACKENDS = ("auto", "torch", "torch_one_table", "reference")
TABLE_BACKENDS = ("auto", "torch", "torch_one_table")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)],
)
def test_types_against_float64(problem, dtype, tolerance, is_causal, backend):
    narrow = problem(90, 90, dtype=dtype)
    wide = type(narrow)(
        narrow.query.double(),
        narrow.key.double(),
        narrow.value.detach().double().requires_grad_(),
        narrow.tables,
    )
    actual = narrow.gradients([narrow.value], is_causal=is_causal, backend=backend)
    expected = wide.gradients([wide.value], is_causal=is_causal, backend="reference")
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), e, atol=4 * tolerance, rtol=4 * tolerance)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("backend", TABLE_BACKENDS)
def test_autocast_changes_nothing(problem, backend, is_causal):
    plain = problem(90, 90, dtype=torch.float32)
    expected = plain.gradients([plain.value], is_causal=is_causal, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = plain.gradients([plain.value], is_causal=is_causal, backend=backend)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, atol=1e-6, rtol=1e-6)


def test_autocast_accepts_the_types_it_mixes(problem):
    plain = problem(20, 20, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = anna_attention(
            plain.query, plain.key.bfloat16(), plain.value.bfloat16(), plain.tables
        )
    assert output.dtype == torch.bfloat16


@pytest.mark.parametrize("backend", TABLE_BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("empty", ["zero", "mean"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_values_near_the_largest_do_not_overflow(dtype, is_causal, backend, empty):
    rows = torch.ones(1, 1, 300, 8, dtype=dtype)
    largest = torch.finfo(dtype).max
    value = torch.full((1, 1, 300, 3), largest, dtype=dtype)
    value[..., 1] = -largest
    value[..., 2] = 0.5 * largest
    output = anna_attention(
        rows, rows, value, HashTables(Hyperplane(8), 16, 2),
        is_causal=is_causal, backend=backend, empty=empty,
    )  # fmt: skip
    assert bool(output.isfinite().all())
    torch.testing.assert_close(output, value, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("backend", TABLE_BACKENDS)
def test_small_values_keep_their_bits_beside_ordinary_ones(problem, backend):
    """No scaling unless it is needed."""
    tiny = problem(40, 40, dtype=torch.float32)
    value = torch.full_like(tiny.value, 1e-44)
    output = anna_attention(tiny.query, tiny.key, value, tiny.tables, backend=backend)
    assert bool((output[output != 0] == value.flatten()[0]).all())


@pytest.mark.parametrize("backend", TABLE_BACKENDS)
@pytest.mark.parametrize("hashes", [16, 60])
def test_wide_codes_with_two_keys_need_little_memory(problem, backend, hashes):
    """2^60 buckets: only a table of those in use can be held at all."""
    two = problem(3, 2, hashes=hashes, num_tables=2)
    two.query[:, :, :2].copy_(two.key)
    output = two.run(backend=backend)
    torch.testing.assert_close(output[:, :, :2], two.value.detach())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_one_bucket_holds_everything(problem, backend, is_causal):
    one = problem(200, 200, dtype=torch.float32)
    rows = torch.ones_like(one.query)
    output = anna_attention(rows, rows, one.value, one.tables, is_causal=is_causal, backend=backend)
    value = one.value.double()
    count = torch.arange(1, 201, dtype=torch.float64)[:, None]
    expected = value.cumsum(2) / count if is_causal else value.mean(2, keepdim=True)
    torch.testing.assert_close(output.double(), expected.expand_as(output), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_rows_and_scale(problem, backend):
    plain = problem(40, 40)
    scaled = anna_attention(
        plain.query * 1e3, plain.key * 1e-3, plain.value, plain.tables, backend=backend
    )
    assert torch.equal(scaled, plain.run(backend=backend))
    zeros = torch.zeros_like(plain.query)
    output = anna_attention(zeros, zeros, plain.value, plain.tables, backend=backend)
    mean = plain.value.mean(2, keepdim=True).expand_as(output)
    torch.testing.assert_close(output, mean, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_an_infinite_value_reaches_only_those_that_hit_it(problem, backend, is_causal, number):
    plain = problem(90, 90)
    clean = plain.run(is_causal=is_causal, backend=backend).detach()
    value = plain.value.detach().clone()
    value[0, 1, 30] = number
    dirty = anna_attention(
        plain.query, plain.key, value, plain.tables, is_causal=is_causal, backend=backend
    )
    marker = torch.zeros_like(value)
    marker[0, 1, 30] = 1.0
    hit = (
        anna_attention(
            plain.query, plain.key, marker, plain.tables, is_causal=is_causal, backend="reference"
        )
        > 0
    )
    assert 0 < int(hit.sum()) < hit.numel()
    expected = torch.full_like(dirty[hit], number)
    assert torch.equal(dirty[hit].isnan(), expected.isnan())
    assert torch.equal(dirty[hit].nan_to_num(), expected.nan_to_num())
    torch.testing.assert_close(dirty[~hit], clean[~hit], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_an_infinite_value_in_the_mean_of_those_that_hit_nothing(backend, is_causal, number):
    """Two directions, opposite halves: queries 1 to 3 of the second direction hit no key."""
    query = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])[None, None]
    key = torch.tensor([[1.0, 0.0]]).expand(4, 2)[None, None]
    value = torch.tensor([[1.0], [2.0], [number], [4.0]])[None, None]
    output = anna_attention(
        query, key, value, HashTables(Hyperplane(2), 2, 8),
        is_causal=is_causal, backend=backend, empty="mean",
    )  # fmt: skip
    expected = [1.0, 1.5, number, number] if is_causal else [number] * 4
    torch.testing.assert_close(output.flatten(), torch.tensor(expected), equal_nan=True)


@pytest.mark.parametrize("name", ["query", "key"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_check_finite_says_where(problem, name, number):
    plain = problem(20, 20)
    getattr(plain, name)[1, 0, 7, 3] = number
    with pytest.raises(ValueError, match=rf"{name} holds .* at \(1, 0, 7, 3\)"):
        plain.run()
    assert plain.run(check_finite=False).shape == (2, 2, 20, 5)


def test_check_finite_is_not_fooled_by_large_numbers(problem):
    plain = problem(20, 20, dtype=torch.float32)
    plain.query.fill_(3e38)
    assert bool(plain.run().isfinite().all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("empty", ["zero", "mean"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_means_of_the_largest_number(problem, dtype, empty, is_causal, backend):
    """Rounding must not carry the mean over it, and the gradient is that of any other value."""
    plain = problem(150, 150, dtype=dtype, hashes=6)
    ordinary = plain.gradients([plain.value], is_causal=is_causal, empty=empty, backend=backend)
    plain.value.data.fill_(torch.finfo(dtype).max)
    output, grad = plain.gradients([plain.value], is_causal=is_causal, empty=empty, backend=backend)
    hit = output != 0
    assert bool(hit.any())
    assert bool(output.isfinite().all())
    close = torch.full_like(output[hit], torch.finfo(dtype).max)
    torch.testing.assert_close(
        output[hit], close, rtol=1e-5 if dtype.itemsize > 2 else 1e-2, atol=0
    )
    torch.testing.assert_close(grad, ordinary[1], rtol=1e-5, atol=1e-5)
