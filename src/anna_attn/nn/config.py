"""Frozen descriptions of attention layers and transformers, which JSON can hold."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from anna_attn.lsh import CrossPolytope, Euclidean, Exact, Family, Hyperplane

from .mechanisms import MECHANISM_NAMES, Expected, Hard, Mechanism, Softmax, StraightThrough

FAMILY_NAMES = ("hyperplane", "cross_polytope", "euclidean", "exact")
POSITIONS = ("none", "learned", "sinusoidal")

Frequencies = tuple[tuple[float, ...], ...]
"""Radians per token: one row per head, or a single row that every head starts from."""


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an int >= 1, got {value!r}")


def _check_choice(name: str, value: object, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {value!r}")


def _check_number(name: str, value: object, low: float = -math.inf) -> None:
    number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else value
    if not (math.isfinite(number) and number >= low):
        bound = "" if low == -math.inf else f" >= {low:g}"
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")


def _check_rows(name: str, rows: object) -> None:
    """Refuse frequencies that are not a tuple of equally long, non-empty tuples of numbers."""
    if not isinstance(rows, tuple) or not rows or not all(isinstance(r, tuple) for r in rows):
        raise ValueError(f"{name} must be a non-empty tuple of tuples of floats, got {rows!r}")
    lengths = sorted({len(row) for row in rows})
    if len(lengths) != 1 or lengths[0] == 0:
        raise ValueError(f"{name} must have rows of one length >= 1, got lengths {lengths}")
    for number in (number for row in rows for number in row):
        _check_number(name, number)


def _check_seed(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be an int >= 0, got {value!r}")


@dataclass(frozen=True)
class Rotary:
    """Rotary positions on queries and keys, over the last 2 P of their dims.

    Args:
        frequencies: initial radians per token, rows of P; one row per head, or one for all.
        bias_std, bias_value: initial query and key biases on rotated dims ~
            N(bias_value, bias_std^2). A constant bias in both starts a head with a kernel that
            falls with the distance; random ones start it with a random kernel of the distance.
        weight_scale: scales the initial query and key weights of rotated dims.
        learnable: train the frequencies.
    Raises: ValueError naming the field, what came and what is accepted.
    """

    frequencies: Frequencies
    bias_std: float = 0.0
    bias_value: float = 0.0
    weight_scale: float = 1.0
    learnable: bool = True

    def __post_init__(self) -> None:
        _check_rows("rotary.frequencies", self.frequencies)
        _check_number("rotary.bias_std", self.bias_std, low=0.0)
        _check_number("rotary.bias_value", self.bias_value)
        _check_number("rotary.weight_scale", self.weight_scale)


@dataclass(frozen=True)
class ValueRotary:
    """Rotary values: v at t turned by omega t, the averaged output at i turned by -omega i.

    What query i receives from key j is then turned by omega (j - i): outputs tell distances. It is
    done per token before and after the average, which stays ANNA's; it is an addition to the
    paper's architecture.

    Args: frequencies: initial omegas, rows of P for the last 2 P value dims; one row per head, or
        one for all; learnable: train them.
    Raises: ValueError naming the field, what came and what is accepted.
    """

    frequencies: Frequencies
    learnable: bool = True

    def __post_init__(self) -> None:
        _check_rows("value_rotary.frequencies", self.frequencies)


@dataclass(frozen=True)
class AttentionConfig:
    """One attention layer: heads, hash tables, mechanism, rotations and initial values.

    Args:
        head_dim: D (the paper's m) of queries and keys.
        value_dim: Dv; None = head_dim.
        num_heads: H. num_kv_heads: Hkv, a divisor of it; None = num_heads.
        family: "hyperplane", "cross_polytope", "euclidean" or "exact".
        rotation: "hadamard" or "gaussian", of the two angular families.
        bucket_width: cell width of the Euclidean family.
        num_tables: L. hashes_per_table: Z.
        mechanism: "softmax", "expected", "straight_through" or "anna": what the layer does unless
            `forward` is given a mechanism.
        beta: of "softmax". floor: of "expected".
        exponent: of "expected" and "straight_through"; None = hashes_per_table.
        query_bias, key_bias, value_bias, output_bias: biases of the four projections.
        rotary: positions in queries and keys; None = none. value_rotary: in values; None = none.
        bias_std: initial query and key biases on dims that are not rotated ~ N(0, bias_std^2).
        decay: initial recency decay per head (one number or one per head, > 0), learned; causal
            only; None = none, strict ANNA.
        head_norm: divide every head's output by its root mean square.
    Raises: ValueError naming the field, what came and what is accepted.
    """

    head_dim: int
    value_dim: int | None = None
    num_heads: int = 1
    num_kv_heads: int | None = None
    family: str = "hyperplane"
    rotation: str = "hadamard"
    bucket_width: float = 1.0
    num_tables: int = 32
    hashes_per_table: int = 8
    mechanism: str = "anna"
    beta: float = 1.0
    exponent: float | None = None
    floor: float = 0.3
    query_bias: bool = True
    key_bias: bool = True
    value_bias: bool = True
    output_bias: bool = False
    rotary: Rotary | None = None
    value_rotary: ValueRotary | None = None
    bias_std: float = 0.0
    decay: tuple[float, ...] | float | None = None
    head_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("head_dim", "num_heads", "num_tables", "hashes_per_table"):
            _check_count(name, getattr(self, name))
        for name in ("value_dim", "num_kv_heads"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        if self.num_heads % self.key_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads={self.num_heads}, got {self.num_kv_heads!r}"
            )
        _check_choice("family", self.family, FAMILY_NAMES)
        _check_choice("rotation", self.rotation, ("hadamard", "gaussian"))
        _check_choice("mechanism", self.mechanism, MECHANISM_NAMES)
        _check_number("bucket_width", self.bucket_width)
        if self.bucket_width <= 0:
            raise ValueError(f"bucket_width must be > 0, got {self.bucket_width!r}")
        _check_number("bias_std", self.bias_std, low=0.0)
        if self.rotary is not None:
            self._check_rotation("rotary", self.rotary, Rotary, self.head_dim)
        if self.value_rotary is not None:
            self._check_rotation("value_rotary", self.value_rotary, ValueRotary, self.output_dim)
        self._check_decay()
        self.default_mechanism()

    @property
    def key_heads(self) -> int:
        """Hkv, resolved."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def output_dim(self) -> int:
        """Dv, resolved."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def rotary_dims(self) -> int:
        """How many of the last dims of queries and keys are rotated."""
        return 0 if self.rotary is None else 2 * len(self.rotary.frequencies[0])

    def _check_rotation(self, name: str, given: object, kind: type, dim: int) -> None:
        if not isinstance(given, (Rotary, ValueRotary)) or not isinstance(given, kind):
            raise ValueError(f"{name} must be a {kind.__name__} or None, got {given!r}")
        rows, pairs = len(given.frequencies), len(given.frequencies[0])
        # Heads that share a key share its rotation, so their queries must be turned alike.
        accepted = {1, self.num_heads} if self.key_heads == self.num_heads else {1}
        if rows not in accepted:
            raise ValueError(
                f"{name}.frequencies must have {' or '.join(map(str, sorted(accepted)))} rows for "
                f"num_heads={self.num_heads}, num_kv_heads={self.key_heads}; got {rows}"
            )
        if 2 * pairs > dim:
            raise ValueError(
                f"{name}.frequencies must have at most {dim // 2} entries a row, one per pair of "
                f"{dim} dims; got {pairs}"
            )

    def _check_decay(self) -> None:
        if self.decay is None:
            return
        values = self.decay if isinstance(self.decay, tuple) else (self.decay,)
        if len(values) not in (1, self.num_heads):
            raise ValueError(
                f"decay must be one number or one for each of {self.num_heads} heads, "
                f"got {self.decay!r}"
            )
        for value in values:
            _check_number("decay", value)
            if value <= 0:
                raise ValueError(f"decay must be > 0 (None = none), got {self.decay!r}")

    def default_mechanism(self) -> Mechanism:
        """The mechanism this layer uses when `forward` is given none."""
        exponent = float(self.hashes_per_table) if self.exponent is None else self.exponent
        if self.mechanism == "softmax":
            return Softmax(self.beta)
        if self.mechanism == "expected":
            return Expected(exponent, self.floor)
        if self.mechanism == "straight_through":
            return StraightThrough(exponent)
        return Hard()

    def hash_family(self) -> Family:
        """The family of the layer's tables, over rows of head_dim."""
        if self.family == "hyperplane":
            return Hyperplane(self.head_dim, rotation=self.rotation)  # pyright: ignore[reportArgumentType]
        if self.family == "cross_polytope":
            return CrossPolytope(self.head_dim, rotation=self.rotation)  # pyright: ignore[reportArgumentType]
        if self.family == "euclidean":
            return Euclidean(self.head_dim, self.bucket_width)
        return Exact(self.head_dim)

    def to_dict(self) -> dict[str, Any]:
        """Describe as JSON-able fields."""
        return _to_plain(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> AttentionConfig:
        """Rebuild from `to_dict`; refuses unknown and missing fields."""
        known = _known_fields(cls, fields)
        for name, kind in (("rotary", Rotary), ("value_rotary", ValueRotary)):
            if fields.get(name) is not None:
                known[name] = kind(**_known_fields(kind, fields[name]))
        return cls(**known)


@dataclass(frozen=True)
class TransformerConfig:
    """A transformer of pre-norm residual blocks, attention then MLP.

    Args:
        vocab_size: tokens are 0..vocab_size-1. num_outputs: logits per token.
        layers: one AttentionConfig per block.
        width: of the residual stream. mlp_width: hidden units of each MLP; 0 = no MLP.
        positions: added to the embedding: "none", "learned" or "sinusoidal".
        sinusoid_base: of "sinusoidal". max_length: of "learned", which needs it; None otherwise.
        is_causal: in every layer.
        seed: of the initial weights, and of the hash tables unless `table_seed` is given.
        table_seed: None = seed. Layers draw from separate streams of it.
    Raises: ValueError naming the field, what came and what is accepted.
    """

    vocab_size: int
    num_outputs: int
    layers: tuple[AttentionConfig, ...]
    width: int = 64
    mlp_width: int = 256
    positions: str = "none"
    is_causal: bool = False
    max_length: int | None = None
    sinusoid_base: float = 10_000.0
    seed: int = 0
    table_seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_outputs", "width"):
            _check_count(name, getattr(self, name))
        if self.mlp_width != 0:
            _check_count("mlp_width", self.mlp_width)
        _check_choice("positions", self.positions, POSITIONS)
        if not isinstance(self.layers, tuple) or not self.layers:
            raise ValueError(f"layers must be a non-empty tuple, got {self.layers!r}")
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, AttentionConfig):
                raise ValueError(f"layers[{index}] must be an AttentionConfig, got {layer!r}")
            if layer.decay is not None and not self.is_causal:
                raise ValueError(f"layers[{index}].decay needs is_causal=True, got False")
        if self.max_length is not None:
            _check_count("max_length", self.max_length)
        if self.positions == "learned" and self.max_length is None:
            raise ValueError("max_length must be given for positions='learned', got None")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"width must be even for sinusoidal positions, got {self.width}")
        _check_number("sinusoid_base", self.sinusoid_base, low=1.0)
        _check_seed("seed", self.seed)
        if self.table_seed is not None:
            _check_seed("table_seed", self.table_seed)

    def to_dict(self) -> dict[str, Any]:
        """Describe as JSON-able fields."""
        return _to_plain(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> TransformerConfig:
        """Rebuild from `to_dict`; refuses unknown and missing fields."""
        known = _known_fields(cls, fields)
        known["layers"] = tuple(AttentionConfig.from_dict(layer) for layer in fields["layers"])
        return cls(**known)


def table_seed(seed: int, layer: int) -> int:
    """Seed of layer `layer`'s hash tables: an independent stream of `seed` for each layer.

    Raises: ValueError on a negative or non-int seed.
    Source: numpy's SeedSequence, whose spawn keys give well-separated streams.
    """
    _check_seed("seed", seed)
    state = np.random.SeedSequence(seed, spawn_key=(1, layer)).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def weight_seed(seed: int, layer: int) -> int:
    """Seed of the initial weights of one layer; streams apart from those of the tables."""
    _check_seed("seed", seed)
    state = np.random.SeedSequence(seed, spawn_key=(0, layer)).generate_state(1, np.uint64)
    return int(state[0]) >> 1


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_to_plain(item) for item in value]
    return value


def _to_tuples(value: Any) -> Any:
    return tuple(_to_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _known_fields(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(fields) - names)
    required = {
        field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING
    }
    missing = sorted(required - set(fields))
    if unknown or missing:
        raise ValueError(
            f"{cls.__name__} got unknown fields {unknown} and lacks {missing}; "
            f"accepted: {sorted(names)}"
        )
    return {
        name: value if name == "layers" else _to_tuples(value) for name, value in fields.items()
    }
