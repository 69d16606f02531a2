"""ANNA attention: the operator, its definition, and its differentiable stand-ins."""

from .definition import check_definition_3_3
from .exact_match import exact_match_attention
from .function import anna_attention, count_empty
from .reference import attention_weights, dense_attention
from .softmax import softmax_attention
from .surrogate import collision_counts, expected_attention, straight_through_attention

__all__ = [
    "anna_attention",
    "attention_weights",
    "check_definition_3_3",
    "collision_counts",
    "count_empty",
    "dense_attention",
    "exact_match_attention",
    "expected_attention",
    "softmax_attention",
    "straight_through_attention",
]
