"""HashTables: shapes, independent streams, and codes that depend on row and seed alone."""

from __future__ import annotations

import io
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from anna_attn.lsh import CrossPolytope, Euclidean, Exact, HashTables, Hyperplane
from anna_attn.lsh import tables as room

FAMILIES = [
    Hyperplane(24),
    Hyperplane(24, "gaussian"),
    CrossPolytope(24),
    CrossPolytope(24, "gaussian"),
    Euclidean(24, 3.0),
    Exact(24),
]
PROJECTING = FAMILIES[:-1]
all_families = pytest.mark.parametrize("family", FAMILIES, ids=str)
projecting = pytest.mark.parametrize("family", PROJECTING, ids=str)


def build(family, num_tables=5, hashes=3, heads=3, seed=7, **options):
    return HashTables(family, num_tables, hashes, num_heads=heads, seed=seed, **options)


def rows(batch=2, heads=3, length=50, dim=24, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, length, dim, generator=generator).to(dtype)


@all_families
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (1, 1), (2, 63), (3, 65)])
def test_shape_for_any_batch_and_length(family, shape):
    codes = build(family)(rows(*(shape[0], 3, shape[1])))
    assert codes.shape == (shape[0], 3, 5, shape[1])
    assert codes.dtype == torch.int64


@pytest.mark.parametrize("hashes", [1, 2, 16, 17, 32, 33, 40])
@pytest.mark.parametrize("num_tables", [1, 2, 7])
@pytest.mark.parametrize("dim", [3, 16, 20])
def test_any_number_of_hashes_fits_on_panels(hashes, num_tables, dim):
    """A panel has 16 or 32 rows here: tables share panels, fill one, or need several."""
    tables = HashTables(Hyperplane(dim), num_tables, hashes, num_heads=2)
    assert tables.projection.shape == (2, num_tables * hashes, dim)
    codes = tables(rows(1, 2, 30, dim))
    assert codes.shape == (1, 2, num_tables, 30)
    wide = tables.projections(rows(1, 2, 30, dim, dtype=torch.float64))
    bits = (wide >= 0).long()
    packed = (bits * 2 ** torch.arange(hashes)).sum(-1)
    assert torch.equal(codes, packed.transpose(2, 3))


def collisions(family, hashes, num_tables, draws, angle, seed):
    """Whether one fixed pair collides: (draws, num_tables), every draw a head of its own."""
    generator = torch.Generator().manual_seed(99)
    x = torch.randn(family.dim, generator=generator, dtype=torch.float64)
    y = torch.randn(family.dim, generator=generator, dtype=torch.float64)
    x = x / x.norm()
    y = y - (x @ y) * x
    pair = torch.stack([x, math.cos(angle) * x + math.sin(angle) * y / y.norm()])
    tables = HashTables(family, num_tables, hashes, num_heads=draws, seed=seed)
    codes = tables(pair.expand(1, draws, 2, family.dim))[0]
    return (codes[..., 0] == codes[..., 1]).double()


@pytest.mark.parametrize(
    ("family", "hashes"),
    [(Hyperplane(16, "gaussian"), 2), (CrossPolytope(6, "gaussian"), 1), (Euclidean(16, 1.5), 1)],
    ids=str,
)
def test_tables_heads_and_seeds_are_independent_streams(family, hashes):
    """Correlations of 1,500 draws have standard deviation 0.026: 4.5 of them are allowed."""
    draws = 1500
    hits = collisions(family, hashes, 4, draws, 0.9, seed=3)
    assert 0.2 < hits.mean() < 0.8
    limit = 4.5 / math.sqrt(draws)
    between_tables = torch.corrcoef(hits.T)
    assert (between_tables - torch.eye(4)).abs().max() < limit
    # Neighbouring heads of one seed, and one head number under neighbouring seeds.
    heads = torch.corrcoef(torch.stack([hits[:-1, 0], hits[1:, 0]]))[0, 1]
    assert abs(heads) < limit
    other = collisions(family, hashes, 4, draws, 0.9, seed=4)
    assert abs(torch.corrcoef(torch.stack([hits[:, 0], other[:, 0]]))[0, 1]) < limit


@pytest.mark.parametrize(
    ("family", "hashes"), [(Hyperplane(64), 8), (CrossPolytope(64), 1)], ids=str
)
def test_tables_on_rotations_are_nearly_independent(family, hashes):
    """Tables of one panel share its rotation, and panels two of three rounds: near 0, not at 0."""
    draws = 1000
    hits = collisions(family, hashes, 8, draws, 0.45, seed=3)
    off = torch.corrcoef(hits.T) - torch.eye(8)
    assert off.abs().max() < 4.5 / math.sqrt(draws) + 0.08
    assert abs(off.sum() / 56) < 0.05


