"""Attention layers and transformers built on ANNA."""

from .attention import AnnaAttention, Attend
from .config import AttentionConfig, Rotary, TransformerConfig, ValueRotary
from .mechanisms import Expected, Hard, Mechanism, Softmax, StraightThrough
from .positions import LearnedPositions, SinusoidalPositions
from .rotary import Rotation
from .transformer import AnnaTransformer, Block

__all__ = [
    "AnnaAttention",
    "AnnaTransformer",
    "Attend",
    "AttentionConfig",
    "Block",
    "Expected",
    "Hard",
    "LearnedPositions",
    "Mechanism",
    "Rotary",
    "Rotation",
    "SinusoidalPositions",
    "Softmax",
    "StraightThrough",
    "TransformerConfig",
    "ValueRotary",
]
