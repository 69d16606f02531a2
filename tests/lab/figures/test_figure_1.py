import json

import pytest

from anna_attn.lab.figures import figure_1a, figure_1b
from anna_attn.lab.figures.sweep import Evaluations, Method, measure, spread
from anna_attn.lab.tasks import KHop, Match2
from anna_attn.nn import AnnaTransformer, AttentionConfig, TransformerConfig
from anna_attn.training import evaluate


def model(task, num_layers, seed):
    layer = AttentionConfig(num_heads=1, head_dim=8, num_tables=2, hashes_per_table=1)
    return AnnaTransformer(
        TransformerConfig(
            vocab_size=task.vocab_size,
            num_outputs=task.num_outputs,
            width=16,
            mlp_width=0,
            layers=(layer,) * num_layers,
            is_causal=task.is_causal,
            seed=seed,
        )
    )


MATCH2 = Match2(length=8, modulus=11)
INDUCTION = KHop(length=12)


def evaluations(task, **changes):
    fields = {"hash_seeds": (3, 4), "num_sequences": 20, "batch_size": 12}
    return Evaluations(task, **(fields | changes))


def distilled(task, num_layers, z_list):
    models = [model(task, num_layers, seed) for seed in range(2)]
    return Method.one_model_for_every_z(
        "Distilled", "cross_polytope", models, z_list, {"soft": 0.1}
    )


def direct(task, num_layers, z):
    return Method("Direct", "hyperplane", ({z: model(task, num_layers, 5)},), {})


@pytest.fixture(scope="module")
def results_1a():
    methods = [distilled(MATCH2, 1, (1, 2)), direct(MATCH2, 1, 3)]
    told = []
    results = figure_1a.run(
        methods, evaluations(MATCH2), (1, 4), progress=lambda *what: told.append(what)
    )
    return results, told


def test_every_run_is_measured_under_every_draw(results_1a):
    results, told = results_1a
    first, second = results["methods"]
    assert [(point["z"], point["num_tables"]) for point in first["points"]] == [
        (1, 1), (1, 4), (2, 1), (2, 4),
    ]  # fmt: skip
    assert [(point["z"], point["num_tables"]) for point in second["points"]] == [(3, 1), (3, 4)]
    assert all([len(run) for run in point["errors"]] == [2, 2] for point in first["points"])
    assert first["baselines"] == {"soft": 0.1}
    assert results["num_tokens"] == 20 * 8
    assert 0.2 < results["constant_error"] < 0.5
    assert told[-1] == ("Direct: z = 3, 4 tables", 6, 6)
    assert json.loads(json.dumps(results, allow_nan=False)) == results


def test_an_error_is_that_of_the_hashed_model_on_the_same_sequences(results_1a):
    on = evaluations(MATCH2)
    hashed = model(MATCH2, 1, 0).with_tables("cross_polytope", 4, 2, 99)
    errors = evaluate(hashed, on.batches("test"), hash_seeds=(3, 4)).errors
    assert results_1a[0]["methods"][0]["points"][3]["errors"][0] == list(errors)


def test_a_repeated_measurement_is_the_same(results_1a):
    on = evaluations(MATCH2)
    again = measure(distilled(MATCH2, 1, (1, 2)), 2, 1, on, on.batches("test"))
    assert again == results_1a[0]["methods"][0]["points"][2]


def test_z_is_chosen_on_validation_and_the_error_is_of_the_test():
    on = evaluations(INDUCTION)
    method = distilled(INDUCTION, 2, (1, 2, 3))
    results = figure_1b.run([method, direct(INDUCTION, 2, 2)], on, (1, 3))
    cells = results["methods"][0]["cells"]
    assert [cell["num_tables"] for cell in cells] == [[1, 1], [1, 3], [3, 1], [3, 3]]
    for cell in cells:
        tried = {z: error for z, error in cell["validation"]}
        assert set(tried) == {1, 2, 3}
        assert tried[cell["z"]] == min(tried.values())
        tables = tuple(cell["num_tables"])
        chosen = measure(method, cell["z"], tables, on, on.batches("test"))
        assert cell["errors"] == chosen["errors"]
    assert all(cell["validation"] == [] for cell in results["methods"][1]["cells"])
    assert json.loads(json.dumps(results, allow_nan=False)) == results


