"""ANNA attention: hash tables of keys, averaged by bucket."""

__version__ = "0.1.0"
