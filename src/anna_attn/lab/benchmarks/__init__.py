"""Benchmarks: time beside error, always on the same inputs and in one run."""

from anna_attn.lab.benchmarks.attention import AttentionBenchmark, linearity, run
from anna_attn.lab.benchmarks.display import print_results
from anna_attn.lab.benchmarks.timing import Timing, time_alternately, torch_threads

__all__ = [
    "AttentionBenchmark",
    "Timing",
    "linearity",
    "print_results",
    "run",
    "time_alternately",
    "torch_threads",
]
