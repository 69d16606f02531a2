"""One run at a time in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = ".lock"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other processes from running into the same folder until the block ends.

    Two runs that resume from and write to the same checkpoints would spoil each other. The system
    frees the lock of a process that was killed. Systems without advisory locks (Windows) have
    none.

    Args: folder: exists and can be written.
    Raises: BlockingIOError (an OSError) naming the folder if another process holds it.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / LOCK_NAME, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            words = "another run is writing here; wait for it, or choose another folder"
            raise BlockingIOError(error.errno, words, str(folder)) from error
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
