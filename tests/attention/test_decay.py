"""Recency weights against the definition, in outputs and gradients, at any age."""

import pytest
import torch

from anna_attn.attention import anna_attention
from anna_attn.lsh import HashTables, Hyperplane

BACKENDS = ("auto", "torch", "torch_one_table")


def rates(*numbers: float, dtype=torch.float64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("empty", ["zero", "mean"])
@pytest.mark.parametrize("lengths", [(1, 1), (65, 65), (150, 150), (70, 150), (150, 70), (5, 150)])
def test_against_the_definition(problem, lengths, empty, backend):
    given_inputs = problem(*lengths)
    decay = rates(0.0, 0.3)
    wrt = [given_inputs.value, decay]
    options = {"is_causal": True, "decay": decay, "empty": empty}
    expected = given_inputs.gradients(wrt, backend="reference", **options)
    actual = given_inputs.gradients(wrt, backend=backend, **options)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_and_masks(problem, backend):
    given_inputs = problem(90, 100, heads=4)
    decay = rates(0.01, 0.1, 1.0, 10.0)
    mask = torch.ones(2, 100, dtype=torch.bool)
    mask[0, 10:60] = False
    wrt = [given_inputs.value, decay]
    options = {"is_causal": True, "decay": decay, "key_mask": mask, "enable_gqa": True}
    expected = given_inputs.gradients(wrt, backend="reference", **options)
    actual = given_inputs.gradients(wrt, backend=backend, **options)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives(problem, backend):
    small = problem(5, 6, batch=1, heads=1, kv_heads=1, num_tables=2, hashes=1, width=2)

    def run(value, decay):
        return anna_attention(
            small.query, small.key, value, small.tables,
            is_causal=True, decay=decay, backend=backend,
        )  # fmt: skip

    assert torch.autograd.gradcheck(run, (small.value, rates(0.4)))
    assert torch.autograd.gradgradcheck(run, (small.value, rates(0.4)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_decay_is_no_decay(problem, backend):
    given_inputs = problem(150, 150)
    plain = given_inputs.run(is_causal=True, backend=backend)
    zero = given_inputs.run(is_causal=True, backend=backend, decay=rates(0.0, 0.0))
    torch.testing.assert_close(zero, plain, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.1, 5.0, 1e6])
def test_old_hits_in_float32(rate):
    """Two hits at the start, then none: their weights underflow, their average does not."""
    length = 4096
    tables = HashTables(Hyperplane(4), 3, 2)
    rows = torch.ones(1, 1, length, 4)
    key = -rows
    key[:, :, :2] = 1.0
    value = torch.arange(float(length))[None, None, :, None].requires_grad_()
    decay = rates(rate, dtype=torch.float32)
    output = anna_attention(rows, key, value, tables, is_causal=True, decay=decay)
    weight = torch.exp(torch.tensor(-rate))
    expected = (1.0 / (1.0 + weight)).expand(length - 1)
    torch.testing.assert_close(output[0, 0, 1:, 0], expected)
    grad_value, grad_decay = torch.autograd.grad(output.sum(), [value, decay])
    assert bool(grad_value.isfinite().all())
    slope = (length - 1) * weight / (1.0 + weight) ** 2
    torch.testing.assert_close(grad_decay[0], slope, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_hundred_thousand_tokens_in_float32():
    length = 100_000
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 1, length, 8, generator=generator)
    value = torch.randn(1, 1, length, 2, generator=generator)
    tables = HashTables(Hyperplane(8), 4, 4)
    outputs, slopes = [], []
    for dtype in (torch.float32, torch.float64):
        decay = rates(0.01, dtype=dtype)
        output = anna_attention(
            rows.to(dtype), rows.to(dtype), value.to(dtype), tables, is_causal=True, decay=decay
        )
        outputs.append(output.detach().double())
        slopes.append(torch.autograd.grad(output.square().sum(), decay)[0].double())
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(slopes[0], slopes[1], atol=1e-2, rtol=1e-3)
