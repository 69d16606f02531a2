"""Every protocol on 20,000 words, random and adversarial, on both engines."""

import networkx as nx
import numpy as np
import pytest

from anna_attn.mpc import Hostile, InProcess
from anna_attn.mpc.protocols import (
    AttentionShape,
    anna_attention,
    connectivity,
    k_hop,
    list_ranking,
    low_rank_attention,
    match2,
    prefix_sum,
    sort,
    three_sum,
)

N = 20_000
EXPONENTS = [1 / 3, 1 / 2, 2 / 3]
ENGINES = {"in_process": InProcess(), "hostile": Hostile(seed=2)}
KINDS = ["random", "equal", "sorted", "reversed", "two"]


@pytest.fixture(params=list(ENGINES))
def engine(request):
    return ENGINES[request.param]


def check(engine, protocol, words, expected):
    result = engine.run(protocol, words)
    assert np.array_equal(result.output, expected.reshape(-1))
    trace = result.trace
    assert trace.num_rounds <= protocol.num_rounds
    assert max(trace.peak_memory_words, trace.peak_message_words) <= protocol.local_memory


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_words(engine, given, hop_reference, kind, eps):
    words = given(N, 1000)[kind]
    check(engine, sort(N, eps, word_bits=10), words, np.sort(words))
    check(engine, prefix_sum(N, eps), words, np.cumsum(words))
    residues = np.isin((1000 - words) % 1000, words).astype(np.int64)
    check(engine, match2(N, eps, modulus=1000), words, residues)
    protocol = k_hop(N, eps, num_symbols=1000, hops=5)
    check(engine, protocol, words, hop_reference(words, 5, 1000))


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("algorithm", ["radix", "sample"])
def test_wide_words(engine, eps, algorithm):
    words = np.random.default_rng(0).integers(0, 1 << 61, N)
    if algorithm == "radix" and (eps < 1 / 2 or isinstance(engine, Hostile)):
        words >>= 31  # Passes grow with the bits.
    bits = 61 if words.max() >= 1 << 30 else 30
    check(engine, sort(N, eps, word_bits=bits, algorithm=algorithm), words, np.sort(words))


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("order", ["random", "in order", "backwards"])
def test_lists(engine, eps, order):
    nodes = np.random.default_rng(0).permutation(N) if order == "random" else np.arange(N)
    nodes = nodes[::-1] if order == "backwards" else nodes
    successor, distance = np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64)
    successor[nodes[:-1]] = nodes[1:] + 1
    distance[nodes] = np.arange(N)[::-1]
    check(engine, list_ranking(N, eps), successor, distance)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("codes", ["random", "one bucket"])
def test_anna_attention(engine, codes, is_causal):
    """In closed form: values are those of a bucket's mean, whole or so far."""
    generator = np.random.default_rng(0)
    shape = AttentionShape(num_heads=1, num_tables=1, code_bits=6, value_dim=1, value_bits=8)
    key = generator.integers(0, 64, N) if codes == "random" else np.full(N, 63)
    value = generator.integers(0, 256, N)
    expected = np.zeros(N, dtype=np.int64)
    for code in range(64):
        mine = np.flatnonzero(key == code)
        sums, counts = np.cumsum(value[mine]), np.arange(1, len(mine) + 1)
        if len(mine) and not is_causal:
            sums, counts = sums[-1:], counts[-1:]
        expected[mine] = sums // counts
    words = np.stack([key, key, value], 1).reshape(-1)
    check(engine, anna_attention(N, 20, shape, is_causal=is_causal), words, expected)


@pytest.mark.parametrize("per_machine", [10, 141])
def test_low_rank_attention(engine, per_machine):
    query, key, value = np.random.default_rng(0).integers(0, 256, (3, N, 3))
    protocol = low_rank_attention(
        N, per_machine, rank=3, value_dim=3, feature_bits=8, value_bits=8, fan_in=4
    )
    words = np.concatenate([query, key, value], 1).reshape(-1)
    check(engine, protocol, words, query @ (key.T @ value))


@pytest.mark.parametrize("shape", ["star", "path", "random"])
@pytest.mark.parametrize("eps", [1 / 2, pytest.param(1 / 3, marks=pytest.mark.slow)])
def test_connectivity_on_a_hostile_engine(shape, eps):
    generator = np.random.default_rng(0)
    names = generator.permutation(N)
    edges = {
        "star": np.stack([np.full(N - 1, names[0]), names[1:]], 1),
        "path": np.stack([names[1:], names[:-1]], 1),
        "random": generator.integers(0, N, (N // 2, 2)),
    }[shape]
    graph = nx.empty_graph(N)
    graph.add_edges_from(edges.tolist())
    least = np.zeros(N, dtype=np.int64)
    for component in nx.connected_components(graph):
        least[list(component)] = min(component)
    check(Hostile(seed=2), connectivity(N, len(edges), eps), edges.reshape(-1), least)


@pytest.mark.slow
@pytest.mark.parametrize("eps", [1 / 2, 2 / 3])
def test_three_sum_on_a_hostile_engine(eps):
    words = 3 * np.random.default_rng(0).integers(10, 1 << 29, N) + 1
    words[[5, 100, N - 1]] = [2, 10, 4]
    protocol = three_sum(N, eps, target=16)
    check(Hostile(seed=2), protocol, words, np.array([1, 2, 4, 10]))
