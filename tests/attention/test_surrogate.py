"""The differentiable stand-ins: their values against definitions, their gradients against math."""

import math

import pytest
import torch

from anna_attn.attention import anna_attention
from anna_attn.attention.surrogate import (
    COSINE_SCALE,
    collision_counts,
    expected_attention,
    straight_through_attention,
)
from anna_attn.lsh import CrossPolytope, Euclidean, Exact, HashTables, Hyperplane

FAMILIES = [Hyperplane(5), Hyperplane(5, rotation="gaussian"), CrossPolytope(5), Euclidean(5, 1.5)]


def unit_inputs(batch=2, heads=2, queries=5, keys=7, dim=5, value_dim=3, seed=0):
    """Unit rows in float64, as the layers give them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(queries, dim), (keys, dim), (keys, value_dim)]
    q, k, v = (
        torch.randn(batch, heads, *shape, generator=generator, dtype=torch.float64)
        for shape in shapes
    )
    q, k = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1)
    return [x.requires_grad_() for x in (q, k, v)]


def key_mask(batch=2, keys=7):
    mask = torch.ones(batch, keys, dtype=torch.bool)
    mask[0, 2], mask[-1, 4:] = False, False
    return mask


def visible(queries, keys, is_causal, mask):
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if is_causal:
        seen = torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries
    return seen if mask is None else seen & mask[:, None, None, :]


def probability(q, k, family):
    """p of one hash, by the definition: no shortcut, no closed-form slope."""
    if family.measure == "distance":
        squares = ((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1)
        return family.collision_probability((squares + 1e-12).sqrt())
    cosine = (q[..., :, None, :] * k[..., None, :, :]).sum(-1)
    cosine = cosine / (q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :])
    return family.collision_probability(torch.acos(COSINE_SCALE * cosine))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_expected_equals_its_definition(family, is_causal, masked):
    q, k, v = unit_inputs()
    tables = HashTables(family, 3, 2, num_heads=2)
    mask = key_mask() if masked else None
    out = expected_attention(
        q, k, v, tables, exponent=1.7, floor=0.3, is_causal=is_causal, key_mask=mask
    )
    weights = probability(q, k, family) ** 1.7 * visible(5, 7, is_causal, mask)
    expected = weights @ v / (weights.sum(-1, keepdim=True) + 0.3)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("with_decay", [False, True])
@pytest.mark.parametrize("family", [Hyperplane(5), Euclidean(5, 1.5)], ids=str)
def test_expected_gradients(family, with_decay):
    q, k, v = unit_inputs(batch=1)
    tables = HashTables(family, 3, 2, num_heads=2)
    decay = torch.tensor([0.3, 0.05], dtype=torch.float64, requires_grad=True)

    def attend(q, k, v, decay):
        return expected_attention(
            q,
            k,
            v,
            tables,
            exponent=2.5,
            is_causal=True,
            key_mask=key_mask(1),
            decay=decay if with_decay else None,
        )

    assert torch.autograd.gradcheck(attend, (q, k, v, decay))


def test_expected_cross_polytope_gradient_follows_the_interpolated_curve():
    """gradcheck would straddle the curve's knots; a wide difference quotient averages over them."""
    q, k, v = unit_inputs(batch=1, heads=1)
    tables = HashTables(CrossPolytope(5), 3, 1)

    def total(q):
        return expected_attention(q, k, v, tables, exponent=2.0).sum()

    (grad,) = torch.autograd.grad(total(q), q)
    direction = torch.randn(q.shape, dtype=q.dtype, generator=torch.Generator().manual_seed(1))
    step = 1e-3
    quotient = (total(q + step * direction) - total(q - step * direction)) / (2 * step)
    torch.testing.assert_close((grad * direction).sum(), quotient, rtol=2e-2, atol=1e-3)


