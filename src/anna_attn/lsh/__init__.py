"""Locality-sensitive hashing: families, drawn tables, and the parameters theory asks for."""

from .families import (
    CrossPolytope,
    Euclidean,
    Exact,
    Family,
    Hyperplane,
    family_from_dict,
    family_to_dict,
)
from .parameters import TheoremParameters, theorem_3_4
from .tables import HashTables

__all__ = [
    "CrossPolytope",
    "Euclidean",
    "Exact",
    "Family",
    "HashTables",
    "Hyperplane",
    "TheoremParameters",
    "family_from_dict",
    "family_to_dict",
    "theorem_3_4",
]
