"""Run named jobs with dependencies on all cores, with progress, and never one twice.

A job is a picklable object; its result is JSON. Results are kept in a folder: a job whose result is
there for the same settings is not run again, so an interrupted batch resumes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from anna_attn.lab.atomic import write_json

REPORT_EVERY_S = 0.2

Report = Callable[[int, int, str], None]
"""Told how much is done, of how much, and a few words."""


class Work(Protocol):
    """What a job does, in another process; must be picklable."""

    def execute(self, folder: Path, report: Report) -> dict[str, Any]:
        """Do it and return JSON-able results."""
        ...


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Args:
        name: unique; names the file of its result.
        work: what is done.
        settings: JSON-able; a kept result is used only if made with equal ones.
        needs: names of jobs whose results it reads.
    """

    name: str
    work: Work
    settings: dict[str, Any]
    needs: tuple[str, ...] = ()


def num_workers() -> int:
    """One process per core this process may use, at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)


def cached(
    name: str, settings: dict[str, Any], folder: Path, make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The kept result of that name and settings, or `make()`, which is then kept."""
    found = _kept(name, settings, folder)
    return _keep(name, settings, folder, make()) if found is None else found


def _keep(
    name: str, settings: dict[str, Any], folder: Path, result: dict[str, Any]
) -> dict[str, Any]:
    document = {"settings": settings, "result": result}
    write_json(folder / f"{name}.json", document)
    # What comes back is what a resumed run would read: JSON has no tuples.
    return json.loads(json.dumps(result))


def _kept(name: str, settings: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The result of an earlier run with the same settings, or None.

    A file that is not JSON (an old disk failure, say) counts as not there.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        return None
    wanted = json.loads(json.dumps(settings))
    if not isinstance(document, dict) or document.get("settings") != wanted:
        return None
    return document["result"]


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int | None = None,
    console: Console | None = None,
) -> dict[str, dict[str, Any]]:
    """Run every job once its needs are met; earlier jobs first.

    Args:
        jobs: in order of preference.
        folder: for results (`<name>.json`) and whatever the work writes below it.
        workers: processes, each with one torch thread; None = `num_workers()`.
        console: draws the bars.
    Returns: results by name.
    Raises: the first error of a job, after the others were stopped; KeyboardInterrupt likewise.
        Ended jobs are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_needs(jobs)
    found = {job.name: _kept(job.name, job.settings, folder) for job in jobs}
    results = {name: result for name, result in found.items() if result is not None}
    waiting = [job for job in jobs if job.name not in results]
    if not waiting:
        return results
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    manager.start(_end_with_parent)
    with manager, _bars(console) as bars:
        news = manager.Queue()
        overall = bars.add_task("all", total=len(jobs), completed=len(results), detail="")
        pool = ProcessPoolExecutor(workers or num_workers(), context, initializer=_quiet_worker)
        try:
            running: dict[Future, Job] = {}
            shown: dict[str, Any] = {}
            while waiting or running:
                _submit_ready(pool, waiting, running, results, folder, news, workers)
                done, _ = wait(running, timeout=REPORT_EVERY_S, return_when=FIRST_COMPLETED)
                _show_news(bars, shown, news)
                for future in done:
                    job = running.pop(future)
                    results[job.name] = _keep(job.name, job.settings, folder, future.result())
                    bars.update(overall, completed=len(results))
                    if job.name in shown:
                        bars.update(shown[job.name], visible=False)
        except BaseException:
            _stop(pool)
            raise
        pool.shutdown()
    return results


def _check_needs(jobs: Sequence[Job]) -> None:
    names = {job.name for job in jobs}
    for job in jobs:
        missing = sorted(set(job.needs) - names)
        if missing:
            raise ValueError(f"job {job.name!r} needs {missing}; accepted: names of given jobs")


def _submit_ready(
    pool: ProcessPoolExecutor,
    waiting: list[Job],
    running: dict[Future, Job],
    results: dict[str, dict[str, Any]],
    folder: Path,
    news: Any,
    workers: int | None,
) -> None:
    # No more than there are processes: a queued job cannot be overtaken by a better one.
    for job in list(waiting):
        if len(running) >= (workers or num_workers()):
            return
        if all(need in results for need in job.needs):
            waiting.remove(job)
            running[pool.submit(_execute, job.name, job.work, folder, news)] = job


def _execute(name: str, work: Work, folder: Path, news: Any) -> dict[str, Any]:
    last = 0.0

    def report(done: int, total: int, detail: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY_S or done >= total:
            last = now
            news.put((name, done, total, detail))

    return work.execute(folder, report)


def _quiet_worker() -> None:
    """One thread each; Ctrl-C is for the parent, which then stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when its parent does, even one that was killed and could tell nobody.

    Else two batches would write to one folder once the command is started again.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        # From a thread: an exception would end the thread alone.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now; runs lose the steps since their last checkpoint at most."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _bars(console: Console | None) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=console,
    )


def _show_news(bars: Progress, shown: dict[str, Any], news: Any) -> None:
    while True:
        try:
            name, done, total, detail = news.get_nowait()
        except queue.Empty:
            return
        if name not in shown:
            shown[name] = bars.add_task(name, total=total, detail=detail)
        bars.update(shown[name], completed=done, total=total, detail=detail)
