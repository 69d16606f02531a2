import json

import pytest
import torch

from anna_attn.lab.figures import theorem_3_4
from anna_attn.lab.figures.theorem_3_4 import DEFAULT_CASES, Case, clopper_pearson, planted
from anna_attn.lsh import Hyperplane


@pytest.fixture(scope="module")
def results():
    return theorem_3_4.run(sizes=(24, 48), num_seeds=12)


@pytest.mark.parametrize("case", DEFAULT_CASES)
@pytest.mark.parametrize("n", [20, 21])
def test_planted_keys_lie_on_both_sides_of_the_bounds(case, n):
    query, key = planted(case, n, seed=0)
    assert query.shape == key.shape == (n, case.family.dim)
    near = (n + 1) // 2
    far = case.radius * case.approx_factor
    distance = torch.cdist(query, key)
    within = distance[:near, :near].diagonal()
    assert bool((within < case.radius).all())
    assert bool((within > 0.999 * case.radius).all())
    beyond = distance[: n - near, near:].diagonal()
    assert bool((beyond > far).all())
    assert bool((beyond < 1.01 * far).all())


def test_the_promise_is_kept_and_the_control_breaks_it(results):
    for panel in results["cases"]:
        for point in panel["points"]:
            assert 0 < point["promised"] < 1
            # Not refuted by the data; the interval, not the share, is what 12 seeds can say.
            assert point["high"] >= point["promised"]
            assert point["holds"] > point["control_holds"]
            assert point["control_tables"] == point["num_tables"] // 8
    assert json.loads(json.dumps(results)) == results


@pytest.mark.slow
def test_theorem_3_4_holds_up_to_1024_tokens():
    results = theorem_3_4.run(sizes=(256, 1024), num_seeds=30)
    for panel in results["cases"]:
        for point in panel["points"]:
            assert point["high"] >= point["promised"]
            assert point["control_holds"] < 0.5


def test_clopper_pearson_is_the_exact_interval():
    assert clopper_pearson(0, 20) == (0.0, pytest.approx(0.1684, abs=1e-4))
    assert clopper_pearson(20, 20) == (pytest.approx(0.8316, abs=1e-4), 1.0)
    low, high = clopper_pearson(5, 20)
    assert (low, high) == (pytest.approx(0.0866, abs=1e-4), pytest.approx(0.4910, abs=1e-4))


def test_plot_and_table(results, tmp_path):
    svg = theorem_3_4.plot(results, tmp_path / "theorem.svg").read_text()
    assert "promised, 1 - η" in svg
    columns, rows = theorem_3_4.table(results)
    assert len(rows) == 4
    assert all(len(row) == len(columns) for row in rows)


def test_a_family_outside_the_theorem_is_refused():
    case = Case(Hyperplane(8, rotation="gaussian"), radius=0.5, approx_factor=1.5)
    with pytest.raises(ValueError, match="rho < 1/3"):
        theorem_3_4.run(cases=(case,), sizes=(16,), num_seeds=1)
