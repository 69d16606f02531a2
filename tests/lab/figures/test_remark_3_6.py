import json

import pytest
import torch

from anna_attn.lab.figures import remark_3_6


@pytest.fixture(scope="module")
def results():
    return remark_3_6.run(dim=32, num_pairs=60, num_tables=150, distances=(0.3, 0.8, 1.3))


def test_pairs_are_at_the_distance_they_say():
    distances = torch.tensor([0.1, 1.0, 1.9], dtype=torch.float64)
    x, y = remark_3_6.pairs_at(distances, 5, 16, torch.Generator().manual_seed(0))
    measured = (y - x).norm(dim=-1)
    torch.testing.assert_close(measured, distances[:, None].expand(3, 5))
    torch.testing.assert_close(y.norm(dim=-1), torch.ones(3, 5, dtype=torch.float64))


def test_each_family_follows_its_own_law(results):
    for panel in results["families"]:
        for point in panel["points"]:
            tolerance = 5 * point["standard_error"] + 2e-3
            assert point["measured"] == pytest.approx(point["predicted"], abs=tolerance)
            assert point["weight"] == pytest.approx(point["predicted_weight"], abs=0.02)
    assert json.loads(json.dumps(results)) == results


def test_hyperplanes_do_not_follow_the_formula_the_remark_gives_them(results):
    hyperplane, cross_polytope = (panel["points"][-1] for panel in results["families"])
    assert hyperplane["measured"] > 5 * hyperplane["remark"]
    # The formula is the leading term of the cross-polytope law: the right order of magnitude.
    assert 0.1 < cross_polytope["measured"] / cross_polytope["remark"] < 1


def test_weights_sum_to_one(results):
    for panel in results["families"]:
        assert sum(point["weight"] for point in panel["points"]) == pytest.approx(1)


def test_plot_and_table(results, tmp_path):
    svg = remark_3_6.plot(results, tmp_path / "remark.svg").read_text()
    assert "formula of Remark 3.6" in svg
    columns, rows = remark_3_6.table(results)
    assert len(rows) == 6
    assert all(len(row) == len(columns) for row in rows)


def test_distances_of_the_poles_are_refused():
    with pytest.raises(ValueError, match=r"all in \(0, 2\)"):
        remark_3_6.run(distances=(0.5, 2.0))