@all_families
def test_heads_and_seeds_draw_different_functions(family):
    x = rows(1, 1, 200).expand(1, 3, 200, 24)
    codes = build(family)(x)
    assert not torch.equal(codes[:, 0], codes[:, 1])
    assert not torch.equal(codes, build(family, seed=8)(x))
    assert torch.equal(codes, build(family)(x))
    # A head's functions do not depend on how many heads there are.
    assert torch.equal(codes[:, :2], build(family, heads=2)(x[:, :2]))


@all_families
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_has_one_code_at_any_batch_shape(family, dtype):
    tables, x = build(family), rows(length=40, dtype=dtype)
    whole = tables(x)
    one_by_one = torch.cat([tables(x[:, :, i : i + 1]) for i in range(40)], dim=-1)
    assert torch.equal(whole, one_by_one)
    assert torch.equal(whole[1:], tables(x[1:]))
    transposed = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert not transposed.is_contiguous()
    assert torch.equal(whole, tables(transposed))
    spread = torch.zeros(2, 3, 80, 48, dtype=dtype)
    spread[:, :, ::2, ::2] = x
    assert torch.equal(whole, tables(spread[:, :, ::2, ::2]))
    assert torch.equal(whole[:1].expand(4, -1, -1, -1), tables(x[:1].expand(4, -1, -1, -1)))


