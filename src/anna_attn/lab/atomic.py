"""Writing files so that a crash or a full disk leaves the old one."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path


def write_text(path: Path | str, text: str) -> Path:
    """Write `text` to a temporary file in the same folder, then rename it onto `path`.

    Raises: OSError if the folder cannot be written or the disk is full; `path` is then unchanged.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; give it the mode an ordinary new file would have.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_json(path: Path | str, value: object) -> Path:
    """Write `value` as indented JSON, atomically.

    Raises: ValueError for NaN or infinity (not JSON), TypeError for what JSON cannot hold, OSError.
    """
    return write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
