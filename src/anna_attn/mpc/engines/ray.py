"""Machines in blocks, one block's part of a step a task of Ray; the one file that imports ray.

A round is Ray's own shuffle of plain tasks. A map task runs the step on a block and splits what it
sends by the block it goes to; a reduce task gathers what is sent to a block. Tasks depend on their
arguments alone and no worker keeps anything, so Ray runs again what a lost worker was doing, and
what a lost node held.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from ..model import Protocol, Result, Step
from . import blocks, enforce
from .record import Progress, Record

_BLOCKS_PER_CPU = 1
"""Of 1, 2 and 4, the fastest: what tasks cost outweighs what smaller ones would even out."""

_LARGE_BYTES = 1 << 16
"""What a task takes along rather than fetch; Ray's own bound is 100 KB for each argument."""

_CONNECT_SECONDS, _PROBE_SECONDS = 5, 20
"""For a socket to open, and for a whole trial connection."""

_PROBE = f"""
import socket, sys
address, host, port = sys.argv[1:]
if host:
    socket.create_connection((host, int(port)), timeout={_CONNECT_SECONDS}).close()
import logging, warnings
warnings.simplefilter("ignore")
import ray
ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
ray.cluster_resources()
"""
"""A trial connection for a process of its own: Ray retries a dead address for minutes."""

_opened: dict[str, tuple[Any, ...]] = {}
"""Of this process's job -> the options it was opened with, which Ray does not remember."""


