"""Any number of queries and keys, none included."""

import pytest
import torch

from anna_attn.attention import straight_through_attention

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
@pytest.mark.parametrize("length", [4, 300])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"decay": [0.1, 0.5]}])
def test_no_batch_no_width(problem, backend, length, options):
    if "decay" in options:
        options = {"is_causal": True, "decay": torch.tensor(options["decay"]).requires_grad_()}
    nothing = problem(length, length, batch=0)
    output, _ = nothing.gradients([nothing.value], backend=backend, **options)
    assert output.shape == (0, 2, length, 5)
    flat = problem(length, length, width=0)
    assert flat.run(backend=backend, **options).shape == (2, 2, length, 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", [(0, 0), (0, 3), (3, 0)])
def test_no_rows_stay_in_the_graph_of_values_and_decay(problem, lengths, backend):
    rates = torch.tensor([0.1, 0.5], dtype=torch.float64, requires_grad=True)
    nothing = problem(*lengths)
    wrt = [nothing.value, rates]
    _, *grads = nothing.gradients(wrt, is_causal=True, backend=backend, decay=rates)
    assert not any(bool(grad.any()) for grad in grads)


@pytest.mark.parametrize("lengths", [(0, 0), (0, 3), (3, 0)])
def test_a_surrogate_of_no_rows(problem, lengths):
    rates = torch.tensor([0.1, 0.5], dtype=torch.float64, requires_grad=True)
    given = problem(*lengths)
    output = straight_through_attention(
        given.query, given.key, given.value, given.tables,
        exponent=2.0, is_causal=True, decay=rates,
    )  # fmt: skip
    assert output.shape == (2, 2, lengths[0], 5)
    (grad,) = torch.autograd.grad(output.sum(), rates)
    assert not bool(grad.any())


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
