"""Rotations: relative positions in inner products and in averages."""

import torch

from anna_attn.nn import Rotation


def rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rotation(heads=2, pairs=3):
    return Rotation(rows(heads, pairs, seed=9).abs())


def test_inner_products_depend_on_the_difference_of_positions():
    turn, length = rotation(), 12
    q, k = rows(1, 2, 1, 8), rows(1, 2, 1, 8, seed=1)
    angles = turn.angles(length)
    q, k = (turn(x.expand(1, 2, length, 8), angles) for x in (q, k))
    dots = q @ k.transpose(-1, -2)
    for offset in (-5, 0, 3):
        diagonal = dots.diagonal(offset, dim1=-2, dim2=-1)
        torch.testing.assert_close(diagonal, diagonal[..., :1].expand_as(diagonal))
    assert not torch.allclose(dots[..., 0, 1], dots[..., 0, 2])


def test_leading_dims_pass_and_norms_stay():
    turn, x = rotation(), rows(2, 2, 9, 8)
    y = turn(x, turn.angles(9))
    assert torch.equal(y[..., :2], x[..., :2])
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[:, :, 0], x[:, :, 0])


def test_backwards_undoes_it():
    turn, x = rotation(), rows(2, 2, 9, 6)
    angles = turn.angles(9)
    torch.testing.assert_close(turn(turn(x, angles), angles, backwards=True), x)


def test_an_average_of_rotated_values_depends_on_relative_positions():
    """sum_j w_(i-j) R(-i) R(j) v_j moves with its input: shifting tokens shifts the output."""
    turn, length, shift = rotation(), 16, 5
    angles = turn.angles(length)
    lag = torch.arange(length)[:, None] - torch.arange(length)
    weights = torch.where(lag >= 0, 0.5 ** lag.double(), 0.0)
    v = rows(1, 2, length, 6)
    v[:, :, length - shift :] = 0
    moved = v.roll(shift, dims=2)
    out, again = (turn(weights @ turn(x, angles), angles, backwards=True) for x in (v, moved))
    torch.testing.assert_close(again[:, :, shift:], out[:, :, :-shift])


def test_frequencies_receive_gradients_in_any_dtype():
    turn = rotation()
    x = rows(1, 2, 5, 6).to(torch.bfloat16)
    out = turn(x, turn.angles(5))
    out.float().square().cumsum(-1).sum().backward()
    assert out.dtype == torch.bfloat16
    assert turn.frequencies.grad is not None
    assert turn.frequencies.grad.abs().sum() > 0


def test_half_precision_frequencies_keep_their_phase():
    low = Rotation(torch.tensor([[0.8]])).to(torch.bfloat16)
    cosine, _ = low.angles(4000)
    exact = torch.cos(torch.arange(4000) * low.frequencies.detach().float()[0, 0])
    torch.testing.assert_close(cosine[0, :, 0].detach(), exact)
