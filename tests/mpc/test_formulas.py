"""Rounds by the formulas of docstrings and of the page, worked out here from N and eps alone."""

import math

import numpy as np
import pytest

from anna_attn.mpc import Budget, InProcess
from anna_attn.mpc.protocols import (
    AttentionShape,
    SoftmaxShape,
    anna_attention,
    connectivity,
    induction_heads,
    k_hop,
    list_ranking,
    low_rank_attention,
    match2,
    prefix_sum,
    softmax_attention,
    sort,
    three_sum,
)
from anna_attn.mpc.protocols.connectivity import num_phases

SIZES = [0, 1, 2, 5, 63, 64, 500, 4096]
EXPONENTS = [1 / 3, 1 / 2, 2 / 3]


def levels(machines, fan_in):
    """ceil(log_f P), in integers."""
    count = 0
    while fan_in**count < machines:
        count += 1
    return count


class Plan:
    """c items on each of P machines, trees of fan-in f, digits of b bits; f, 2^b about sqrt c."""

    def __init__(self, num_items, eps, per_machine=None):
        self.c = per_machine or max(4, math.ceil(max(num_items, 1) ** eps))
        self.machines = max(1, math.ceil(num_items / self.c))
        self.root = math.isqrt(self.c)
        self.levels = levels(self.machines, max(2, self.root))
        self.bits = max(1, math.floor(math.log2(self.root)))

    def sort(self, bits):
        return math.ceil(bits / self.bits) * (2 * self.levels + 1)

    def join(self, bits):
        return self.sort(bits) + 2 * self.levels + 2


def words(protocol, high=4, seed=0):
    return np.random.default_rng(seed).integers(0, high, protocol.num_words)


def check(protocol, rounds, given=None):
    assert protocol.num_rounds == rounds
    trace = InProcess().run(protocol, words(protocol) if given is None else given).trace
    assert trace.num_rounds == rounds
    assert trace.peak_memory_words <= protocol.local_memory
    assert trace.peak_message_words <= protocol.local_memory
    for step in trace.steps:
        if step.round_index is not None:
            assert max(step.sent_words, step.received_words) <= protocol.local_memory
        assert step.memory_words <= protocol.local_memory


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("n", SIZES)
def test_words(n, eps):
    plan = Plan(n, eps)
    check(prefix_sum(n, eps), 2 * plan.levels)
    check(sort(n, eps, word_bits=20), plan.sort(20))
    check(list_ranking(n, eps), 2 * max(0, n - 1).bit_length(), np.zeros(n, dtype=int))
    for symbols in (1, 4, 1000):
        sigma = 3 + plan.sort(max(1, math.ceil(math.log2(symbols))))
        check(induction_heads(n, eps, num_symbols=symbols), sigma, np.zeros(n, dtype=int))
    sigma = 3 + plan.sort(2)
    for hops in (2, 3, 8, 100):
        further = 2 * math.floor(math.log2(hops)) + 2 * (hops & (hops - 1) > 0)
        assert further <= 2 * hops.bit_length()
        check(k_hop(n, eps, num_symbols=4, hops=hops), sigma + further)


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("n", SIZES)
def test_joins(n, eps):
    both = Plan(2 * n, eps, 2 * Plan(n, eps).c)
    check(match2(n, eps, modulus=1000), both.join(math.floor(math.log2(2000)) + 1))


