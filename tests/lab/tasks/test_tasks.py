import dataclasses
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anna_attn.lab.tasks import (
    KHop,
    Match2,
    get_task,
    hop_targets,
    label_balance,
    match2_labels,
    task_names,
)
from anna_attn.lab.tasks.split import in_split

SPLITS = ("train", "validation", "test")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def brute_force_sigma(word, i):
    """Definition 5.3, word for word; positions from 1."""
    if i == 0:
        return 0
    return max([0, *(j for j in range(2, i + 1) if word[j - 2] == word[i - 1])])


def brute_force_hops(word, num_letters, k):
    answers = []
    for i in range(1, len(word) + 1):
        for _ in range(k):
            i = brute_force_sigma(word, i)
        answers.append(num_letters if i == 0 else word[i - 1])
    return answers


def spelled(text):
    return torch.tensor([["abc".index(letter) for letter in text]])


def test_hops_agree_with_the_worked_example_of_the_paper():
    word = spelled("aabcbabca")
    for k, answer in ((1, "b"), (2, "a")):
        assert "abc"[hop_targets(word, torch.tensor([k]), 3)[0, 8]] == answer


def test_zero_hops_answer_the_letter_itself():
    word = spelled("aabcbabca")
    assert torch.equal(hop_targets(word, torch.tensor([0]), 3), word)


@settings(max_examples=60, deadline=None)
@given(
    words=st.integers(1, 14).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=1)
    ),
    k=st.integers(0, 6),
)
def test_hops_agree_with_the_definition(words, k):
    hops = torch.tensor([(k + row) % 7 for row in range(len(words))])
    answers = hop_targets(torch.tensor(words), hops, 4)
    wanted = [brute_force_hops(w, 4, h) for w, h in zip(words, hops.tolist(), strict=True)]
    assert answers.tolist() == wanted


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 11), min_size=1, max_size=20), modulus=st.sampled_from((12, 13))
)
def test_match2_labels_agree_with_the_definition(tokens, modulus):
    wanted = [int(any((x + y) % modulus == 0 for y in tokens)) for x in tokens]
    assert match2_labels(torch.tensor([tokens]), modulus).tolist() == [wanted]


def test_match2_is_drawn_as_it_says():
    task = Match2()
    batch = task.sampler("train")(4000, generator())
    assert batch.tokens.shape == (4000, 32)
    assert batch.tokens.min() == 1
    assert batch.tokens.max() == 36
    assert bool(batch.mask.all())
    share_per_sequence = batch.targets.double().mean(dim=1)
    # Easy and hard sequences occur: none matched, and nearly all matched.
    assert share_per_sequence.min() == 0
    assert share_per_sequence.max() > 0.9


def test_about_a_third_of_the_match2_labels_are_ones():
    balance = label_balance(Match2(), num_sequences=5000)
    assert sum(balance) == pytest.approx(1)
    assert balance[1] == pytest.approx(0.35, abs=0.03)
    assert f"1: {label_balance(Match2())[1]:.1%}" in Match2().describe()


@pytest.mark.parametrize("name", task_names())
def test_every_task_keeps_its_contract(name):
    task = get_task(name)
    assert task.name == name
    assert name in task.describe()
    batch = task.sampler("train")(50, generator())
    assert batch.tokens.shape == (50, task.length)
    assert 0 <= batch.tokens.min() <= batch.tokens.max() < task.vocab_size
    counted = batch.targets[batch.mask]
    assert set(counted.unique().tolist()) == set(range(task.num_outputs))


@pytest.mark.parametrize("name", task_names())
def test_a_batch_is_a_function_of_the_generator_alone(name):
    sampler = get_task(name).sampler("test")
    state = torch.random.get_rng_state()
    first, again = sampler(20, generator(3)), sampler(20, generator(3))
    other = sampler(20, generator(4))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(state, torch.random.get_rng_state())
    assert pickle.loads(pickle.dumps(sampler)) == sampler


def examples(task, split, seed):
    batch = task.sampler(split)(3000, generator(seed))
    rows = batch.tokens[:, 1:] if isinstance(task, KHop) and task.mixed else batch.tokens
    return {tuple(sorted(row) if isinstance(task, Match2) else row) for row in rows.tolist()}


# Short sequences, so that the whole space is drawn many times over and a leak would show.
@pytest.mark.parametrize(
    "task", [Match2(length=3, modulus=11), KHop(length=6), KHop(length=7, hops=2, mixed=True)]
)
def test_no_example_is_in_two_splits(task):
    drawn = {split: examples(task, split, seed) for seed, split in enumerate(SPLITS)}
    assert all(len(rows) > 10 for rows in drawn.values())
    assert not drawn["train"] & drawn["test"]
    assert not drawn["train"] & drawn["validation"]
    assert not drawn["validation"] & drawn["test"]


