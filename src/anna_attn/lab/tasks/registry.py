"""Tasks by name, for the command line and for saved configurations."""

from __future__ import annotations

from dataclasses import replace

from anna_attn.lab.tasks.induction_heads import induction_heads
from anna_attn.lab.tasks.k_hop import KHop
from anna_attn.lab.tasks.match2 import Match2
from anna_attn.lab.tasks.task import Task

_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Match2(),
        induction_heads(),
        KHop(hops=2),
        KHop(hops=4),
        KHop(hops=16, mixed=True),
    )
}


def task_names() -> tuple[str, ...]:
    """The names `get_task` knows."""
    return tuple(_TASKS)


def get_task(name: str, *, length: int | None = None) -> Task:
    """Find a task with the paper's sizes.

    Args:
        name: one of `task_names()`.
        length: another length than the paper's; None = the paper's.
    Raises: ValueError for an unknown name (the message lists the known ones) or a bad length.
    """
    if name not in _TASKS:
        raise ValueError(f"task is {name!r}; accepted: {', '.join(_TASKS)}")
    task = _TASKS[name]
    return task if length is None else replace(task, length=length)
