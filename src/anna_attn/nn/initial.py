"""Initial weights from explicit generators: the global random state is not touched.

Modules are made on the meta device first, where torch's own initialisation draws nothing.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def seeded(seed: int) -> torch.Generator:
    """A CPU generator of its own."""
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def linear(inputs: int, outputs: int, bias: bool, generator: torch.Generator) -> nn.Linear:
    """Linear layer with weights and bias uniform in +-1/sqrt(inputs), torch's own scale."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    bound = 1.0 / math.sqrt(inputs)
    layer.weight.uniform_(-bound, bound, generator=generator)
    if bias:
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


@torch.no_grad()
def embedding(rows: int, width: int, generator: torch.Generator) -> nn.Embedding:
    """Embedding with standard normal rows."""
    layer = nn.Embedding(rows, width, device="meta").to_empty(device="cpu")
    layer.weight.normal_(generator=generator)
    return layer
