"""Multi-head ANNA attention as a module: projections, rotations, hash tables, mechanism."""

from __future__ import annotations

import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anna_attn.attention import anna_attention, softmax_attention
from anna_attn.attention.surrogate import expected_attention, straight_through_attention
from anna_attn.lsh import HashTables

from .config import AttentionConfig, Rotary, ValueRotary, table_seed, weight_seed
from .initial import linear, seeded
from .mechanisms import Expected, Hard, Mechanism, Softmax, StraightThrough
from .rotary import Rotation


class Attend(Protocol):
    """What a module asks of the hard operator, so that a distributed one can take its place."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tables: HashTables,
        *,
        is_causal: bool,
        key_mask: Tensor | None,
        enable_gqa: bool,
        decay: Tensor | None,
    ) -> Tensor:
        """As `anna_attention`."""
        ...


class AnnaAttention(nn.Module):
    """ANNA attention layer: H heads of projections, hashing and averaging, joined by one matrix.

    out = concat_h A_h(Q_h, K_h, V_h) W_o, with Q_h, K_h unit-norm rows of x W_q + b_q, x W_k + b_k
    (rotated by position first where configured) and A_h the mechanism: the hard operator, or the
    softmax, expected or straight-through stand-in.

    Args:
        config: heads, tables, mechanism, rotations, initial values.
        width: of the input and output rows.
        seed: of the initial weights. tables_seed: of the hash tables; None = derived from `seed`.
        attend: the hard operator; a distributed one of the same form may be given.
    Attributes: tables: the layer's `HashTables`, one set of functions per key head.
    Cost: hard: O(B H T (L Z D + L Dv)); the stand-ins: O(B H T^2 (D + Dv)).
    Source: Liu et al. 2025 (arXiv:2509.09001), Definition 2.1 with section 3.2's tables. Rotary
        values, learned decay and head_norm are additions, off by default.
    """

    def __init__(
        self,
        config: AttentionConfig,
        width: int,
        *,
        seed: int = 0,
        tables_seed: int | None = None,
        attend: Attend = anna_attention,
    ):
        super().__init__()
        self.config = config
        self.attend = attend
        generator = seeded(weight_seed(seed, 0))
        heads, kv_heads = config.num_heads, config.key_heads
        self.query = linear(width, heads * config.head_dim, config.query_bias, generator)
        self.key = linear(width, kv_heads * config.head_dim, config.key_bias, generator)
        self.value = linear(width, kv_heads * config.output_dim, config.value_bias, generator)
        self.output = linear(heads * config.output_dim, width, config.output_bias, generator)
        for projection in (self.query, self.key):
            _start_projection(projection, config, generator)
        self.rotary = _rotation(config.rotary, config)
        self.value_rotary = _rotation(config.value_rotary, config)
        self.log_decay = _log_decay(config)
        self.tables = HashTables(
            config.hash_family(),
            config.num_tables,
            config.hashes_per_table,
            num_heads=kv_heads,
            seed=table_seed(seed, 0) if tables_seed is None else tables_seed,
        )

    def forward(
        self,
        x: Tensor,
        *,
        is_causal: bool = False,
        key_mask: Tensor | None = None,
        mechanism: Mechanism | None = None,
    ) -> Tensor:
        """Attend over a sequence.

        Args:
            x: (B, T, width).
            is_causal: token i sees tokens j <= i.
            key_mask: (B, T) bool, True = may be attended.
            mechanism: overrides the configured one for this call.
        Returns: (B, T, width).
        Raises: ValueError on a wrong shape, or decay without is_causal; TypeError on a mechanism
            that is none.
        """
        if x.dim() != 3 or x.shape[-1] != self.query.in_features:
            raise ValueError(f"x must be (B, T, {self.query.in_features}), got {tuple(x.shape)}")
        query, key = self.queries_and_keys(x)
        value = self._heads(self.value(x), self.config.key_heads)
        angles = None
        if self.value_rotary is not None:
            angles = self.value_rotary.angles(x.shape[1])
            value = self.value_rotary(value, angles)
        mechanism = self.config.default_mechanism() if mechanism is None else mechanism
        out = self._aggregate(query, key, value, is_causal, key_mask, mechanism)
        if self.value_rotary is not None and angles is not None:
            out = self.value_rotary(out, angles, backwards=True)
        if self.config.head_norm:
            out = F.rms_norm(out, out.shape[-1:], eps=1e-6)
        return self.output(out.transpose(1, 2).flatten(2))

    def queries_and_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Unit-norm, rotated query (B, H, T, D) and key (B, Hkv, T, D) rows of x (B, T, width)."""
        query = self._heads(self.query(x), self.config.num_heads)
        key = self._heads(self.key(x), self.config.key_heads)
        if self.rotary is not None:
            angles = self.rotary.angles(x.shape[1])
            query, key = self.rotary(query, angles), self.rotary(key, angles)
        return _unit(query), _unit(key)

    @property
    def decay(self) -> Tensor | None:
        """(H,) positive recency decay per token, or None."""
        return None if self.log_decay is None else self.log_decay.exp()

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def _aggregate(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        is_causal: bool,
        key_mask: Tensor | None,
        mechanism: Mechanism,
    ) -> Tensor:
        decay = self.decay
        if decay is not None and not is_causal:
            raise ValueError("a layer with decay needs is_causal=True, got False")
        groups = self.config.num_heads // self.config.key_heads
        if isinstance(mechanism, Hard):
            return self.attend(
                query,
                key,
                value,
                self.tables,
                is_causal=is_causal,
                key_mask=key_mask,
                enable_gqa=groups > 1,
                decay=decay,
            )
        if isinstance(mechanism, Softmax):
            if decay is not None:
                raise ValueError("the softmax mechanism has no decay; accepted: decay=None")
            return softmax_attention(
                query,
                key,
                value,
                beta=mechanism.beta,
                is_causal=is_causal,
                key_mask=key_mask,
                enable_gqa=groups > 1,
            )
        if isinstance(mechanism, Expected):
            return expected_attention(
                query,
                key,
                value,
                self.tables,
                exponent=mechanism.exponent,
                floor=mechanism.floor,
                is_causal=is_causal,
                key_mask=key_mask,
                enable_gqa=groups > 1,
                decay=decay,
                unit_norm=True,
            )
        if isinstance(mechanism, StraightThrough):
            return straight_through_attention(
                query,
                key,
                value,
                self.tables,
                exponent=mechanism.exponent,
                stray=mechanism.stray,
                is_causal=is_causal,
                key_mask=key_mask,
                enable_gqa=groups > 1,
                decay=decay,
                unit_norm=True,
            )
        raise TypeError(
            f"mechanism must be Softmax, Expected, StraightThrough, Hard or None, got {mechanism!r}"
        )


