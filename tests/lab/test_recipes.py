import itertools
from dataclasses import replace

import pytest
import torch

from anna_attn.lab.recipes import find_recipe, get_recipe, log_spaced, recipe_names
from anna_attn.lab.runs import start_of_fixed_stages
from anna_attn.nn import AnnaTransformer
from anna_attn.training import Curriculum, save_checkpoint


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds_its_model_for_its_task(name):
    recipe = get_recipe(name, seed=3)
    model = AnnaTransformer(recipe.model)
    assert recipe.name == name
    assert model.config.vocab_size == recipe.task.vocab_size
    assert model.config.is_causal == recipe.task.is_causal
    assert recipe.model.seed == recipe.config.seed == 3
    assert recipe.num_steps == sum(s.steps for s in (*recipe.stages, *recipe.fixed_stages))


@pytest.mark.parametrize("name", [n for n in recipe_names() if "/anna" in n])
def test_our_recipes_are_strict_and_tied_to_their_tables(name):
    recipe = get_recipe(name, seed=0)
    for layer in recipe.model.layers:
        assert layer.decay is None
        assert layer.family == recipe.family
        assert layer.hashes_per_table == recipe.hashes_per_table
        # Trained on as many tables as it is used with, or on fewer: that is harder.
        assert layer.num_tables <= recipe.num_tables


@pytest.mark.parametrize("num_draws", [0, 3])
def test_the_last_stages_start_with_the_tables_of_the_recipe(tmp_path, num_draws):
    recipe = replace(get_recipe("match2/anna/z1", seed=0), table_draws=num_draws)
    trained = AnnaTransformer(recipe.model)
    save_checkpoint(tmp_path / "model.safetensors", trained)
    model = start_of_fixed_stages(recipe, tmp_path / "model.safetensors")
    tables = model.layers[0].attention.tables
    assert (tables.num_tables, trained.layers[0].attention.tables.num_tables) == (8, 4)
    # Chosen by loss, so that neither the first draw nor its order is certain; but always the same.
    again = start_of_fixed_stages(recipe, tmp_path / "model.safetensors")
    assert torch.equal(tables.signs, again.layers[0].attention.tables.signs)
    assert torch.equal(model.embedding.weight, trained.embedding.weight)


def test_the_tables_are_chosen_on_what_the_fixed_stage_trains_on(tmp_path):
    recipe = replace(get_recipe("match2/anna/z1", seed=0), table_draws=2)
    seen = []

    def sampler(num, generator):
        seen.append(num)
        return recipe.task.sampler("train")(num, generator)

    save_checkpoint(tmp_path / "model.safetensors", AnnaTransformer(recipe.model))
    for own in (sampler, Curriculum((sampler, recipe.task.sampler("train")), (0.5,))):
        stage = replace(recipe.fixed_stages[0], sampler=own)
        changed = replace(recipe, fixed_stages=(stage,))
        start_of_fixed_stages(changed, tmp_path / "model.safetensors")
    assert len(seen) == 2


def test_scaling_changes_steps_only():
    recipe = get_recipe("match2/anna/z1", seed=0)
    short = recipe.scaled(0.01)
    assert [s.steps for s in short.stages] == [round(0.01 * s.steps) for s in recipe.stages]
    assert short.model == recipe.model
    assert recipe.scaled(1.0) is recipe
    assert all(s.steps == 1 for s in recipe.scaled(1e-9).stages)
    with pytest.raises(ValueError, match="steps scale is 0"):
        recipe.scaled(0.0)
    with pytest.raises(ValueError, match="steps scale is inf"):
        recipe.scaled(float("inf"))


def test_finding_a_recipe_by_task_and_method():
    assert find_recipe("match2", "anna", 2) == "match2/anna/z2"
    assert find_recipe("match2", "anna") == "match2/anna/z1"
    assert find_recipe("induction_heads", "softmax") == "induction_heads/softmax/beta1"
    assert find_recipe("2_hop", "anna") == "2_hop/anna"
    with pytest.raises(ValueError, match="task is 'sorting'; accepted: match2"):
        find_recipe("sorting", "anna")
    with pytest.raises(ValueError, match="no recipe for 2_hop/softmax; accepted: match2/anna"):
        find_recipe("2_hop", "softmax")
    with pytest.raises(ValueError, match="recipe is 'match2'"):
        get_recipe("match2", seed=0)


def test_log_spaced_ends_where_asked():
    values = log_spaced(3.0, 0.1, 16)
    assert values[0] == 3.0
    assert values[-1] == pytest.approx(0.1)
    ratios = [b / a for a, b in itertools.pairwise(values)]
    assert ratios == pytest.approx([ratios[0]] * 15)
    assert log_spaced(2.0, 1.0, 1) == (2.0,)
