"""Where a protocol runs: same outputs, same traces."""

from .hostile import Hostile
from .in_process import InProcess
from .ray import RayEngine
from .record import Progress

__all__ = ["Hostile", "InProcess", "Progress", "RayEngine"]
