"""Steps that protocols are made of; each says its rounds and words."""

from .fetch import fetch
from .gather import Gather
from .group import GroupBy
from .items import Layout
from .join import Join
from .neighbour import from_neighbour
from .sample_sort import SampleSort
from .segmented import segmented_scan, segmented_scan_memory
from .sort import Key, RadixSort, place_by_slot
from .tree import (
    Line,
    broadcast,
    exclusive_scan,
    forget,
    num_levels,
    reduce,
    scan_memory,
    scan_traffic,
)

__all__ = [
    "Gather",
    "GroupBy",
    "Join",
    "Key",
    "Layout",
    "Line",
    "RadixSort",
    "SampleSort",
    "broadcast",
    "exclusive_scan",
    "fetch",
    "forget",
    "from_neighbour",
    "num_levels",
    "place_by_slot",
    "reduce",
    "scan_memory",
    "scan_traffic",
    "segmented_scan",
    "segmented_scan_memory",
]