def test_tensor_exponent_equals_float_and_is_differentiable():
    q, k, v = unit_inputs(batch=1)
    tables = HashTables(Hyperplane(5), 3, 2, num_heads=2)
    exponent = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    for stand_in in (expected_attention, straight_through_attention):
        out = stand_in(q, k, v, tables, exponent=exponent, is_causal=True)
        plain = stand_in(q, k, v, tables, exponent=2.5, is_causal=True)
        torch.testing.assert_close(out, plain)
        ours = torch.autograd.grad(out.square().sum(), (q, k, v))
        theirs = torch.autograd.grad(plain.square().sum(), (q, k, v))
        torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(
        lambda e: expected_attention(q, k, v, tables, exponent=e), (exponent,)
    )


@pytest.mark.parametrize("hashes", [1, 3, 9])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_straight_through_forward_is_the_hard_operator(family, is_causal, masked, hashes):
    q, k, v = unit_inputs(queries=7)
    tables = HashTables(family, 4, hashes, num_heads=2, seed=5)
    mask = key_mask() if masked else None
    out = straight_through_attention(
        q, k, v, tables, exponent=2.0, is_causal=is_causal, key_mask=mask
    )
    hard = anna_attention(
        q.detach(), k.detach(), v.detach(), tables, is_causal=is_causal, key_mask=mask
    )
    torch.testing.assert_close(out.detach(), hard, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_straight_through_gradient_is_that_of_its_formula(family, is_causal, masked):
    q, k, v = unit_inputs()
    tables = HashTables(family, 4, 2, num_heads=2, seed=1)
    mask = key_mask() if masked else None
    out = straight_through_attention(
        q, k, v, tables, exponent=1.5, is_causal=is_causal, key_mask=mask
    )
    seen = visible(5, 7, is_causal, mask)
    hard = (tables(q)[..., :, None] == tables(k)[..., None, :]).sum(2) * seen
    soft = 4 * probability(q, k, family) ** 1.5 * seen
    counts = hard + soft - soft.detach()
    total = counts.sum(-1, keepdim=True)
    expected = torch.where(hard.sum(-1, keepdim=True) > 0, counts @ v / total.clamp(min=0.5), 0.0)
    torch.testing.assert_close(out, expected)
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((out * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((expected * weight).sum(), (q, k, v))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    assert ours[0].abs().sum() > 0


def test_straight_through_decay_is_exact_where_keys_collide():
    q, k, v = unit_inputs(queries=7)
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2, seed=1)
    decay = torch.tensor([0.5, 0.1], dtype=torch.float64, requires_grad=True)
    out = straight_through_attention(q, k, v, tables, exponent=1.5, is_causal=True, decay=decay)
    seen = visible(7, 7, True, None)
    hard = (tables(q)[..., :, None] == tables(k)[..., None, :]).sum(2) * seen
    lag = torch.arange(7)[:, None] - torch.arange(7)
    weights = hard * torch.exp(-decay[:, None, None] * lag)
    expected = weights @ v / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    torch.testing.assert_close(out, expected)
    with torch.no_grad():
        torch.testing.assert_close(
            out, anna_attention(q, k, v, tables, is_causal=True, decay=decay)
        )
    ours = torch.autograd.grad(out.square().sum(), (v, decay))
    theirs = torch.autograd.grad(expected.square().sum(), (v, decay))
    torch.testing.assert_close(ours, theirs)


def test_decay_survives_long_sequences_in_float32():
    """exp(decay * position) is beyond float32 from position 100 on; relative weights are not."""
    length, generator = 4096, torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, length, 4, generator=generator, requires_grad=True)
    decay = torch.tensor([0.9], requires_grad=True)
    tables = HashTables(Hyperplane(4), 2, 4)
    for stand_in in (expected_attention, straight_through_attention):
        out = stand_in(x, x, x, tables, exponent=4.0, is_causal=True, decay=decay)
        grads = torch.autograd.grad(out.square().mean(), (x, decay))
        assert out.isfinite().all()
        assert all(grad.isfinite().all() for grad in grads)


def test_a_far_collision_is_not_lost_to_underflow():
    key = torch.tensor([[1.0, 0.0]] + [[0.0, 1.0]] * 999)[None, None]
    query = torch.tensor([[1.0, 0.0]])[None, None].expand(1, 1, 1000, 2).clone()
    value = torch.arange(1.0, 1001.0)[None, None, :, None]
    tables = HashTables(Hyperplane(2), 1, 24)
    assert (tables(query[:, :, :1]) != tables(key[:, :, 1:2])).all()
    out = straight_through_attention(
        query, key, value, tables, exponent=1.0, is_causal=True, decay=torch.tensor([0.9])
    )
    torch.testing.assert_close(out, torch.ones_like(out))


@pytest.mark.parametrize("num_tables", [3, 300])
@pytest.mark.parametrize("num_buckets", [200, 20_000, 1 << 20, 1 << 40, None])
def test_collision_counts_equal_a_plain_comparison(num_buckets, num_tables):
    generator = torch.Generator().manual_seed(0)
    low, high = (-5, 5) if num_buckets is None else (0, 10)
    q = torch.randint(low, high, (2, 3, num_tables, 4), generator=generator)
    k = torch.randint(low, high, (2, 3, num_tables, 6), generator=generator)
    if num_buckets is None:
        q, k = q * 2**59, k * 2**59
    else:
        q, k = q * (num_buckets // 10), k * (num_buckets // 10)
    counts = collision_counts(q, k, num_buckets=num_buckets)
    assert torch.equal(counts.long(), (q[..., :, None] == k[..., None, :]).sum(2))


@pytest.mark.parametrize("queries", [0, 1, 65])
@pytest.mark.parametrize("keys", [0, 1, 65])
def test_any_length(queries, keys):
    q, k, v = unit_inputs(queries=queries, keys=keys)
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2)
    for stand_in in (expected_attention, straight_through_attention):
        out = stand_in(q, k, v, tables, exponent=2.0, is_causal=True)
        out.sum().backward()
        assert out.shape == (2, 2, queries, 3)
        assert out.isfinite().all()


def test_masked_keys_have_no_influence():
    q, k, v = unit_inputs()
    mask = key_mask()
    hidden = ~mask[:, None, :, None]
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2)
    for stand_in in (expected_attention, straight_through_attention):
        out = stand_in(q, k, v, tables, exponent=2.0, key_mask=mask)
        for poison in (math.nan, math.inf, 1e30):
            bad_k, bad_v = (x.detach().masked_fill(hidden, poison) for x in (k, v))
            again = stand_in(q, bad_k, bad_v, tables, exponent=2.0, key_mask=mask)
            assert torch.equal(out, again)
            (grad,) = torch.autograd.grad(again.sum(), q)
            assert grad.isfinite().all()


