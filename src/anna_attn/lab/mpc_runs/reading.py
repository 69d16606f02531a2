"""Words of a protocol from a file: text, npy, or a list of edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def read_words(path: Path) -> np.ndarray:
    """Integers of a .npy file, or separated by space and lines in text; `#` begins a comment.

    A list of edges, two numbers on a line, is the same with its pairs one after another.

    Returns: (N,) int64.
    Raises: ValueError naming file, line and what is no integer; OSError.
    """
    if path.suffix == ".npy":
        return _from_array(path)
    words: list[int] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            for part in line.split("#")[0].replace(",", " ").split():
                try:
                    words.append(int(part))
                except ValueError:
                    raise ValueError(
                        f"{path}, line {number}: {part!r} is no integer; accepted: integers "
                        "separated by spaces, commas or lines, and comments after #"
                    ) from None
    return _narrow(path, words)


def _from_array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no .npy file of numbers: {error}") from error
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{path} holds {array.dtype}; accepted: integers")
    return _narrow(path, array.reshape(-1))


def _narrow(path: Path, words) -> np.ndarray:
    try:
        return np.asarray(words, dtype=np.int64).reshape(-1)
    except OverflowError as error:
        raise ValueError(f"{path}: integers must fit in 64 bits") from error