def test_validation_and_test_sequences_differ():
    on = evaluations(INDUCTION)
    rows = {
        split: {tuple(row) for batch in on.batches(split) for row in batch.tokens.tolist()}
        for split in ("validation", "test")
    }
    assert len(rows["test"]) > 10
    assert not rows["validation"] & rows["test"]


def test_spread_is_over_runs_and_draws_together():
    assert spread([[0.1, 0.3], [0.2, 0.2]]) == {
        "mean": pytest.approx(0.2),
        "std": pytest.approx(0.0816, abs=1e-4),
        "low": 0.1,
        "high": 0.3,
    }
    assert spread([[0.5]])["std"] == 0.0


def point(z, tables, mean, std=0.01):
    return {"z": z, "num_tables": tables, "errors": [[mean]], "mean": mean, "std": std,
            "low": mean, "high": mean}  # fmt: skip


def panel(label, **parts):
    return {"label": label, "family_name": "hyperplane", "num_runs": 1, "baselines": {}, **parts}


def test_figure_1a_is_drawn_with_zero_errors(tmp_path):
    points = [point(1, 1, 0.1), point(1, 8, 0.0, 0.0), point(2, 1, 0.2), point(2, 8, 0.01)]
    results = {
        "num_tokens": 1000,
        "constant_error": 0.35,
        "methods": [
            panel("Paper & co", points=points, baselines={"teacher": 0.02}),
            panel("Ours", points=points[:2]),
        ],
    }
    svg = figure_1a.plot(results, tmp_path / "figure.svg").read_text()
    for text in (
        "z = 1",
        "z = 2",
        "teacher",
        "Paper &amp; co",
        "share of wrong tokens",
        "hashing, 1 run",
    ):
        assert text in svg
    assert figure_1a.plot(results, tmp_path / "figure.png").stat().st_size > 0
    columns, rows = figure_1a.table(results)
    assert rows[1] == ["Paper & co", "1", "8", *["0.000%"] * 4, "1"]
    assert all(len(row) == len(columns) for row in rows)


def test_figure_1b_is_drawn_with_zero_errors(tmp_path):
    cells = [point(z, [a, b], error) for z, (a, b, error) in enumerate(
        [(1, 1, 0.5), (1, 8, 0.02), (8, 1, 0.015), (8, 8, 0.0)], start=1)]  # fmt: skip
    results = {
        "num_tokens": 1000,
        "tables_list": [1, 8],
        "methods": [panel("Paper", cells=cells), panel("Ours", cells=cells)],
    }
    svg = figure_1b.plot(results, tmp_path / "figure.svg").read_text()
    for text in ("50%", "z = 3", "hash tables in layer 1", "hash tables in layer 2"):
        assert text in svg
    columns, rows = figure_1b.table(results)
    assert len(rows) == 8
    assert all(len(row) == len(columns) for row in rows)


def test_the_same_results_give_the_same_bytes(tmp_path):
    results = {
        "num_tokens": 10,
        "constant_error": 0.3,
        "methods": [panel("A", points=[point(1, 1, 0.1)])],
    }
    first = figure_1a.plot(results, tmp_path / "figure.svg").read_bytes()
    assert figure_1a.plot(results, tmp_path / "figure.svg").read_bytes() == first


def test_bad_input_is_quoted(tmp_path):
    with pytest.raises(ValueError, match="'Empty' has no models"):
        Method("Empty", "hyperplane", (), {})
    with pytest.raises(ValueError, match=r"z in \[\[1\], \[2\]\]"):
        Method("Uneven", "hyperplane", ({1: None}, {2: None}), {})
    with pytest.raises(ValueError, match="hash_seeds is empty"):
        evaluations(MATCH2, hash_seeds=())
    with pytest.raises(ValueError, match="num_sequences is 0"):
        evaluations(MATCH2, num_sequences=0)
    with pytest.raises(ValueError, match=r"'figure.gif'; accepted"):
        figure_1a.plot({"num_tokens": 10, "constant_error": 0.3,
                        "methods": [panel("A", points=[point(1, 1, 0.1)])]},
                       tmp_path / "figure.gif")  # fmt: skip
