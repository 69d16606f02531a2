"""G. Grouped queries and strides."""

import pytest
import torch

from anna_attn.attention import anna_attention
from anna_attn.lsh import HashTables, Hyperplane

BACKENDS = ("auto", "torch", "torch_one_table", "reference")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries_equal_repeated_heads(problem, backend, is_causal, kv_heads):
    grouped = problem(90, 100, heads=6, kv_heads=kv_heads)
    actual = grouped.gradients(
        [grouped.value], enable_gqa=True, is_causal=is_causal, backend=backend
    )
    group = 6 // kv_heads
    outputs = []
    for head in range(6):
        own = slice(head // group, head // group + 1)
        tables = HashTables(Hyperplane(8), 5, 4, kv_heads, seed=0)
        # One query head at a time, among key heads that keep their functions.
        query = grouped.query[:, head : head + 1].expand(-1, kv_heads, -1, -1)
        each = anna_attention(
            query, grouped.key, grouped.value, tables, is_causal=is_causal, backend=backend
        )
        outputs.append(each[:, own])
    expected = torch.cat(outputs, 1)
    torch.testing.assert_close(actual[0], expected.detach(), atol=1e-12, rtol=1e-12)
    generator = torch.Generator().manual_seed(7)
    weights = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (grad,) = torch.autograd.grad(expected, grouped.value, weights)
    torch.testing.assert_close(actual[1], grad, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_strides_do_not_matter(problem, backend, is_causal):
    plain = problem(70, 70)
    expected = plain.run(is_causal=is_causal, backend=backend)
    strided = [
        x.transpose(1, 2).contiguous().transpose(1, 2)
        for x in (plain.query, plain.key, plain.value.detach())
    ]
    actual = anna_attention(*strided, plain.tables, is_causal=is_causal, backend=backend)
    assert not strided[0].is_contiguous()
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_expanded_batches(problem, backend, is_causal):
    one = problem(70, 70, batch=1)
    expected = one.run(is_causal=is_causal, backend=backend).expand(3, -1, -1, -1)
    value = one.value.detach().requires_grad_()
    output = anna_attention(
        one.query.expand(3, -1, -1, -1),
        one.key.expand(3, -1, -1, -1),
        value.expand(3, -1, -1, -1),
        one.tables,
        is_causal=is_causal,
        backend=backend,
    )
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-12)
    (grad,) = torch.autograd.grad(output.sum(), value)
    (single,) = torch.autograd.grad(one.run(is_causal=is_causal, backend=backend).sum(), one.value)
    torch.testing.assert_close(grad, 3 * single, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_do_not_see_each_other(problem, backend):
    plain = problem(70, 70, dtype=torch.float32)
    expected = plain.run(backend=backend)
    value = plain.value.detach().clone()
    value[:, 1] += 1.0
    query = plain.query.clone()
    query[1] = -query[1]
    actual = anna_attention(query, plain.key, value, plain.tables, backend=backend)
    assert torch.equal(actual[0, 0], expected[0, 0])
    assert not torch.equal(actual[0, 1], expected[0, 1])
