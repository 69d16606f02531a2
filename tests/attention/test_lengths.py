"""Any number of queries and keys, none included."""

import pytest
import torch

BACKENDS = ("auto", "torch", "torch_one_table", "reference")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [(0, 0), (0, 3), (3, 0), (1, 1), (1, 65), (65, 1)])
def test_awkward_lengths(problem, lengths, is_causal, backend):
    given_inputs = problem(*lengths)
    output, grad = given_inputs.gradients(
        [given_inputs.value], is_causal=is_causal, backend=backend
    )
    assert output.shape == (2, 2, lengths[0], 5)
    assert grad.shape == given_inputs.value.shape
    assert bool(output.isfinite().all())
    if lengths[1] == 0:
        assert not bool(output.any())


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_batch_no_width(problem, backend):
    nothing = problem(4, 4, batch=0)
    assert nothing.run(backend=backend).shape == (0, 2, 4, 5)
    flat = problem(4, 4, width=0)
    assert flat.run(backend=backend).shape == (2, 2, 4, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_before_the_first_key_see_nothing(problem, backend):
    given_inputs = problem(70, 3)
    output = given_inputs.run(is_causal=True, empty="mean", backend=backend)
    assert not bool(output[:, :, :67].any())
    assert bool(output[:, :, 67:].all())


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_key_that_everyone_hits(problem, backend):
    given_inputs = problem(70, 1)
    given_inputs.query.copy_(given_inputs.key.expand_as(given_inputs.query))
    output = given_inputs.run(backend=backend)
    torch.testing.assert_close(output, given_inputs.value.expand_as(output))