def test_permutations_of_a_match2_sequence_are_in_the_same_split():
    task = Match2()
    tokens = task.sampler("test")(500, generator()).tokens
    permuted = tokens[:, torch.randperm(32, generator=generator())]
    assert torch.equal(task.canonical(tokens), task.canonical(permuted))


def test_the_splits_are_fixed_for_ever():
    # Saved results say "test"; if the hash changed, that word would silently change its meaning.
    tokens = get_task("induction_heads").sampler("test")(2, generator(0)).tokens
    match2 = Match2().sampler("test")(2, generator(0)).tokens
    assert tokens[:, :6].tolist() == INDUCTION_HEADS_START
    assert match2[:, :6].tolist() == MATCH2_START


INDUCTION_HEADS_START = [[3, 1, 0, 2, 3, 2], [3, 0, 2, 1, 3, 0]]
MATCH2_START = [[34, 34, 4, 19, 25, 30], [33, 33, 3, 33, 33, 33]]


def test_letters_never_repeat_at_once_and_are_balanced():
    letters = KHop().draw(500, generator())
    assert bool((letters[:, 1:] != letters[:, :-1]).all())
    shares = torch.bincount(letters.flatten(), minlength=4) / letters.numel()
    assert bool(((shares - 0.25).abs() < 0.01).all())


def test_the_first_token_of_a_mixed_sequence_carries_the_hops():
    task = get_task("k_hop")
    batch = task.sampler("train")(60, generator())
    hops = batch.tokens[:, 0] - 4
    assert set(hops.tolist()) <= set(range(17))
    assert len(set(hops.tolist())) > 10
    assert not bool(batch.mask[:, 0].any())
    assert bool(batch.mask[:, 1:].all())
    assert torch.equal(batch.targets[:, 1:], hop_targets(batch.tokens[:, 1:], hops, 4))


def test_a_curriculum_can_ask_for_fewer_hops():
    task = get_task("2_hop")
    easy = task.sampler("train", hops=1)(10, generator())
    hard = task.sampler("train")(10, generator())
    assert torch.equal(easy.tokens, hard.tokens)
    assert torch.equal(easy.targets, hop_targets(easy.tokens, torch.ones(10).long(), 4))
    assert not torch.equal(easy.targets, hard.targets)


def test_another_length_is_a_replacement():
    task = get_task("induction_heads", length=200)
    assert task == dataclasses.replace(get_task("induction_heads"), length=200)
    assert task.sampler("test")(3, generator()).tokens.shape == (3, 200)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: get_task("match3"), "'match3'; accepted: match2, induction_heads"),
        (lambda: get_task("match2", length=0), "length is 0"),
        (lambda: Match2(modulus=36), "modulus is 36"),
        (lambda: KHop(num_letters=1), "num_letters is 1"),
        (lambda: KHop(length=1, mixed=True), "length is 1"),
        (lambda: Match2().sampler("dev"), "'dev'; accepted: train, validation, test"),
        (lambda: Match2().sampler("test", hops=1), "match2 has no hops"),
        (lambda: get_task("k_hop").sampler("test", hops=17), "hops is 17"),
        (lambda: Match2().sampler("test")(0, generator()), "batch_size is 0"),
    ],
)
def test_bad_input_is_quoted(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("split", SPLITS)
def test_crowded_sequences_have_a_frequent_residue_and_the_same_labels_and_splits(split):
    crowded = dataclasses.replace(Match2(), crowded=True)
    drawn = crowded.sampler(split)(2000, generator()).tokens
    most = torch.stack([(drawn == residue).sum(dim=1) for residue in range(1, 37)]).amax(dim=0)
    usual = Match2().sampler(split)(2000, generator()).tokens
    usual_most = torch.stack([(usual == residue).sum(dim=1) for residue in range(1, 37)]).amax(
        dim=0
    )
    # The share of places taken is uniform, so about half have a residue on half of the places.
    assert 0.45 < (most >= 16).double().mean() < 0.7
    assert (usual_most >= 16).double().mean() < 0.2
    assert 1 <= int(drawn.min()) <= int(drawn.max()) <= 36
    batch = crowded.sampler(split)(50, generator(1))
    assert torch.equal(batch.targets, match2_labels(batch.tokens, 37))
    inside = in_split(crowded.canonical(drawn), split)
    assert bool(inside.all())
