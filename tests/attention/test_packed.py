"""B. Packed sequences equal separate calls."""

import itertools

import pytest
import torch

from anna_attn.attention import anna_attention, count_empty

BACKENDS = ("auto", "torch", "torch_one_table", "reference")
OFFSETS = [0, 0, 1, 66, 66, 130, 195, 195]


def separate(whole, offsets, **options):
    outputs = [
        anna_attention(
            whole.query[:, :, start:stop],
            whole.key[:, :, start:stop],
            whole.value[:, :, start:stop],
            whole.tables,
            **options,
        )
        for start, stop in itertools.pairwise(offsets)
    ]
    return torch.cat(outputs, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"empty": "mean"},
        {"is_causal": True, "decay": torch.tensor([0.1, 1.0], dtype=torch.float64)},
    ],
    ids=["full", "causal", "mean", "decay"],
)
def test_packed_equals_separate(problem, backend, options):
    whole = problem(200, 200, batch=1)
    offsets = torch.tensor(OFFSETS, dtype=torch.int32)
    packed = whole.run(cu_seqlens=offsets, backend=backend, **options)
    expected = separate(whole, OFFSETS, backend=backend, **options)
    assert torch.equal(packed[:, :, :195], expected)
    assert not bool(packed[:, :, 195:].any())
    (grad,) = torch.autograd.grad(packed.square().sum(), whole.value)
    (same,) = torch.autograd.grad(expected.square().sum(), whole.value)
    assert torch.equal(grad, same)
    assert not bool(grad[:, :, 195:].any())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_after_the_last_offset_have_no_influence(problem, backend, is_causal):
    whole = problem(200, 200, batch=1, dtype=torch.float32)
    offsets = torch.tensor([0, 100, 150])
    options = {"cu_seqlens": offsets, "is_causal": is_causal, "backend": backend}
    expected = whole.run(**options)
    for tensor in (whole.query, whole.key, whole.value.data):
        tensor[:, :, 150:] = float("nan")
    actual = whole.run(**options)
    assert torch.equal(actual, expected)
    assert not bool(actual[:, :, 150:].any())
    (grad,) = torch.autograd.grad(actual.sum(), whole.value)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_empty_sequences(problem, backend):
    whole = problem(20, 20, batch=1)
    output = whole.run(cu_seqlens=torch.tensor([0, 0, 0]), backend=backend)
    assert output.shape == (1, 2, 20, 5)
    assert not bool(output.any())
    output, grad = whole.gradients([whole.value], cu_seqlens=torch.tensor([0]), backend=backend)
    assert not bool(output.any())
    assert not bool(grad.any())


@pytest.mark.parametrize("is_causal", [False, True])
def test_masks_and_groups_combine_with_packing(problem, is_causal):
    whole = problem(90, 90, batch=1, heads=4)
    mask = torch.ones(1, 90, dtype=torch.bool)
    mask[:, 20:40] = False
    options = {"enable_gqa": True, "is_causal": is_causal, "key_mask": mask}
    offsets = torch.tensor([0, 30, 80])
    results = [whole.run(cu_seqlens=offsets, backend=backend, **options) for backend in BACKENDS]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=1e-12, rtol=1e-12)


def test_count_empty_leaves_rows_after_the_last_offset_out(problem):
    whole = problem(90, 90, batch=1)
    whole.query[:] = whole.key
    counted = count_empty(
        whole.query, whole.key, whole.tables, cu_seqlens=torch.tensor([0, 30, 80])
    )
    assert counted.tolist() == [[0, 0]]
