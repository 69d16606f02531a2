import io
import json

import pytest
import torch
from rich.console import Console

from anna_attn.attention import anna_attention
from anna_attn.lab.benchmarks import (
    AttentionBenchmark,
    linearity,
    print_results,
    run,
    time_alternately,
    torch_threads,
)
from anna_attn.lab.benchmarks import attention as bench
from anna_attn.lab.benchmarks.inputs import clustered_inputs, exact_rows, relative_error
from anna_attn.lsh import HashTables, Hyperplane


def small(**changes):
    fields = {"sizes": (40, 64), "num_heads": 2, "head_dim": 16, "num_tables": 4, "repeats": 2}
    return AttentionBenchmark(**(fields | {"hashes_per_table": 3} | changes))


def test_calls_take_turns_and_warm_ups_are_not_counted():
    called = []
    calls = {name: lambda name=name: called.append(name) for name in "ab"}
    timings = time_alternately(calls, repeats=3, warmups=1)
    assert "".join(called) == "abababab"
    assert timings["a"].repeats == 3
    assert 0 <= timings["a"].min_s <= timings["a"].median_s <= timings["a"].max_s
    with pytest.raises(ValueError, match="repeats is 0"):
        time_alternately(calls, repeats=0)


def test_threads_are_restored_even_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with torch_threads(before + 1) as inside:
            assert inside == before + 1 == torch.get_num_threads()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads is 0"), torch_threads(0):
        pass


@pytest.mark.parametrize("is_causal", [False, True])
def test_exact_rows_equal_softmax_attention(is_causal, monkeypatch):
    monkeypatch.setattr("anna_attn.lab.benchmarks.inputs.KEY_CHUNK", 7)
    inputs = clustered_inputs(30, 2, 16)
    positions = torch.tensor([0, 3, 29])
    rows = exact_rows(inputs, positions, lambda cosine: torch.exp(4 * cosine), is_causal=is_causal)
    dense = torch.nn.functional.scaled_dot_product_attention(
        inputs.query.double(), inputs.key.double(), inputs.value.double(),
        is_causal=is_causal, scale=4.0,
    )  # fmt: skip
    torch.testing.assert_close(rows, dense[:, :, positions])


def test_many_tables_approach_the_expected_kernel():
    inputs = clustered_inputs(120, 1, 16)
    tables = HashTables(Hyperplane(16, rotation="gaussian"), 1000, 3)
    positions = torch.arange(0, 120, 10)
    expected = exact_rows(
        inputs,
        positions,
        lambda c: tables.family.collision_probability(c.acos(), 3),
        is_causal=True,
    )
    result = anna_attention(inputs.query, inputs.key, inputs.value, tables, is_causal=True)
    assert relative_error(result[:, :, positions], expected) < 0.05


def test_inputs_are_unit_rows_with_clusters_and_a_function_of_the_seed():
    inputs = clustered_inputs(100, 2, 32, num_clusters=4, seed=5)
    torch.testing.assert_close(inputs.query.norm(dim=-1), torch.ones(1, 2, 100))
    cosines = (inputs.query @ inputs.key.mT)[0, 0]
    close = cosines > 0.6
    assert 0.1 < close.float().mean() < 0.4
    again = clustered_inputs(100, 2, 32, num_clusters=4, seed=5)
    assert torch.equal(inputs.value, again.value)


def test_a_run_measures_time_beside_error_for_every_method():
    told = []
    before = torch.get_num_threads()
    results = run(small(threads=1), progress=lambda *what: told.append(what))
    assert torch.get_num_threads() == before
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert results["threads"] == 1
    assert [done for _, done, _ in told] == [1, 2, 3, 4]
    assert told[0] == ("N = 40, full", 1, 4)
    assert len(results["rows"]) == 2 * 2 * 3
    for row in results["rows"]:
        assert row["min_s"] <= row["median_s"] <= row["max_s"]
        assert row["ns_per_token"] == pytest.approx(row["median_s"] / row["num_tokens"] * 1e9)
        if row["method"] == "sdpa":
            assert row["error_softmax"] < 1e-5
            assert "speedup" not in row
        else:
            assert 0 < row["error_expected"] < 2
            assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    # Both backends are the same operator.
    errors = {}
    for row in results["rows"]:
        if row["method"] != "sdpa":
            errors.setdefault((row["num_tokens"], row["is_causal"]), []).append(
                row["error_expected"]
            )
    assert all(one == pytest.approx(other, rel=1e-4) for one, other in errors.values())


def test_what_would_take_too_long_is_left_out_and_said():
    last = (1000, 0.1)
    assert bench._predict("sdpa", 10_000, last) == pytest.approx(10)
    assert bench._predict("torch", 10_000, last) == pytest.approx(1)
    assert bench._predict("torch", 10_000, None) == 0
    # The first size is always measured; after it, every prediction exceeds this cap.
    results = run(small(max_call_s=1e-9, is_causal=(False,), backends=("torch",)))
    skipped = [row for row in results["rows"] if "skipped" in row]
    assert [(row["num_tokens"], row["method"]) for row in skipped] == [(64, "sdpa"), (64, "torch")]
    assert "over the cap of 1e-09 s" in skipped[0]["skipped"]
    text = io.StringIO()
    print_results(results, Console(file=text, width=200))
    assert "not run: sdpa (full, N = 64)" in text.getvalue()


def test_linearity_is_relative_to_the_first_large_size():
    def row(size, ns, **more):
        where = {"num_tokens": size, "is_causal": False, "method": "torch"}
        return {**where, "ns_per_token": ns, **more}

    rows = [row(10, 9.0), row(100, 4.0), row(200, 5.0), {**row(400, 0.0), "skipped": "why"}]
    lines = linearity({"rows": rows}, from_tokens=50)
    assert [(line["num_tokens"], line["ratio"]) for line in lines] == [(100, 1.0), (200, 1.25)]
    assert linearity({"rows": rows}, from_tokens=1000)[0]["num_tokens"] == 10


def test_the_printed_table_shows_times_errors_and_cost_per_token():
    results = run(small(is_causal=(True,), backends=("torch",)))
    text = io.StringIO()
    print_results(results | {"load_per_core": 0.9}, Console(file=text, width=200))
    printed = text.getvalue()
    for word in (
        "busy",
        "sdpa",
        "torch",
        "causal",
        "error: softmax",
        "ratio to the first size",
        "L = 4",
    ):
        assert word in printed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": ()}, r"sizes is \(\)"),
        ({"sizes": (64, 32)}, "ascending"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"max_call_s": 0.0}, "max_call_s is 0"),
        ({"family": "exact"}, "family is 'exact'; accepted: hyperplane, cross_polytope"),
        ({"backends": ()}, "backends or is_causal is empty"),
    ],
)
def test_bad_settings_are_quoted(changes, said):
    with pytest.raises(ValueError, match=said):
        small(**changes)