@pytest.mark.parametrize("per_machine", [1, 3, 16])
@pytest.mark.parametrize("n", SIZES[:-1])
def test_attention(n, per_machine):
    shape = AttentionShape(num_heads=2, num_tables=3, code_bits=5, value_dim=2, value_bits=4)
    items = Plan(n * 12, 0.5, per_machine * 12)
    check(anna_attention(n, per_machine, shape), items.join(3 + 5 + 1))
    blocks = max(1, math.ceil(n / per_machine))
    for fan_in in (2, 5):
        low = low_rank_attention(
            n, per_machine, rank=2, value_dim=3, feature_bits=4, value_bits=4, fan_in=fan_in
        )
        check(low, 2 * levels(blocks, fan_in))
        soft = SoftmaxShape(1, 2, 2, input_bits=4, value_bits=4, weight_bits=8, scale=0.1)
        if blocks <= 64:
            protocol = softmax_attention(n, per_machine, soft, fan_in=fan_in)
            check(protocol, 5 * levels(blocks, min(fan_in, max(2, blocks))) + 2)


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 63, 500])
def test_three_sum(n, eps):
    block = 2 * max(4, math.ceil(max(n, 1) ** eps))
    blocks = max(1, math.ceil(n / block))
    machines = blocks * (blocks + 1) // 2
    sorting = Plan(n, eps, block).sort(32)
    items = Plan(4 * block * machines, eps, 4 * block)
    reading = items.sort(n.bit_length() or 1) + 2 * items.levels + 2
    searches, left = 0, blocks
    while left > 0:
        left = math.ceil(left / (block + 1)) - 1
        searches += 1
    assert searches <= math.ceil(math.log(blocks + 1, block + 1)) + 1
    rounds = sorting + (searches + 1) * reading + items.levels
    check(three_sum(n, eps, target=5), rounds)


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("n", [1, 2, 5, 63, 500])
def test_connectivity(n, eps):
    """At most the phases of the formula, each of as many rounds; fewer when no edge is left."""
    protocol = connectivity(n, 2 * n, eps)
    edges = np.random.default_rng(n).integers(0, n, 4 * n)
    trace = InProcess().run(protocol, edges).trace
    phases = sum(step.name.endswith(": decide") for step in trace.steps)
    rounds = [step.round_index for step in trace.steps if step.round_index is not None]
    assert rounds == list(range(trace.num_rounds))
    in_phase_0 = sum(step.name.startswith("phase 0:") for step in trace.steps if step.round_index
                     is not None)  # fmt: skip
    last = trace.num_rounds - phases * in_phase_0
    assert 0 < last <= max(in_phase_0, 10)
    assert phases <= num_phases(n) == min(n - 1, math.ceil(math.log(n * 1e9, 4 / 3)))
    assert protocol.num_rounds == num_phases(n) * in_phase_0 + last


@pytest.mark.parametrize(("eps", "most"), [(1 / 3, 80), (1 / 2, 36), (2 / 3, 22)])
def test_a_phase_of_connectivity_has_constant_rounds(eps, most):
    """Of one phase: those of two vertices more than of one, over the phases more."""
    for doublings in range(4, 41, 4):
        n = 2**doublings
        protocol = connectivity(n, n, eps)
        assert protocol.num_rounds <= most * (num_phases(n) + 1)


# gamma and the factor on N^eps words that holds from N = 2^10 to 2^30, eps = 1/3, 1/2 and 2/3.
BUDGETS = {
    "prefix_sum": (lambda n, eps: prefix_sum(n, eps), 0.0, 13),
    "sort": (lambda n, eps: sort(n, eps), 0.0, 8),
    "sample sort": (lambda n, eps: sort(n, eps, algorithm="sample"), 0.0, 30),
    "list_ranking": (lambda n, eps: list_ranking(n, eps), 0.0, 5),
    "match2": (lambda n, eps: match2(n, eps, modulus=1000), 0.0, 24),
    "k_hop": (lambda n, eps: k_hop(n, eps, num_symbols=4, hops=9), 0.0, 12),
    "connectivity": (lambda n, eps: connectivity(n, n // 2, eps), 0.0, 40),
    "three_sum": (lambda n, eps: three_sum(n, eps, target=0), None, 80),
}


@pytest.mark.parametrize("eps", EXPONENTS)
@pytest.mark.parametrize("name", list(BUDGETS))
def test_machines_and_memory_are_within_the_definition(name, eps):
    """Definition 2.3: O(N^eps) words on each of O(N^(1 + gamma - eps)) machines."""
    make, gamma, factor = BUDGETS[name]
    # 3-SUM takes N^(2 - 2 eps) machines.
    gamma = max(0.0, 1 - eps) if gamma is None else gamma
    for doublings in range(10, 31, 4):
        n = 2**doublings
        budget = Budget.from_exponents(
            n, eps, gamma, memory_factor=factor, machine_factor=2, word_bits=62
        )
        budget.check(make(n, eps))