def test_half_precision_is_computed_in_float32():
    q, k, v = (x.detach().to(torch.bfloat16) for x in unit_inputs())
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2)
    for stand_in in (expected_attention, straight_through_attention):
        low = stand_in(q, k, v, tables, exponent=2.0)
        high = stand_in(q.float(), k.float(), v.float(), tables, exponent=2.0)
        assert low.dtype == torch.bfloat16
        assert torch.equal(low, high.to(torch.bfloat16))


def test_identical_rows_have_finite_gradients():
    x = torch.ones(1, 1, 4, 5, requires_grad=True)
    tables = HashTables(Hyperplane(5), 4, 2)
    for stand_in in (expected_attention, straight_through_attention):
        v = torch.arange(4.0)[None, None, :, None]
        (grad,) = torch.autograd.grad(stand_in(x, x, v, tables, exponent=0.5).sum(), x)
        assert grad.isfinite().all()


def test_errors_quote_what_came_and_what_is_accepted():
    q, k, v = unit_inputs()
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2)
    with pytest.raises(ValueError, match=r"\(B, H, T, D\)"):
        expected_attention(q[0], k, v, tables, exponent=1.0)
    with pytest.raises(ValueError, match="must agree"):
        expected_attention(q, k, v[:, :, 1:], tables, exponent=1.0)
    with pytest.raises(TypeError, match="share a dtype"):
        expected_attention(q.float(), k, v, tables, exponent=1.0)
    with pytest.raises(ValueError, match="2 heads of width 5"):
        expected_attention(q[:, :1], k[:, :1], v[:, :1], tables, exponent=1.0)
    with pytest.raises(ValueError, match="no gradient"):
        expected_attention(q, k, v, HashTables(Exact(5), 1, 1, num_heads=2), exponent=1.0)
    with pytest.raises(TypeError, match="key_mask must be bool"):
        expected_attention(q, k, v, tables, exponent=1.0, key_mask=torch.ones(2, 7))
    with pytest.raises(ValueError, match=r"shape \(2, 6\); .* B=2, Tk=7"):
        expected_attention(q, k, v, tables, exponent=1.0, key_mask=key_mask()[:, 1:])
    with pytest.raises(ValueError, match="is_causal=True"):
        expected_attention(q, k, v, tables, exponent=1.0, decay=torch.ones(2))
    with pytest.raises(ValueError, match="exponent must be positive"):
        straight_through_attention(q, k, v, tables, exponent=0.0)
    with pytest.raises(ValueError, match=r"agree in \(B, H, L\)"):
        collision_counts(tables(q)[:1], tables(k))


