"""The tasks of the paper's experiments, generated with splits that cannot leak."""

from anna_attn.lab.tasks.induction_heads import induction_heads
from anna_attn.lab.tasks.k_hop import KHop, hop_targets, next_after_last
from anna_attn.lab.tasks.match2 import Match2, match2_labels
from anna_attn.lab.tasks.registry import get_task, task_names
from anna_attn.lab.tasks.split import Split
from anna_attn.lab.tasks.task import Task, TaskSampler, label_balance

__all__ = [
    "KHop",
    "Match2",
    "Split",
    "Task",
    "TaskSampler",
    "get_task",
    "hop_targets",
    "induction_heads",
    "label_balance",
    "match2_labels",
    "next_after_last",
    "task_names",
]
