"""Protocols by name: input of every size, options, sequential answers, files."""

import networkx as nx
import numpy as np
import pytest

from anna_attn.lab.mpc_runs import sequential
from anna_attn.lab.mpc_runs.cases import draw_graph
from anna_attn.lab.mpc_runs.command import CASES
from anna_attn.lab.mpc_runs.reading import read_words
from anna_attn.mpc import InProcess


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("name", list(CASES))
def test_every_protocol_is_right(name, n):
    problem = CASES[name].problem(None, n, 0.5, {}, seed=1)
    output = InProcess().run(problem.protocol, problem.words).output
    assert problem.wrong(output) == ""
    assert problem.shown(output).shape == output.shape
    again = CASES[name].problem(None, n, 0.5, {}, seed=1)
    assert np.array_equal(problem.words, again.words)


@pytest.mark.parametrize("name", list(CASES))
def test_a_wrong_output_is_noticed(name):
    """The largest word changed; 3-SUM's is one that was not given."""
    words = np.array([1, 5, -6, 40]) if name == "three-sum" else None
    problem = CASES[name].problem(words, 30, 0.5, {}, seed=2)
    output = InProcess().run(problem.protocol, problem.words).output
    output[-1] += 1
    assert problem.wrong(output) not in ("", None)


def test_options_are_used_and_unknown_ones_refused():
    with pytest.raises(ValueError, match="sort has no option --hops; it has: --bits, --algorithm"):
        CASES["sort"].problem(None, 4, 0.5, {"hops": 3}, 0)
    with pytest.raises(ValueError, match="prefix-sum has no option --bits; it has: none"):
        CASES["prefix-sum"].problem(None, 4, 0.5, {"bits": 3}, 0)
    deep = CASES["k-hop"].problem(None, 200, 0.5, {"hops": 30}, 0).protocol
    assert deep.num_rounds > CASES["k-hop"].problem(None, 200, 0.5, {}, 0).protocol.num_rounds
    sample = CASES["sort"].problem(None, 200, 0.5, {"algorithm": "sample"}, 0).protocol
    assert sample.num_rounds != CASES["sort"].problem(None, 200, 0.5, {}, 0).protocol.num_rounds
    with pytest.raises(ValueError, match="algorithm must be"):
        CASES["sort"].problem(None, 200, 0.5, {"algorithm": "bogo"}, 0)
    causal = CASES["anna-attention"].problem(None, 20, 0.5, {"causal": True}, 0)
    full = CASES["anna-attention"].problem(None, 20, 0.5, {}, 0)
    outputs = [InProcess().run(p.protocol, p.words).output for p in (causal, full)]
    assert not np.array_equal(*outputs)


def test_given_words():
    problem = CASES["three-sum"].problem(np.array([-5, 2, 9, 3]), 4, 0.5, {"target": 0}, 0)
    output = InProcess().run(problem.protocol, problem.words).output
    assert problem.shown(output).tolist() == [1, -5, 2, 3]
    problem = CASES["connectivity"].problem(np.array([0, 1, 4, 5]), 4, 0.5, {}, 0)
    assert InProcess().run(problem.protocol, problem.words).output.tolist() == [0, 0, 2, 3, 4, 4]
    with pytest.raises(ValueError, match="edges are pairs of vertices, got 3 words"):
        CASES["connectivity"].problem(np.arange(3), 3, 0.5, {}, 0)
    with pytest.raises(ValueError, match="a token has 12 words, got 13 words"):
        CASES["low-rank-attention"].problem(np.arange(13), 13, 0.5, {}, 0)


def test_graphs():
    generator = np.random.default_rng(0)
    expected = {"path": 1, "star": 1, "cycle": 1, "two-cycles": 2}
    for kind, parts in expected.items():
        graph = nx.Graph(draw_graph(kind, 60, 0, generator).tolist())
        assert nx.number_connected_components(graph) == parts
        assert graph.number_of_nodes() == 60
    star = draw_graph("star", 60, 0, generator)
    assert np.bincount(star.reshape(-1)).max() == 59
    with pytest.raises(ValueError, match="graph is 'tree'; accepted: random, path"):
        draw_graph("tree", 60, 0, generator)


@pytest.mark.parametrize("seed", range(5))
def test_sequential_answers(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 40))
    edges = generator.integers(0, n, (n, 2))
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges.tolist())
    parts = sequential.components(n, edges)
    for component in nx.connected_components(graph):
        assert {int(parts[v]) for v in component} == {min(component)}
    words = generator.integers(0, 4, n)
    last, answer = {}, []
    for i, word in enumerate(words.tolist()):
        answer.append(int(words[last[word] + 1]) if word in last else 9)
        last[word] = i
    assert sequential.hop_answers(words, 1, 9).tolist() == answer
    residues = generator.integers(0, 30, n)
    pairs = [int(any((x + y) % 30 == 0 for y in residues)) for x in residues]
    assert sequential.match2(residues, 30).tolist() == pairs
    small = generator.integers(-9, 10, n)
    sums = {
        int(small[i] + small[j] + small[k])
        for i in range(n) for j in range(i) for k in range(j)
    }  # fmt: skip
    for target in range(-28, 29):
        assert sequential.has_three_sum(small, target) == (target in sums)


def test_text_and_arrays(tmp_path):
    text = tmp_path / "words.txt"
    text.write_text("# edges\n0 1\n2,3  # more\n\n-4\n")
    assert read_words(text).tolist() == [0, 1, 2, 3, -4]
    array = tmp_path / "words.npy"
    np.save(array, np.array([[1, 2], [3, 4]], dtype=np.uint8))
    assert read_words(array).tolist() == [1, 2, 3, 4]
    assert read_words(array).dtype == np.int64


def test_files_that_cannot_be_read(tmp_path):
    text = tmp_path / "words.txt"
    text.write_text("1 2\n3 four")
    with pytest.raises(ValueError, match="line 2: 'four' is no integer"):
        read_words(text)
    text.write_text(f"{2**70}")
    with pytest.raises(ValueError, match="must fit in 64 bits"):
        read_words(text)
    array = tmp_path / "words.npy"
    np.save(array, np.ones(3))
    with pytest.raises(ValueError, match="holds float64; accepted: integers"):
        read_words(array)
    array.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"is no \.npy file"):
        read_words(array)
    with pytest.raises(FileNotFoundError):
        read_words(tmp_path / "missing.txt")