@pytest.mark.parametrize("family", PROJECTING[:4], ids=str)
@pytest.mark.parametrize("factor", [1.0, 0.1, 1 / 3, math.pi])
def test_sums_that_cancel_have_one_code_at_any_batch_shape(family, factor):
    """Equal entries of both signs: projections vanish often, and rounded sums had no fixed sign."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-1, 2, (1, 3, 500, 24), generator=generator).double() * factor
    tables = build(family, num_tables=8)
    whole = tables(x)
    projected = tables.projections(torch.randint(-1, 2, x.shape, generator=generator).double())
    assert family.rotation == "gaussian" or (projected == 0).any()
    for start in range(0, 500, 7):
        assert torch.equal(tables(x[:, :, start : start + 1]), whole[..., start : start + 1])


@all_families
def test_chunks_and_threads_leave_no_bit(family, monkeypatch):
    tables, x = build(family), rows(length=300, dtype=torch.float64)
    whole = tables(x)
    monkeypatch.setattr(room, "CHUNK_ELEMENTS", 2000)
    assert torch.equal(tables(x), whole)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        assert torch.equal(tables(x), whole)
    finally:
        torch.set_num_threads(threads)


@all_families
def test_codes_ignore_the_dtype_of_the_module_autocast_mode_and_grad(family):
    tables, x = build(family), rows()
    expected = tables(x)
    for cast in (torch.float16, torch.bfloat16, torch.float64):
        assert torch.equal(build(family).to(cast)(x), expected)
    assert torch.equal(build(family).half()(x), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(tables(x), expected)
    assert torch.equal(tables.eval()(x), expected)
    tracked = tables(x.clone().requires_grad_())
    assert torch.equal(tracked, expected)
    assert not tracked.requires_grad
    with torch.inference_mode():
        assert torch.equal(tables(x), expected)


@pytest.mark.parametrize(
    ("family", "learnable"),
    [*[(family, False) for family in FAMILIES], *[(family, True) for family in PROJECTING]],
    ids=str,
)
def test_state_dict_round_trip(family, learnable):
    source, x = build(family, learnable=learnable), rows()
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target = build(family, seed=100, learnable=learnable)
    assert not torch.equal(target(x), source(x))
    target.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(target(x), source(x))
    assert target.seed is None


@all_families
def test_the_seed_is_that_of_the_functions_in_use(family):
    source, same, other = build(family), build(family), build(family, seed=100)
    same.load_state_dict(source.state_dict())
    assert same.seed == source.seed
    other.load_state_dict(source.state_dict())
    assert "seed=None" in repr(other) or family == Exact(24)
    other.redraw(100)
    assert other.seed == 100


def test_what_a_rotation_follows_from_is_saved_once():
    state = build(Hyperplane(24)).state_dict()
    assert {name: value.dtype for name, value in state.items()} == {"signs": torch.int8}


def test_another_process_draws_the_same():
    script = (
        "import torch; from anna_attn.lsh import *; torch.manual_seed(5);"
        "x = torch.arange(240.).reshape(1, 1, 10, 24).sin();"
        "f = [Hyperplane(24), CrossPolytope(24, 'gaussian'), Euclidean(24, 3.0), Exact(24)];"
        "print([int(HashTables(g, 4, 3, seed=9)(x).sum()) for g in f])"
    )
    x = torch.arange(240.0).reshape(1, 1, 10, 24).sin()
    families = [Hyperplane(24), CrossPolytope(24, "gaussian"), Euclidean(24, 3.0), Exact(24)]
    here = [int(HashTables(family, 4, 3, seed=9)(x).sum()) for family in families]
    command = [sys.executable, "-c", script]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(here)


@all_families
def test_redraw_equals_a_new_module(family):
    tables, x = build(family), rows()
    before = tables(x)
    tables.redraw(55)
    assert tables.seed == 55
    assert torch.equal(tables(x), build(family, seed=55)(x))
    tables.redraw(7)
    assert torch.equal(tables(x), before)


@all_families
def test_global_random_state_is_untouched(family):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    tables = build(family)
    tables(rows())
    tables.redraw(3)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_state[1], np.random.get_state()[1])  # noqa: NPY002


@projecting
def test_learnable_tables_start_as_the_drawn_ones(family):
    drawn, learnable = build(family), build(family, learnable=True)
    x = rows(dtype=torch.float64)
    assert torch.equal(drawn(x), learnable(x))
    torch.testing.assert_close(drawn.projections(x), learnable.projections(x))
    assert [name for name, _ in learnable.named_parameters()] == ["projection"]
    assert list(drawn.parameters()) == []


@projecting
def test_projections_have_unit_variance_and_gradients(family):
    tables = build(family, num_tables=20, learnable=True)
    x = torch.nn.functional.normalize(rows(length=200), dim=-1).requires_grad_()
    projected = tables.projections(x)
    axes = (family.num_axes,) if isinstance(family, CrossPolytope) else ()
    assert projected.shape == (2, 3, 200, 20, 3, *axes)
    assert projected.std().item() == pytest.approx(1.0, abs=0.1)
    projected.square().mean().backward()
    assert tables.projection.grad.abs().sum() > 0
    assert x.grad.abs().sum() > 0


def test_a_learned_projection_changes_codes():
    tables, x = build(Euclidean(24, 3.0), learnable=True), rows()
    before = tables(x)
    with torch.no_grad():
        tables.projection.neg_()
    assert not torch.equal(tables(x), before)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: HashTables("hyperplane", 1, 1), TypeError, "must be a hash family, got str"),
        (lambda: HashTables(Exact(3), 0, 1), ValueError, "num_tables must be .*, got 0"),
        (lambda: HashTables(Exact(3), 1, -2), ValueError, "hashes_per_table must be .*, got -2"),
        (lambda: HashTables(Exact(3), 1, 1, num_heads=1.5), ValueError, "num_heads .*, got 1.5"),
        (lambda: HashTables(Exact(3), True, 1), ValueError, "num_tables must be .*, got True"),
        (lambda: HashTables(Exact(3), 1, 1, seed=-1), ValueError, "seed must be .*, got -1"),
        (lambda: HashTables(Exact(3), 1, 1, learnable=True), ValueError, "Exact has none"),
        (lambda: build(Hyperplane(24), learnable=True).redraw(1), ValueError, "redraw would"),
        (lambda: build(Hyperplane(24)).redraw("x"), ValueError, "seed must be .*, got 'x'"),
        (lambda: build(Hyperplane(24))([1.0]), TypeError, "must be a tensor, got list"),
        (lambda: build(Hyperplane(24))(rows().long()), TypeError, "float dtype, got torch.int64"),
        (
            lambda: build(Hyperplane(24))(rows(heads=2)),
            ValueError,
            r"\(B, 3, T, 24\).*\(2, 2, 50, 24",
        ),
        (lambda: build(Hyperplane(24))(rows(dim=8)), ValueError, r"got \(2, 3, 50, 8\)"),
        (lambda: build(Hyperplane(24))(rows()[0]), ValueError, r"got \(3, 50, 24\)"),
        (lambda: build(Exact(24)).projections(rows()), ValueError, "no projections"),
    ],
)
def test_bad_input_is_quoted(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_representation_names_what_was_drawn():
    assert "num_tables=5" in repr(build(Euclidean(24, 3.0)))
    assert "width=3.0" in repr(build(Euclidean(24, 3.0)))
