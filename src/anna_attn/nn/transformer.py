"""Transformers whose attention layers are ANNA's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from anna_attn.attention import anna_attention

from .attention import AnnaAttention, Attend
from .config import AttentionConfig, TransformerConfig, table_seed, weight_seed
from .initial import embedding, linear, seeded
from .mechanisms import Mechanism
from .positions import LearnedPositions, SinusoidalPositions


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)) with a GELU, which is left out at width 0."""

    def __init__(self, config: TransformerConfig, index: int, attend: Attend):
        super().__init__()
        seed = weight_seed(config.seed, index + 1)
        tables = config.seed if config.table_seed is None else config.table_seed
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = AnnaAttention(
            config.layers[index],
            config.width,
            seed=seed,
            tables_seed=table_seed(tables, index),
            attend=attend,
        )
        self.mlp = None
        if config.mlp_width:
            generator = seeded(weight_seed(seed, 1))
            self.mlp = nn.Sequential(
                nn.LayerNorm(config.width),
                linear(config.width, config.mlp_width, True, generator),
                nn.GELU(),
                linear(config.mlp_width, config.width, True, generator),
            )

    def forward(
        self,
        x: Tensor,
        *,
        is_causal: bool,
        key_mask: Tensor | None,
        mechanism: Mechanism | None,
    ) -> Tensor:
        """(B, T, width) -> (B, T, width)."""
        x = x + self.attention(
            self.attention_norm(x), is_causal=is_causal, key_mask=key_mask, mechanism=mechanism
        )
        return x if self.mlp is None else x + self.mlp(x)


class AnnaTransformer(nn.Module):
    """Transformer over tokens with one output row per token.

    X0 = embedding [+ positions]; X_l = X_{l-1} + f_l(X_{l-1}) for each block's attention and MLP;
    logits = norm(X_L) W + b.

    Args: config: everything, seeds included; two models of one config are equal.
        attend: the hard operator of every layer.
    Attributes: config; layers[i].attention.tables are the hash tables of layer i.
    Source: Liu et al. 2025 (arXiv:2509.09001), Definition 2.2, whose element-wise functions are
        here a pre-norm MLP of one hidden layer.
    """

    def __init__(self, config: TransformerConfig, *, attend: Attend = anna_attention):
        super().__init__()
        self.config = config
        self.attend = attend
        generator = seeded(weight_seed(config.seed, 0))
        self.embedding = embedding(config.vocab_size, config.width, generator)
        self.positions = None
        if config.positions == "learned" and config.max_length is not None:
            self.positions = LearnedPositions(config.max_length, config.width, generator)
        elif config.positions == "sinusoidal":
            self.positions = SinusoidalPositions(config.width, config.sinusoid_base)
        self.layers = nn.ModuleList(
            Block(config, index, attend) for index in range(len(config.layers))
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = linear(config.width, config.num_outputs, True, generator)

    def forward(
        self,
        tokens: Tensor,
        *,
        key_mask: Tensor | None = None,
        mechanism: Mechanism | None = None,
    ) -> Tensor:
        """Compute the logits of every token.

        Args:
            tokens: (B, T) int64 in 0..vocab_size-1.
            key_mask: (B, T) bool, True = may be attended.
            mechanism: used by every layer; None = each layer's own.
        Returns: (B, T, num_outputs).
        Raises: ValueError on a wrong rank or a sequence beyond learned positions; IndexError on a
            token outside the vocabulary.
        """
        if tokens.dim() != 2:
            raise ValueError(f"tokens must be (B, T), got {tuple(tokens.shape)}")
        x = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x)
        for layer in self.layers:
            x = layer(x, is_causal=self.config.is_causal, key_mask=key_mask, mechanism=mechanism)
        return self.head(self.norm(x))

    def redraw(self, seed: int) -> None:
        """Replace every layer's hash functions by those of `seed`, in place; layers stay distinct.

        The config keeps describing the tables the model was built with; `state_dict` holds the new.
        """
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Block)
            layer.attention.tables.redraw(table_seed(seed, index))

    def with_tables(
        self,
        family: str | None = None,
        num_tables: int | Sequence[int] | None = None,
        hashes_per_table: int | Sequence[int] | None = None,
        seed: int = 0,
        *,
        rotation: str | None = None,
    ) -> AnnaTransformer:
        """Copy the model with hard ANNA tables of other sizes or another family.

        Args:
            family, rotation: for every layer; None = each layer's own.
            num_tables, hashes_per_table: one int, or one per layer; None = each layer's own.
            seed: of the new tables.
        Returns: a new model of equal weights whose layers' mechanism is "anna" and whose `config`
            says so; same device, dtype and train/eval mode.
        Raises: ValueError on a wrong number of entries or an unknown name.
        """
        count = len(self.config.layers)
        tables = _per_layer("num_tables", num_tables, count)
        hashes = _per_layer("hashes_per_table", hashes_per_table, count)
        layers = tuple(
            _with_hashing(layer, family, rotation, tables[i], hashes[i])
            for i, layer in enumerate(self.config.layers)
        )
        config = replace(self.config, layers=layers, table_seed=seed)
        model = AnnaTransformer(config, attend=self.attend)
        weights = {name: value for name, value in self.state_dict().items() if not _hashing(name)}
        own = {name: value for name, value in model.state_dict().items() if _hashing(name)}
        model.load_state_dict({**own, **weights})
        first = next(self.parameters())
        return model.to(device=first.device, dtype=first.dtype).train(self.training)


def _hashing(name: str) -> bool:
    return ".attention.tables." in name


def _per_layer(name: str, value: int | Sequence[int] | None, count: int) -> list[int | None]:
    if value is None or isinstance(value, int):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must be one int or one for each of {count} layers, got {value!r}")
    return list(value)


def _with_hashing(
    layer: AttentionConfig,
    family: str | None,
    rotation: str | None,
    num_tables: int | None,
    hashes_per_table: int | None,
) -> AttentionConfig:
    return replace(
        layer,
        family=layer.family if family is None else family,
        rotation=layer.rotation if rotation is None else rotation,
        num_tables=layer.num_tables if num_tables is None else num_tables,
        hashes_per_table=layer.hashes_per_table if hashes_per_table is None else hashes_per_table,
        mechanism="anna",
    )
