"""Where a protocol runs: same outputs, same traces."""

from .hostile import Hostile
from .in_process import InProcess
from .record import Progress

__all__ = ["Hostile", "InProcess", "Progress"]
