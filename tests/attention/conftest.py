"""Inputs that the tests of this room share."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from anna_attn.attention import anna_attention
from anna_attn.lsh import HashTables, Hyperplane


@dataclass(frozen=True)
class Problem:
    """Tensors and tables that fit each other."""

    query: Tensor
    key: Tensor
    value: Tensor
    tables: HashTables

    def run(self, **options) -> Tensor:
        return anna_attention(self.query, self.key, self.value, self.tables, **options)

    def gradients(self, wrt: list[Tensor], seed: int = 7, **options) -> list[Tensor]:
        """Output, then gradients of a random combination of outputs."""
        output = self.run(**options)
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        grads = torch.autograd.grad(output, wrt, weights.to(output.dtype))
        return [output.detach(), *grads]


@pytest.fixture
def problem():
    """Build a problem; half of the keys are noisy copies of queries, so that buckets are shared."""

    def build(
        num_queries: int,
        num_keys: int,
        *,
        batch: int = 2,
        heads: int = 2,
        kv_heads: int = 2,
        dim: int = 8,
        width: int = 5,
        num_tables: int = 5,
        hashes: int = 4,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> Problem:
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        query, key = randn(batch, heads, num_queries, dim), randn(batch, kv_heads, num_keys, dim)
        shared = min(num_queries, num_keys) // 2
        near = query[:, :: heads // kv_heads, :shared]
        key[:, :, :shared] = near + 0.1 * key[:, :, :shared]
        value = randn(batch, kv_heads, num_keys, width).to(dtype).requires_grad_()
        tables = HashTables(Hyperplane(dim), num_tables, hashes, kv_heads, seed=seed)
        return Problem(query.to(dtype), key.to(dtype), value, tables)

    return build
