"""Inputs and answers that the tests of this room share."""

import numpy as np
import pytest

from anna_attn.mpc import Hostile, InProcess

ENGINES = {"in_process": InProcess(check_locality=True), "hostile": Hostile(seed=1)}


@pytest.fixture(params=list(ENGINES))
def engine(request):
    return ENGINES[request.param]


def adversarial(num_words, high, seed=0):
    """Name -> words in [0, high)."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, high, num_words)
    return {
        "random": drawn,
        "equal": np.full(num_words, high - 1),
        "sorted": np.sort(drawn),
        "reversed": np.sort(drawn)[::-1].copy(),
        "two": drawn % 2 * (high - 1),
    }


def hop_answers(words, hops, blank):
    """w at sigma^k(i), by walking."""
    last, sigma = {}, np.zeros(len(words) + 1, dtype=np.int64)
    for i, word in enumerate(words, start=1):
        sigma[i] = last.get(word, -1) + 1
        last[word] = i
    place = np.arange(len(words) + 1)
    for _ in range(hops):
        place = sigma[place]
    return np.concatenate([[blank], words])[place[1:]]


@pytest.fixture
def given():
    """Words of every kind."""
    return adversarial


@pytest.fixture
def hop_reference():
    """The sequential answer of `k_hop`."""
    return hop_answers
