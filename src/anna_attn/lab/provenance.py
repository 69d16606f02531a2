"""What made a result: versions, machine, seeds, command, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import torch

import anna_attn

PACKAGES = ("anna-attn", "torch", "numpy", "scipy", "matplotlib")


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from, as plain values that JSON can hold.

    Attributes:
        command: what was typed to make it.
        seeds: the seeds it is a function of.
        created: UTC time, ISO 8601.
        versions: installed version of each package; those not installed are left out.
        python, system, processor: of the machine.
        num_cores, num_threads: cores this process may use, and torch's threads.
        memory_gib: of the machine; None where the system does not say.
        commit: git commit of the source tree, "+changes" if it was modified; None if installed.
    """

    command: str
    seeds: tuple[int, ...]
    created: str
    versions: dict[str, str]
    python: str
    system: str
    processor: str
    num_cores: int
    num_threads: int
    memory_gib: float | None
    commit: str | None

    def to_dict(self) -> dict[str, object]:
        """The fields as a JSON-able dictionary."""
        return {**asdict(self), "seeds": list(self.seeds)}


def collect(command: str, seeds: Sequence[int]) -> Provenance:
    """Describe this process and machine; names no user, host or folder."""
    return Provenance(
        command=command,
        seeds=tuple(int(seed) for seed in seeds),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        versions=_versions(),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        num_cores=_num_cores(),
        num_threads=torch.get_num_threads(),
        memory_gib=_memory_gib(),
        commit=_commit(),
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _num_cores() -> int:
    # The affinity counts where it exists: in a container the machine may have many more.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return round(size / 2**30, 1)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _commit() -> str | None:
    package = Path(anna_attn.__file__).resolve().parent
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed copy may lie inside somebody else's repository, whose commit says nothing.
    if top is None or Path(top).resolve() / "src" / "anna_attn" != package:
        return None
    commit = _git(package, "rev-parse", "--short=12", "HEAD")
    if commit is None:
        return None
    return f"{commit}+changes" if _git(package, "status", "--porcelain") else commit
