from anna_attn.lab.benchmarks import AttentionBenchmark
from anna_attn.lab.figures import scaling


def test_times_and_errors_are_drawn_and_what_was_left_out_is_said(tmp_path):
    benchmark = AttentionBenchmark(
        sizes=(32, 64, 96),
        num_heads=1,
        head_dim=8,
        num_tables=2,
        hashes_per_table=2,
        repeats=1,
    )
    results = scaling.run(benchmark)
    assert results["figure"] == "scaling"
    results["load_per_core"] = 0.1
    assert scaling.notes(results) == []
    results["rows"] = [
        {**{key: row[key] for key in ("num_tokens", "is_causal", "method")}, "skipped": "too long"}
        if row["num_tokens"] == 96 and row["method"] == "sdpa"
        else row
        for row in results["rows"]
    ]
    svg = scaling.plot(results, tmp_path / "scaling.svg").read_text()
    for text in ("softmax (SDPA)", "Algorithm 1", "causal attention", "relative error", ">96<"):
        assert text in svg
    columns, rows = scaling.table(results)
    assert len(rows) == 3 * 2 * 3
    assert all(len(row) == len(columns) for row in rows)
    results["load_per_core"] = 2.0
    assert scaling.notes(results) == [
        "The machine was busy before this run (load 2.0 per core): times are unreliable.",
        "sdpa (full, N = 96) was not run: too long.",
        "sdpa (causal, N = 96) was not run: too long.",
    ]