def _unit(rows: Tensor) -> Tensor:
    # Under autocast the norm is float32 and would lift the rows away from the values' dtype.
    return F.normalize(rows, dim=-1, eps=1e-6).to(rows.dtype)


def _rotation(rotary: Rotary | ValueRotary | None, config: AttentionConfig) -> Rotation | None:
    if rotary is None:
        return None
    # Heads that share keys rotate alike, by one row that broadcasts over both head counts.
    heads = config.num_heads if config.key_heads == config.num_heads else 1
    rows = torch.tensor(rotary.frequencies, dtype=torch.float32)
    return Rotation(rows.expand(heads, -1), rotary.learnable)


def _log_decay(config: AttentionConfig) -> nn.Parameter | None:
    if config.decay is None:
        return None
    values = config.decay if isinstance(config.decay, tuple) else (config.decay,)
    if len(values) == 1:
        values = values * config.num_heads
    return nn.Parameter(torch.tensor([math.log(value) for value in values], dtype=torch.float32))


@torch.no_grad()
def _start_projection(
    projection: nn.Linear, config: AttentionConfig, generator: torch.Generator
) -> None:
    """Give a query or key projection its configured initial biases and rotated weights."""
    content = config.head_dim - config.rotary_dims
    bias = None
    if projection.bias is not None:
        bias = projection.bias.unflatten(0, (-1, config.head_dim))
        bias.normal_(generator=generator)
        bias[:, :content] *= config.bias_std
    if config.rotary is not None:
        weight = projection.weight.unflatten(0, (-1, config.head_dim))
        weight[:, content:] *= config.rotary.weight_scale
        if bias is not None:
            bias[:, content:] *= config.rotary.bias_std
            bias[:, content:] += config.rotary.bias_value
