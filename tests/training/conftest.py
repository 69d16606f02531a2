"""A model of a few hundred weights with hash tables of its own, and a task it can learn.

It stands in for AnnaTransformer where only the loop is under test: 1 ms a step.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest
import torch
from torch import nn

from anna_attn.nn import Hard, StraightThrough
from anna_attn.training import Batch, EarlyStop, Stage, TrainConfig


@dataclass(frozen=True)
class TinyConfig:
    vocab_size: int = 12
    width: int = 8
    seed: int = 0

    def to_dict(self):
        return asdict(self)


class TinyModel(nn.Module):
    """Logits from an embedding and the signs of random projections of it."""

    def __init__(self, config: TinyConfig):
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        self.embedding = nn.Parameter(
            torch.randn(config.vocab_size, config.width, generator=generator)
        )
        self.readout = nn.Parameter(torch.randn(2 * config.width, 2, generator=generator) * 0.1)
        self.register_buffer("tables", torch.zeros(config.width, config.width))
        self.redraw(config.seed)

    def redraw(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tables.copy_(torch.randn(self.tables.shape, generator=generator))

    def forward(self, tokens, *, key_mask=None, mechanism=None):
        assert isinstance(mechanism, Hard | StraightThrough)
        x = self.embedding[tokens]
        projected = x @ self.tables
        soft = torch.tanh(projected)
        codes = soft + (torch.sign(projected) - soft).detach()
        return torch.cat([x, codes], dim=-1) @ self.readout


def sample_parity(batch_size, generator):
    """Is the token odd? Asked at about half of the positions, the first always."""
    tokens = torch.randint(0, 12, (batch_size, 6), generator=generator)
    mask = torch.rand(tokens.shape, generator=generator) < 0.5
    mask[:, 0] = True
    return Batch(tokens, tokens % 2, mask)


def make_stages(steps=12, fixed_steps=8, early_stop=None):
    return (
        Stage(
            name="fresh",
            steps=steps,
            mechanism=lambda progress: StraightThrough(1.0 + progress),
            learning_rate=0.05,
            fresh_hashes=True,
            early_stop=early_stop,
        ),
        Stage(
            name="fixed",
            steps=fixed_steps,
            mechanism=lambda progress: StraightThrough(2.0),
            learning_rate=0.02,
            fresh_hashes=False,
        ),
    )


def make_config(**changes):
    settings = {
        "seed": 3,
        "batch_size": 8,
        "warmup_steps": 3,
        "checkpoint_every": 5,
        "log_every": 2,
        "validate_every": 4,
        "validation_batches": 2,
    }
    return TrainConfig(**{**settings, **changes})


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


class TinyWorld:
    """What the tests of this room share."""

    Config = TinyConfig
    EarlyStop = EarlyStop
    sampler = staticmethod(sample_parity)
    stages = staticmethod(make_stages)
    config = staticmethod(make_config)
    weights = staticmethod(weights)
    assert_same_weights = staticmethod(assert_same_weights)

    @staticmethod
    def model(seed=0):
        return TinyModel(TinyConfig(seed=seed))

    @staticmethod
    def interrupting_sampler(after, error=KeyboardInterrupt):
        """The sampler, which raises instead of drawing its batch number `after` (from 0)."""
        calls = iter(range(10**9))

        def sampler(batch_size, generator):
            if next(calls) == after:
                raise error
            return sample_parity(batch_size, generator)

        return sampler


@pytest.fixture
def tiny():
    return TinyWorld


@pytest.fixture(autouse=True)
def global_rng_untouched():
    """No test of this room may move torch's global random state."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