@pytest.mark.parametrize("stand_in", [expected_attention, straight_through_attention])
def test_grouped_heads_share_keys_values_and_hash_functions(stand_in):
    q, k, v = unit_inputs(heads=4)
    k, v = k[:, :2], v[:, :2]
    tables = HashTables(Hyperplane(5), 4, 2, num_heads=2, seed=3)
    out = stand_in(q, k, v, tables, exponent=2.0, is_causal=True, enable_gqa=True)
    for head in range(4):
        pair = torch.stack([q[:, head]] * 2, dim=1)
        alone = stand_in(pair, k, v, tables, exponent=2.0, is_causal=True)
        torch.testing.assert_close(out[:, head], alone[:, head // 2])
    with pytest.raises(ValueError, match="4 heads and key has 2, enable_gqa=False"):
        stand_in(q, k, v, tables, exponent=2.0)


def test_strays_are_collisions_more_drawn_with_the_tables():
    """Values that name their keys show every weight: no pair collides in these tables itself."""
    query, key = torch.zeros(2, 1, 40, 4), torch.zeros(2, 1, 40, 4)
    query[..., 0], key[..., 0] = 1.0, -1.0
    value = torch.eye(40).expand(2, 1, 40, 40)
    tables = HashTables(Hyperplane(4), 2, 16, seed=3)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[:, 30:] = False

    def weights(stray, **options):
        return straight_through_attention(
            query, key, value, tables, exponent=1.0, stray=stray, **options
        )

    assert not bool(weights(0.0).any())
    drawn = weights(0.25)
    assert torch.equal(drawn, weights(0.25))
    share = float((drawn > 0).float().mean())
    # 3200 pairs: four standard deviations are 0.03.
    assert abs(share - 0.25) < 0.03
    torch.testing.assert_close(drawn.sum(-1), torch.ones(2, 1, 40))
    limited = weights(0.25, is_causal=True, key_mask=mask)
    assert bool(limited.any())
    assert not bool(limited.triu(1).any())
    assert not bool(limited[..., 30:].any())
    tables.redraw(4)
    assert not torch.equal(drawn, weights(0.25))
    tables.load_state_dict(HashTables(Hyperplane(4), 2, 16, seed=5).state_dict())
    with pytest.raises(ValueError, match="stray draws from the seed of tables"):
        weights(0.25)
    for bad in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"stray must lie in \[0, 1\]"):
            weights(bad)
