"""ANNA against softmax attention: time and error on the same inputs, in one run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from anna_attn.attention import anna_attention
from anna_attn.lab.benchmarks.inputs import Inputs, clustered_inputs, exact_rows, relative_error
from anna_attn.lab.benchmarks.timing import Timing, load_per_core, time_alternately, torch_threads
from anna_attn.lsh import CrossPolytope, Family, HashTables, Hyperplane

SDPA = "sdpa"
FAMILIES = {"hyperplane": Hyperplane, "cross_polytope": CrossPolytope}
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class AttentionBenchmark:
    """What is timed.

    Args:
        sizes: numbers of tokens N, ascending.
        is_causal: which of full (False) and causal (True).
        num_heads, head_dim: H and D; batch 1, float32.
        family: "hyperplane" or "cross_polytope".
        num_tables, hashes_per_table: L and Z.
        backends: of `anna_attention`; hashing is part of what is timed.
        repeats: counted calls of each (one uncounted call first).
        max_call_s: a method is not run at a size where one call is predicted to take longer, from
            its last measured size (quadratic growth for SDPA, linear for ANNA).
        num_error_queries: queries per head at which errors are computed.
        threads: torch threads; None = as they are.
        seed: of inputs and tables.
    Raises: ValueError for values out of range or names that are not known.
    """

    sizes: tuple[int, ...] = (1024, 4096, 16384)
    is_causal: tuple[bool, ...] = (False, True)
    num_heads: int = 8
    head_dim: int = 64
    family: Literal["hyperplane", "cross_polytope"] = "hyperplane"
    num_tables: int = 16
    hashes_per_table: int = 8
    backends: tuple[str, ...] = ("torch", "torch_one_table")
    repeats: int = 5
    max_call_s: float = 20.0
    num_error_queries: int = 64
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise ValueError(f"sizes is {self.sizes}; accepted: ascending integers >= 1")
        for name in ("num_heads", "head_dim", "num_tables", "hashes_per_table", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: an integer >= 1")
        if self.num_error_queries < 1 or not self.max_call_s > 0:
            raise ValueError(
                f"num_error_queries is {self.num_error_queries}, max_call_s is {self.max_call_s}; "
                "accepted: positive numbers"
            )
        if self.family not in FAMILIES:
            raise ValueError(f"family is {self.family!r}; accepted: {', '.join(FAMILIES)}")
        if not self.backends or not self.is_causal:
            raise ValueError("backends or is_causal is empty; accepted: at least one of each")

    @property
    def softmax_scale(self) -> float:
        """Z ln 2: softmax then weighs a parallel key 2^Z times an orthogonal one, as Z bits do."""
        return self.hashes_per_table * math.log(2)

    def make_tables(self) -> HashTables:
        """The hash tables all ANNA backends share."""
        family: Family = FAMILIES[self.family](self.head_dim)
        return HashTables(
            family, self.num_tables, self.hashes_per_table, self.num_heads, seed=self.seed
        )


def run(benchmark: AttentionBenchmark, *, progress: Progress | None = None) -> dict:
    """Time every method at every size, in turn, with the errors on the same inputs.

    Args:
        benchmark: what to run.
        progress: told after each (size, causal or not).
    Returns: {"benchmark": its fields, "softmax_scale", "threads", "load_per_core" (before the run;
        None = not known), "rows": [...]}, JSON-able. A row has "num_tokens", "is_causal",
        "method", and either "skipped" (why) or "median_s", "min_s", "max_s", "repeats",
        "ns_per_token" (all heads), "error_softmax" (relative error against exact softmax attention
        with `softmax_scale`, float64), for ANNA also "error_expected" (against the
        expected-collision kernel: what more tables converge to) and, where SDPA was run,
        "speedup", "speedup_low", "speedup_high" (from the extremes).
    """
    tables = benchmark.make_tables()
    load = load_per_core()
    last: dict[tuple[str, bool], tuple[int, float]] = {}
    rows: list[dict] = []
    total = len(benchmark.sizes) * len(benchmark.is_causal)
    with torch_threads(benchmark.threads) as threads, torch.no_grad():
        for num_tokens in benchmark.sizes:
            inputs = clustered_inputs(
                num_tokens, benchmark.num_heads, benchmark.head_dim, seed=benchmark.seed
            )
            for is_causal in benchmark.is_causal:
                rows += _measure(benchmark, tables, inputs, is_causal, last)
                if progress is not None:
                    what = f"N = {num_tokens}, {'causal' if is_causal else 'full'}"
                    progress(what, len({(r["num_tokens"], r["is_causal"]) for r in rows}), total)
    fields = asdict(benchmark)
    for name in ("sizes", "is_causal", "backends"):
        fields[name] = list(fields[name])
    return {
        "benchmark": fields,
        "softmax_scale": benchmark.softmax_scale,
        "threads": threads,
        "load_per_core": load,
        "rows": rows,
    }


def _measure(
    benchmark: AttentionBenchmark,
    tables: HashTables,
    inputs: Inputs,
    is_causal: bool,
    last: dict[tuple[str, bool], tuple[int, float]],
) -> list[dict]:
    num_tokens = inputs.query.shape[2]
    calls = _calls(benchmark, tables, inputs, is_causal)
    skipped = {}
    for method in calls:
        predicted = _predict(method, num_tokens, last.get((method, is_causal)))
        if predicted > benchmark.max_call_s:
            skipped[method] = (
                f"one call is predicted to take {predicted:.3g} s, "
                f"over the cap of {benchmark.max_call_s:g} s"
            )
    timings = time_alternately(
        {method: call for method, call in calls.items() if method not in skipped},
        repeats=benchmark.repeats,
    )
    errors = _errors(benchmark, tables, inputs, is_causal, {m: calls[m] for m in timings})
    rows = []
    for method in calls:
        row: dict = {"num_tokens": num_tokens, "is_causal": is_causal, "method": method}
        if method in skipped:
            rows.append({**row, "skipped": skipped[method]})
            continue
        timing = timings[method]
        # The fastest call: a busy machine slows some calls, and must not rule out later sizes.
        last[method, is_causal] = (num_tokens, timing.min_s)
        row |= asdict(timing) | {"ns_per_token": timing.median_s / num_tokens * 1e9}
        row |= errors[method]
        if method != SDPA and SDPA in timings:
            row |= _speedup(timings[SDPA], timing)
        rows.append(row)
    return rows


def _calls(
    benchmark: AttentionBenchmark, tables: HashTables, inputs: Inputs, is_causal: bool
) -> dict[str, Callable[[], Tensor]]:
    query, key, value = inputs.query, inputs.key, inputs.value

    def softmax() -> Tensor:
        return scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=benchmark.softmax_scale
        )

    def anna(backend: str) -> Callable[[], Tensor]:
        return lambda: anna_attention(
            query, key, value, tables, is_causal=is_causal, backend=backend
        )

    return {SDPA: softmax, **{backend: anna(backend) for backend in benchmark.backends}}


def _predict(method: str, num_tokens: int, last: tuple[int, float] | None) -> float:
    """Seconds one call should take; 0 where nothing was measured yet."""
    if last is None:
        return 0.0
    growth = num_tokens / last[0]
    return last[1] * growth ** (2 if method == SDPA else 1)


def _errors(
    benchmark: AttentionBenchmark,
    tables: HashTables,
    inputs: Inputs,
    is_causal: bool,
    calls: dict[str, Callable[[], Tensor]],
) -> dict[str, dict[str, float]]:
    num_tokens = inputs.query.shape[2]
    count = min(benchmark.num_error_queries, num_tokens)
    positions = torch.linspace(0, num_tokens - 1, count).round().long()

    def softmax_kernel(cosine: Tensor) -> Tensor:
        return torch.exp(benchmark.softmax_scale * cosine)

    def collision_kernel(cosine: Tensor) -> Tensor:
        return tables.family.collision_probability(cosine.acos(), benchmark.hashes_per_table)

    softmax = exact_rows(inputs, positions, softmax_kernel, is_causal=is_causal)
    expected = exact_rows(inputs, positions, collision_kernel, is_causal=is_causal)
    errors = {}
    for method, call in calls.items():
        result = call()[:, :, positions]
        errors[method] = {"error_softmax": relative_error(result, softmax)}
        if method != SDPA:
            errors[method]["error_expected"] = relative_error(result, expected)
    return errors


def _speedup(sdpa: Timing, anna: Timing) -> dict[str, float]:
    return {
        "speedup": sdpa.median_s / anna.median_s,
        "speedup_low": sdpa.min_s / anna.max_s,
        "speedup_high": sdpa.max_s / anna.min_s,
    }


def linearity(results: dict, *, from_tokens: int = 16384) -> list[dict]:
    """ns per token of every ANNA method from `from_tokens` on, and its ratio to that size.

    Cost is linear where the ratio stays near one. If the sizes end below `from_tokens`, the
    smallest size is the base.
    """
    measured = [r for r in results["rows"] if "skipped" not in r and r["method"] != SDPA]
    sizes = sorted({row["num_tokens"] for row in measured})
    bases = [size for size in sizes if size >= from_tokens] or sizes
    lines = []
    for row in measured:
        same = [r for r in measured if r["method"] == row["method"]]
        same = [r for r in same if r["is_causal"] == row["is_causal"]]
        base = next((r for r in same if r["num_tokens"] == bases[0]), None)
        if base is None or row["num_tokens"] < bases[0]:
            continue
        kept = {name: row[name] for name in ("method", "is_causal", "num_tokens", "ns_per_token")}
        lines.append({**kept, "ratio": row["ns_per_token"] / base["ns_per_token"]})
    return sorted(lines, key=lambda line: (line["method"], line["is_causal"], line["num_tokens"]))
