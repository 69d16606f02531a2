"""Every backend against the dense definition: outputs and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anna_attn.attention import anna_attention
from anna_attn.lsh import CrossPolytope, Euclidean, Exact, HashTables, Hyperplane

BACKENDS = ("auto", "torch", "torch_one_table")


def assert_equal_to_reference(problem, tolerance=1e-10, **options):
    expected = problem.gradients([problem.value], backend="reference", **options)
    for backend in BACKENDS:
        actual = problem.gradients([problem.value], backend=backend, **options)
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("empty", ["zero", "mean"])
@pytest.mark.parametrize("lengths", [(1, 1), (63, 65), (65, 63), (64, 200), (200, 64), (130, 130)])
def test_backends_agree_with_the_definition(problem, lengths, is_causal, empty):
    assert_equal_to_reference(problem(*lengths), is_causal=is_causal, empty=empty)


@pytest.mark.parametrize(
    ("family", "hashes"),
    [
        (Hyperplane(8), 1),
        (Hyperplane(8), 16),
        (Hyperplane(8, "gaussian"), 70),
        (CrossPolytope(8), 2),
        (Euclidean(8, 4.0), 1),
        (Exact(8), 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_every_family_and_number_of_buckets(problem, family, hashes, is_causal):
    given_inputs = problem(70, 70)
    given_inputs.key.copy_(given_inputs.query.flip(0))
    tables = HashTables(family, 5, hashes, num_heads=2)
    results = [
        anna_attention(
            given_inputs.query,
            given_inputs.key,
            given_inputs.value,
            tables,
            is_causal=is_causal,
            backend=backend,
        )
        for backend in ("reference", *BACKENDS)
    ]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=1e-10, rtol=1e-10)


@given(
    num_queries=st.integers(0, 150),
    num_keys=st.integers(0, 150),
    num_tables=st.sampled_from([1, 3, 8, 9]),
    hashes=st.sampled_from([1, 5, 9]),
    is_causal=st.booleans(),
    seed=st.integers(0, 100),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_random_shapes(num_queries, num_keys, num_tables, hashes, is_causal, seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 1, num_queries, 4), (2, 1, num_keys, 4), (2, 1, num_keys, 3)]
    query, key, value = (torch.randn(shape, generator=generator).double() for shape in shapes)
    tables = HashTables(Hyperplane(4), num_tables, hashes, seed=seed)
    results = [
        anna_attention(query, key, value, tables, is_causal=is_causal, backend=backend)
        for backend in ("reference", *BACKENDS)
    ]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("num_tables", [255, 256])
@pytest.mark.parametrize("hashes", [1, 9])
def test_many_tables_do_not_overflow_the_counts(problem, num_tables, hashes):
    assert_equal_to_reference(
        problem(3, 4, num_tables=num_tables, hashes=hashes, batch=1), is_causal=True
    )


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives(problem, backend, is_causal):
    small = problem(5, 7, batch=1, heads=1, kv_heads=1, num_tables=2, hashes=1, width=2)

    def run(value):
        return anna_attention(
            small.query, small.key, value, small.tables, is_causal=is_causal, backend=backend
        )

    assert torch.autograd.gradcheck(run, (small.value,))
    assert torch.autograd.gradgradcheck(run, (small.value,))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_uninitialised_memory_is_never_read(problem, backend, is_causal):
    given_inputs = problem(70, 90)
    plain = given_inputs.gradients([given_inputs.value], is_causal=is_causal, backend=backend)
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(True)  # with it, torch.empty is filled with NaN
        poisoned = given_inputs.gradients(
            [given_inputs.value], is_causal=is_causal, backend=backend
        )
    finally:
        torch.use_deterministic_algorithms(before)
    for a, e in zip(poisoned, plain, strict=True):
        torch.testing.assert_close(a, e, atol=1e-12, rtol=1e-12)
