"""Protocols: functions from sizes to a program for machines."""

from .k_hop import induction_heads, k_hop
from .prefix_sum import prefix_sum
from .sort import sort

__all__ = ["induction_heads", "k_hop", "prefix_sum", "sort"]
