"""Protocols: functions from sizes to a program for machines."""

from .anna_attention import AttentionShape, anna_attention
from .connectivity import connectivity
from .graphs import cycles
from .k_hop import induction_heads, k_hop
from .list_ranking import list_ranking
from .low_rank_attention import low_rank_attention
from .match2 import match2
from .prefix_sum import prefix_sum
from .softmax_attention import SoftmaxShape, softmax_attention
from .sort import sort
from .three_sum import three_sum

__all__ = [
    "AttentionShape",
    "SoftmaxShape",
    "anna_attention",
    "connectivity",
    "cycles",
    "induction_heads",
    "k_hop",
    "list_ranking",
    "low_rank_attention",
    "match2",
    "prefix_sum",
    "softmax_attention",
    "sort",
    "three_sum",
]
