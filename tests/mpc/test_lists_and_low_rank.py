"""List ranking, and low-rank attention."""

import numpy as np
import pytest

from anna_attn.mpc import InDegreeExceeded, InProcess
from anna_attn.mpc.protocols import list_ranking, low_rank_attention


def lists(num_nodes, num_lists, seed):
    """Successors + 1 of nodes in lists of random order, and their distances to the ends."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(num_nodes)
    cuts = np.sort(generator.integers(0, num_nodes + 1, num_lists - 1)) if num_lists > 1 else []
    successor, distance = np.zeros(num_nodes, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64)
    for part in np.split(order, cuts):
        successor[part[:-1]] = part[1:] + 1
        distance[part] = np.arange(len(part))[::-1]
    return successor, distance


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
@pytest.mark.parametrize("num_nodes", [0, 1, 2, 5, 64, 500])
@pytest.mark.parametrize("num_lists", [1, 4, 400])
def test_list_ranking(engine, num_nodes, eps, num_lists):
    successor, distance = lists(num_nodes, num_lists, seed=num_nodes)
    protocol = list_ranking(num_nodes, eps)
    result = engine.run(protocol, successor)
    assert np.array_equal(result.output, distance)
    assert result.trace.num_rounds == 2 * max(0, num_nodes - 1).bit_length()


def test_lists_in_order_backwards_and_of_twenty_thousand():
    forwards = np.append(np.arange(2, 301), 0)
    for successor, distance in (
        (forwards, np.arange(300)[::-1]),
        (np.arange(300), np.arange(300)),
        lists(20_000, 3, seed=0),
    ):
        result = InProcess().run(list_ranking(len(successor), 0.5), successor)
        assert np.array_equal(result.output, distance)


def test_what_is_no_list_is_refused():
    with pytest.raises(InDegreeExceeded):
        InProcess().run(list_ranking(64, 0.5), np.ones(64, dtype=int))
    with pytest.raises(ValueError, match="node 2 never reaches an end"):
        InProcess().run(list_ranking(5, 0.5), np.array([2, 0, 4, 3, 0]))
    with pytest.raises(ValueError, match=r"successors must lie in 0\.\.3, got 4"):
        InProcess().run(list_ranking(3, 0.5), np.array([0, 1, 4]))


@pytest.mark.parametrize("num_tokens", [0, 1, 7, 100])
@pytest.mark.parametrize(("per_machine", "fan_in"), [(1, 2), (4, 3), (200, 5)])
def test_low_rank_attention(engine, num_tokens, per_machine, fan_in):
    generator = np.random.default_rng(num_tokens)
    query, key = generator.integers(0, 64, (2, num_tokens, 3))
    value = generator.integers(0, 256, (num_tokens, 5))
    protocol = low_rank_attention(
        num_tokens, per_machine, rank=3, value_dim=5, feature_bits=6, value_bits=8, fan_in=fan_in
    )
    result = engine.run(protocol, np.concatenate([query, key, value], 1).reshape(-1))
    expected = query @ (key.T @ value)
    assert np.array_equal(result.output.reshape(expected.shape), expected)
    assert result.trace.num_rounds == protocol.num_rounds


def test_low_rank_attention_refuses():
    sizes = {"rank": 3, "value_dim": 5, "feature_bits": 6, "value_bits": 8}
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        low_rank_attention(4, 1, **{**sizes, "rank": 0})
    with pytest.raises(ValueError, match="sums need 65 bits: features of 6, values of 48"):
        low_rank_attention(4, 1, **{**sizes, "value_bits": 48})
