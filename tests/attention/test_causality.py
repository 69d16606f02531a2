"""E. The future has no influence, to the last bit."""

import pytest
import torch

from anna_attn.attention import anna_attention, full
from anna_attn.lsh import HashTables, Hyperplane

BACKENDS = ("auto", "torch", "torch_one_table", "reference")
OPTIONS = [{}, {"empty": "mean"}, {"decay": torch.tensor([0.01, 0.5])}]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mean", "decay"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("when", [1, 64, 100, 129])
def test_changing_the_future_changes_no_earlier_bit(problem, backend, when, options):
    past = problem(140, 140, dtype=torch.float32)
    other = problem(140, 140, dtype=torch.float32, seed=1)
    tensors = []
    for name in ("query", "key", "value"):
        changed = getattr(past, name).detach().clone()
        changed[:, :, when:] = 100.0 * getattr(other, name).detach()[:, :, when:]
        tensors.append(changed)
    expected = past.run(is_causal=True, backend=backend, **options)
    actual = anna_attention(*tensors, past.tables, is_causal=True, backend=backend, **options)
    assert torch.equal(actual[:, :, :when], expected[:, :, :when])
    assert not torch.equal(actual[:, :, when:], expected[:, :, when:])


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mean", "decay"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("when", [0, 63, 64, 100])
def test_no_gradient_from_an_output_to_later_values(problem, backend, when, options):
    past = problem(140, 140, dtype=torch.float32)
    output = past.run(is_causal=True, backend=backend, **options)
    (grad,) = torch.autograd.grad(output[:, :, : when + 1].square().sum(), past.value)
    assert not bool(grad[:, :, when + 1 :].any())
    assert bool(grad[:, :, : when + 1].any())


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mean", "decay"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_later_infinity_changes_no_earlier_bit(problem, backend, number, options):
    past = problem(140, 140, dtype=torch.float32)
    value = past.value.detach().clone()
    value[:, :, 100:] = number
    options = {"is_causal": True, "backend": backend, **options}
    expected = past.run(**options)
    actual = anna_attention(past.query, past.key, value, past.tables, **options)
    assert torch.equal(actual[:, :, :100], expected[:, :, :100])
    assert not bool(actual[:, :, 100:].isfinite().all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("split", [1, 64, 100])
def test_the_last_queries_alone_are_the_last_rows(problem, backend, split):
    """Query i sees key j iff j <= i + Tk - Tq."""
    whole = problem(130, 130)
    expected = whole.run(is_causal=True, backend=backend)[:, :, split:]
    actual = anna_attention(
        whole.query[:, :, split:],
        whole.key,
        whole.value,
        whole.tables,
        is_causal=True,
        backend=backend,
    )
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mean", "decay"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("past_number", [1e-40, 1e-33, 1.7e38])
def test_the_largest_later_values_change_no_earlier_bit(problem, backend, past_number, options):
    """Sums are scaled down where they may overflow; later values must not decide that."""
    past = problem(140, 140, dtype=torch.float32, hashes=1)
    value = past.value.detach().sign() * past_number
    later = value.clone()
    later[:, :, 100:] = torch.finfo(torch.float32).max
    rows = (past.query, past.key)
    options = {"is_causal": True, "backend": backend, **options}
    expected = anna_attention(*rows, value, past.tables, **options)
    actual = anna_attention(*rows, later, past.tables, **options)
    assert torch.equal(actual[:, :, :100], expected[:, :, :100])
    assert bool(actual.isfinite().all())


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mean", "decay"])
def test_how_many_codes_the_future_has_changes_no_earlier_bit(problem, options, monkeypatch):
    """Tables are summed in groups that fit a budget; the codes in use must not decide it."""
    past = problem(140, 140, dtype=torch.float32, width=16)
    # Codes of 20 bits are ranked: 2^20 buckets are more than the tokens can fill.
    tables = HashTables(Hyperplane(8), 7, 20, 2)
    few = past.query[:, :, :4].repeat(1, 1, 35, 1)
    later = few.clone()
    later[:, :, 70:] = past.query[:, :, 70:]
    # Room for seven tables of few codes, for three of as many codes as keys.
    monkeypatch.setattr(full, "STATE_ELEMENTS", 3 * 75 * 16)
    options = {"is_causal": True, "backend": "torch", **options}
    expected = anna_attention(few, few, past.value, tables, **options)
    actual = anna_attention(later, later, past.value, tables, **options)
    assert torch.equal(actual[:, :, :70], expected[:, :, :70])