@dataclass(frozen=True)
class RayEngine:
    """Run a protocol on Ray: on this computer's cores, or on a cluster.

    Output, trace and violations are those of `InProcess`; only `NotLocal` may name another of the
    machines that are not local.

    With no address, a Ray that this process runs or has joined is used as it is; otherwise a local
    one is started. As is Ray's habit, it then stays until the process ends or calls
    `ray.shutdown()`, and later runs use it. The environment's RAY_ADDRESS counts for "auto" only.

    Ray's workers need this package, and what the protocol's functions import.

    Args:
        check_locality: rerun every step on a random half of each block's machines and demand the
            same rows. Doubles the time of map tasks.
        seed: of these halves.
        address: of a cluster to join: "host:port", "ray://host:port" (needs `ray[client]`), or
            "auto" for the one on this computer. None = this process's own.
        num_blocks: of machines; no block gets fewer than 2 machines where there are as many.
            None = 1 for every CPU of the cluster. A task holds a block, what it keeps, sends and
            receives: more blocks need less memory for each task, and cost more tasks.
        num_cpus: of a local Ray; None = all.
        object_store_bytes: of a local Ray's shared memory, at least 75 MiB; None = 30% of memory.
        spill_directory: where a local Ray puts what its shared memory cannot hold; None = below
            its temporary directory.
        max_retries: how often a task is run again whose worker or node died.
    Raises: ValueError for options that cannot be, or that an address makes meaningless.
    """

    check_locality: bool = False
    seed: int = 0
    address: str | None = None
    num_blocks: int | None = None
    num_cpus: int | None = None
    object_store_bytes: int | None = None
    spill_directory: str | os.PathLike[str] | None = None
    max_retries: int = 3

    def __post_init__(self) -> None:
        for name, least in (("num_blocks", 1), ("num_cpus", 1), ("max_retries", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        # Ray refuses less too, but only once some of its processes are up.
        if self.object_store_bytes is not None and self.object_store_bytes < 75 << 20:
            raise ValueError(
                f"object_store_bytes must be at least 75 MiB = {75 << 20}, "
                f"got {self.object_store_bytes}"
            )
        if self.address is not None:
            self._refuse_local_options(f"a cluster is joined, at {self.address!r}")

    def run(
        self, protocol: Protocol, words: np.ndarray, *, progress: Progress | None = None
    ) -> Result:
        """As `InProcess.run`.

        Cost: 2 to 3 ms for each task on 2 cores; there are as many tasks as blocks in a local step,
            twice as many in a round. Ray holds the input until the end, and what
            machines keep and send in one step; words past its shared memory go to disk.
        Raises: also ImportError where Ray is not installed; ConnectionError quoting an address at
            which no Ray answers, within 30 seconds; ValueError for options of a local Ray when one
            runs already, or another address than the one this process has joined; RuntimeError
            where Ray gave a task up, or has no CPU. An interrupt cancels what runs.
        """
        placed = protocol.placed(words)
        ray = _imported()
        self._connect(ray)
        return _Run(ray, self, protocol, progress).result(placed)

    def _refuse_local_options(self, why: str) -> None:
        for name in ("num_cpus", "object_store_bytes", "spill_directory"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for a Ray that this engine starts, but {why}")

    def _connect(self, ray: Any) -> None:
        asked = (self.address, self.num_cpus, self.object_store_bytes, self.spill_directory)
        if ray.is_initialized():
            context = ray.get_runtime_context()
            if _opened.get(context.get_job_id()) == asked:
                return
            self._refuse_local_options("this process has a Ray already; ray.shutdown() ends it")
            if self.address not in (None, "auto", context.gcs_address):
                raise ValueError(
                    f"cannot join {self.address!r}: this process is connected to another Ray; "
                    "ray.shutdown() ends that"
                )
            return
        options: dict[str, Any] = {"address": self.address}
        if self.address is not None:
            _probe(self.address)
        else:
            options = {
                "address": "local",
                "num_cpus": self.num_cpus,
                "object_store_memory": self.object_store_bytes,
                "include_dashboard": False,
            }
            if self.spill_directory is not None:
                options["object_spilling_directory"] = os.fspath(self.spill_directory)
        with warnings.catch_warnings():
            # Advice about accelerators, of which this engine uses none.
            warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
            ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
        _opened[ray.get_runtime_context().get_job_id()] = asked


def _imported() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ImportError("RayEngine needs Ray: pip install 'anna-attn[ray]'") from error
    return ray


@lru_cache(maxsize=1)
def _tasks(job: str) -> dict[Callable[..., Any], Any]:
    """All tasks as Ray's, made once for a job: Ray keeps every one that it is given."""
    remote = _imported().remote(num_cpus=1)
    tasks = (blocks.start, blocks.map_step, blocks.reduce_step, blocks.output)
    return {task: remote(task) for task in tasks}


def _probe(address: str) -> None:
    """Demand that a Ray answers at the address.

    Raises: ConnectionError quoting it, after at most `_PROBE_SECONDS`.
    """
    host, port = "", ""
    if address != "auto":
        parts = re.fullmatch(r"(?:ray://)?([^\s/]+):(\d{1,5})", address)
        if parts is None or not 0 < int(parts[2]) < 1 << 16:
            raise ConnectionError(
                f"no Ray at {address!r}: an address is host:port, ray://host:port or auto"
            )
        host, port = parts[1].strip("[]"), parts[2]
    try:
        subprocess.run(
            [sys.executable, "-c", _PROBE, address, host, port],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        reason = f"what listens there does not answer as Ray does, in {_PROBE_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        # The first line of the exception, which may go on over several.
        raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|timeout)\b", line)]
        reason = (raised or lines or ["no reason given"])[-1][:300]
    else:
        return
    raise ConnectionError(f"no Ray at {address!r}: {reason}")


class _Run:
    """One run: a driver that holds references to what blocks keep, and reads reports."""

    def __init__(
        self, ray: Any, engine: RayEngine, protocol: Protocol, progress: Progress | None
    ) -> None:
        self._ray, self._engine, self._protocol = ray, engine, protocol
        self._progress = progress
        num_blocks = self._num_blocks()
        self._bounds = np.arange(num_blocks + 1) * protocol.num_machines // num_blocks
        plan = blocks.Plan(
            replace(protocol, steps=()),
            tuple({step.unless for step in protocol.steps if step.unless is not None}),
            self._bounds,
            engine.seed if engine.check_locality else None,
        )
        self._plan = self._packed(plan)
        # One by one: a worker then loads no more of a protocol than it runs.
        self._steps = [self._packed(step) for step in protocol.steps]
        # What each task returns: of all that are under way, and those that run the protocol.
        self._in_flight: list[list[Any]] = []
        self._at_work: list[list[Any]] = []

    def result(self, placed: np.ndarray) -> Result:
        """Run to the end, whatever way that comes."""
        # Held until the end: what a lost node kept can be computed again from the input alone.
        inputs = [self._ray.put(placed[begin:end]) for begin, end in pairwise(self._bounds)]
        try:
            memories, inboxes, reports = self._begin(inputs)
            record = Record(
                self._protocol, max(one.memory_words for one in reports), self._progress
            )
            flags = [one.flags for one in reports]
            for index, step in enumerate(self._protocol.steps):
                if step.unless is not None and enforce.agreed(
                    step, record.rounds, [one[step.unless] for one in flags]
                ):
                    inboxes = [None] * len(inboxes)
                    record.leave_out(step)
                    continue
                memories, inboxes, reports, received = self._step(
                    index, record.rounds, memories, inboxes
                )
                flags = [one.flags for one in reports]
                record.add(
                    step,
                    max(one.memory_words for one in reports),
                    max(one.sent_words for one in reports),
                    received,
                    sum(one.num_messages for one in reports),
                )
            return Result(self._collect(memories), record.trace())
        except KeyboardInterrupt:
            self._cancel()
            raise

    def _task(self, task: Callable[..., Any], num_returns: int) -> Any:
        """It as Ray's, to be called as `remote`."""
        known = _tasks(self._ray.get_runtime_context().get_job_id())[task]
        return known.options(num_returns=num_returns, max_retries=self._engine.max_retries)

    def _packed(self, thing: blocks.Plan | Step) -> Any:
        """It pickled once; what is small then travels with a task, which saves it a millisecond."""
        content = self._ray.cloudpickle.dumps(thing)
        return content if len(content) < _LARGE_BYTES else self._ray.put(content)

    def _num_blocks(self) -> int:
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        if cpus < 1:
            raise RuntimeError("this Ray cluster has no CPU to run tasks on")
        wanted = self._engine.num_blocks or _BLOCKS_PER_CPU * cpus
        return max(1, min(wanted, self._protocol.num_machines // 2))

    def _begin(self, inputs: list[Any]) -> tuple[list[Any], list[Any], list[blocks.Report]]:
        start = self._task(blocks.start, 2)
        done = [start.remote(self._plan, block, words) for block, words in enumerate(inputs)]
        self._in_flight = self._at_work = done
        reports = self._reports("input", 0, done)
        self._in_flight = self._at_work = []
        return [refs[0] for refs in done], [None] * len(done), reports

    def _step(
        self, index: int, round_index: int, memories: list[Any], inboxes: list[Any]
    ) -> tuple[list[Any], list[Any], list[blocks.Report], int]:
        """Memories and inboxes after a step, its reports, and the most words received."""
        step, num_blocks = self._protocol.steps[index], len(memories)
        shared = (self._plan, self._steps[index], round_index)
        run = self._task(blocks.map_step, 2 + (num_blocks if step.fanout > 0 else 0))
        done = [
            run.remote(*shared, block, memory, inbox)
            for block, (memory, inbox) in enumerate(zip(memories, inboxes, strict=True))
        ]
        arrived = []
        if step.fanout > 0:
            gather = self._task(blocks.reduce_step, 2)
            arrived = [
                gather.remote(*shared, block, *(refs[1 + block] for refs in done))
                for block in range(num_blocks)
            ]
        self._in_flight, self._at_work = [*done, *arrived], done
        reports = self._reports(step.name, round_index, done)
        self._at_work = []
        received = self._reports(step.name, round_index, arrived)
        self._in_flight = []
        most = max((one.received_words for one in received), default=0)
        boxes = [refs[0] for refs in arrived] or [None] * num_blocks
        return [refs[0] for refs in done], boxes, reports, most

    def _collect(self, memories: list[Any]) -> np.ndarray:
        run = self._task(blocks.output, 1)
        done = [[run.remote(self._plan, block, memory)] for block, memory in enumerate(memories)]
        self._in_flight = self._at_work = done
        parts = self._results("output", done)
        self._in_flight = self._at_work = []
        return enforce.cut(self._protocol, np.concatenate(parts))

    def _reports(self, name: str, round_index: int, tasks: list[list[Any]]) -> list[blocks.Report]:
        reports = self._results(name, tasks)
        blocks.check(name, round_index, reports)
        return reports

    def _results(self, name: str, tasks: list[list[Any]]) -> list[Any]:
        """The last of what each task returns.

        Raises: what the protocol's own functions raised in the first task in which they did;
            RuntimeError for a task that Ray gave up.
        """
        errors, results, failed = self._ray.exceptions, [], []
        for refs in tasks:
            try:
                results.append(self._ray.get(refs[-1]))
            except errors.RayError as error:
                failed.append(error)
        if not failed:
            return results
        self._read_errors()
        whole = failed[0]
        cause = whole.cause if isinstance(whole, errors.RayTaskError) else whole
        if not isinstance(cause, errors.RayError):
            raise cause from whole
        lines = str(cause).strip().splitlines() or ["no reason given"]
        if type(cause).__name__ in ("RayError", "UnserializableException"):
            # In place of an exception that pickle cannot make again; it ends with that one's words.
            # By name, for Ray 2.45 does not have the second.
            raise RuntimeError(
                f"step {name!r} of {self._protocol.name!r} raised what cannot be sent from process "
                f"to process: {lines[-1]}"
            ) from whole
        raise RuntimeError(
            f"Ray gave up step {name!r} of {self._protocol.name!r}, with max_retries="
            f"{self._engine.max_retries}: {type(cause).__name__}: {lines[0]}"
        ) from whole

    def _read_errors(self) -> None:
        """In each return of all tasks that failed: Ray prints those that nobody reads."""
        for refs in self._in_flight:
            try:
                self._ray.get(refs[-1])
            except self._ray.exceptions.RayError:
                for ref in refs[:-1]:
                    with contextlib.suppress(self._ray.exceptions.RayError):
                        self._ray.get(ref)

    def _cancel(self) -> None:
        """End the workers that run the protocol's own functions, which may be in one long call.

        No task that is short is cancelled: where one ends just then, Ray 2.55 may abort the driver.
        """
        refs = [task[-1] for task in self._at_work]
        if refs and self._ray.is_initialized():
            _, running = self._ray.wait(refs, num_returns=len(refs), timeout=0)
            for ref in running:
                self._ray.cancel(ref, force=True)
