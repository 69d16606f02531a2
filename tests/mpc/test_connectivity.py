"""Components against networkx, on graphs that are hard on one machine or take many phases."""

import networkx as nx
import numpy as np
import pytest

from anna_attn.mpc import InProcess
from anna_attn.mpc.protocols import connectivity, cycles
from anna_attn.mpc.protocols.connectivity import _Order, num_phases


def least_vertices(num_vertices, edges):
    graph = nx.empty_graph(num_vertices)
    graph.add_edges_from(edges.tolist())
    least = np.zeros(num_vertices, dtype=np.int64)
    for component in nx.connected_components(graph):
        least[list(component)] = min(component)
    return least


def check(engine, num_vertices, edges, eps, seed=0):
    protocol = connectivity(num_vertices, len(edges), eps, seed=seed)
    result = engine.run(protocol, edges.reshape(-1))
    assert np.array_equal(result.output, least_vertices(num_vertices, edges))
    trace = result.trace
    assert trace.num_rounds <= protocol.num_rounds
    assert trace.peak_memory_words <= protocol.local_memory
    assert trace.peak_message_words <= protocol.local_memory
    return trace


def array(pairs):
    return np.array(list(pairs), dtype=np.int64).reshape(-1, 2)


def graphs(n, seed=0):
    """Name -> edges on n vertices."""
    generator = np.random.default_rng(seed)
    sparse = generator.integers(0, n, (n, 2))
    names = generator.permutation(n)
    return {
        "no edges": array([]),
        "sparse": sparse,
        "many components": sparse[: n // 3],
        "duplicated": np.concatenate([sparse[: n // 2], sparse[: n // 2, ::-1]]),
        "loops": np.stack([names, names], 1),
        "star": array((0, i) for i in range(1, n)),
        "path in order": array((i, i + 1) for i in range(n - 1)),
        "path": np.stack([names[1:], names[:-1]], 1),
        "clique": array(nx.complete_graph(min(n, 40)).edges),
        "pairs": names[: n // 2 * 2].reshape(-1, 2),
        "caterpillar": array((i, i // 2 if i % 2 else max(i - 2, 0)) for i in range(n)),
        "one cycle": cycles(n, 1, generator),
    }


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
@pytest.mark.parametrize("num_vertices", [1, 2, 3, 7, 64])
def test_components(engine, num_vertices, eps):
    for edges in graphs(num_vertices).values():
        check(engine, num_vertices, edges, eps)


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
def test_nothing_at_all(engine, eps):
    check(engine, 0, array([]), eps)


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
def test_twenty_thousand_vertices(eps):
    wanted = ("sparse", "star", "path")
    for name, edges in graphs(20_000, seed=1).items():
        if name in wanted:
            check(InProcess(), 20_000, edges, eps)


def test_many_edges_on_few_vertices():
    edges = np.random.default_rng(0).integers(0, 30, (20_000, 2))
    check(InProcess(), 30, edges, 1 / 2)


@pytest.mark.parametrize("num_cycles", [1, 2])
def test_one_cycle_or_two(num_cycles):
    edges = cycles(1001, num_cycles, np.random.default_rng(5))
    assert set(np.bincount(edges.reshape(-1)).tolist()) == {2}
    assert len(set(least_vertices(1001, edges).tolist())) == num_cycles
    check(InProcess(), 1001, edges, 1 / 2)


def test_phases_grow_with_the_logarithm():
    """Rounds of a fixed number of phases do not grow; phases on a cycle are about log2 N."""
    doublings, phases = np.arange(6, 15, 2), []
    for d in doublings.tolist():
        counts = []
        for seed in range(3):
            edges = cycles(2**d, 1, np.random.default_rng(seed))
            protocol = connectivity(2**d, 2**d, 1 / 2, seed=seed)
            steps = InProcess().run(protocol, edges.reshape(-1)).trace.steps
            counts.append(sum(step.name.endswith(": decide") for step in steps))
        phases.append(np.mean(counts))
    slope, _ = np.polyfit(doublings, phases, 1)
    # Half of the names are left on a cycle; 3/4, the bound for any graph, would be a slope of 2.4.
    assert 0.7 <= slope <= 1.3
    assert max(phases) < num_phases(2**14) / 2


def test_names_left_in_the_mean():
    """At most 3/4 in a phase, whatever the graph."""
    for edges in graphs(1000).values():
        graph = nx.Graph(edges[edges[:, 0] != edges[:, 1]].tolist())
        if not len(graph):
            continue
        shares = []
        for phase in range(40):
            order = _Order.drawn(10, 3, phase)
            rank = {v: int(order.rank(np.array(v))) for v in graph}
            left = {min(rank[u] for u in (v, *graph[v])) for v in graph}
            shares.append(len(left) / len(graph))
        # Some graphs reach 1/2; the mean of 40 draws is well within 0.05 of its expectation.
        assert np.mean(shares) <= 0.75 + 0.05


@pytest.mark.parametrize("bits", [1, 2, 3, 9, 20])
def test_orders_are_bijections(bits):
    order = _Order.drawn(bits, 0, 1)
    names = np.arange(1 << bits)
    ranks = order.rank(names)
    assert np.array_equal(np.sort(ranks), names)
    assert np.array_equal(order.name(ranks), names)


def test_what_is_no_graph_is_refused():
    with pytest.raises(ValueError, match="must be >= 0, got -1, 3"):
        connectivity(-1, 3, 0.5)
    with pytest.raises(ValueError, match="2 edges need vertices"):
        connectivity(0, 2, 0.5)
    with pytest.raises(ValueError, match=r"vertices must lie in \[0, 4\), got 4"):
        InProcess().run(connectivity(4, 1, 0.5), np.array([0, 4]))
    with pytest.raises(ValueError, match=r"num_cycles must lie in 1\.\.3 .*got 4"):
        cycles(3, 4, np.random.default_rng(0))


def test_running_out_of_phases_is_an_error(monkeypatch):
    module = __import__("anna_attn.mpc.protocols.connectivity", fromlist=["num_phases"])
    monkeypatch.setattr(module, "num_phases", lambda num_vertices: 1)
    edges = cycles(64, 1, np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="edges are left after the last phase"):
        InProcess().run(connectivity(64, 64, 0.5), edges.reshape(-1))
