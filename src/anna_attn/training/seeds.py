"""Seeds derived from one seed, so that a run is a function of its configuration alone.

Every random stream (the batch of a step, the hash functions of a step, the validation batches) has
its own seed, a digest of the configured seed and of what the stream is for. A resumed run therefore
needs no saved generator state: it derives the same seeds again.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, purpose: str, *indices: int) -> int:
    """One seed for one purpose, e.g. derive_seed(config.seed, "data", stage_index, step).

    Args:
        seed: the seed of the run; any integer.
        purpose: what the stream is for.
        indices: where in the run (stage, step, draw, ...).
    Returns: an integer in [0, 2**63); all its bits, the low 32 included (torch's Mersenne twister
        reads only those), are uniform.
    """
    text = ":".join([str(int(seed)), purpose, *(str(int(index)) for index in indices)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator_for(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """A CPU generator seeded with `derive_seed`; the global random state is not touched."""
    return torch.Generator().manual_seed(derive_seed(seed, purpose, *indices))
