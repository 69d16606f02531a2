"""The one contract of all tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from anna_attn.lab.tasks.split import Split, check_split, draw_from_split
from anna_attn.training import Batch


@dataclass(frozen=True)
class Task(ABC):
    """A synthetic task: sequences drawn from a stated law, with answers by definition.

    Another length (for generalisation) is `dataclasses.replace(task, length=200)`.

    Args: length: T, tokens of one input.
    """

    length: int

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `get_task` finds it."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Input tokens lie in [0, vocab_size)."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Targets lie in [0, num_outputs)."""

    @property
    @abstractmethod
    def is_causal(self) -> bool:
        """Whether position i may only see positions up to i."""

    @abstractmethod
    def draw(self, num: int, generator: torch.Generator) -> Tensor:
        """Draw (num, S) int64 sequences of the task's law, without regard to splits."""

    def canonical(self, sequences: Tensor) -> Tensor:
        """The part of a sequence that decides its split; equal rows never lie in two splits."""
        return sequences

    @abstractmethod
    def to_batch(
        self, sequences: Tensor, generator: torch.Generator, hops: int | None = None
    ) -> Batch:
        """Inputs, answers and counted positions for drawn sequences."""

    def check_hops(self, hops: int | None) -> None:
        """Refuse a number of hops the task does not have."""
        if hops is not None:
            raise ValueError(f"hops is {hops!r}, but {self.name} has no hops; accepted: None")

    def sampler(self, split: Split, *, hops: int | None = None) -> TaskSampler:
        """A sampler (batch_size, generator) -> Batch of one split.

        Args:
            split: "train", "validation" or "test"; no example is in two of them.
            hops: k-hop tasks only; None = the task's own.
        Raises: ValueError for an unknown split, or hops where there are none.
        """
        check_split(split)
        self.check_hops(hops)
        return TaskSampler(self, split, hops)

    def describe(self) -> str:
        """What the task is, with the label balance of 1,000 test sequences, for printing."""
        balance = label_balance(self, "test", num_sequences=1000, seed=0)
        shares = ", ".join(f"{label}: {share:.1%}" for label, share in enumerate(balance))
        order = "causal" if self.is_causal else "full"
        return (
            f"{self.name}: length {self.length}, {self.vocab_size} tokens, "
            f"{self.num_outputs} outputs, {order} attention; label balance {shares}; "
            f"always answering the most frequent label errs on {1 - max(balance):.1%}"
        )


@dataclass(frozen=True)
class TaskSampler:
    """Draws batches of one split of one task; all randomness comes from the generator."""

    task: Task
    split: Split
    hops: int | None = None

    def __call__(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Draw `batch_size` examples."""
        sequences = draw_from_split(
            lambda num: self.task.draw(num, generator), self.task.canonical, self.split, batch_size
        )
        return self.task.to_batch(sequences, generator, self.hops)


def label_balance(
    task: Task, split: Split = "test", *, num_sequences: int = 1000, seed: int = 0
) -> tuple[float, ...]:
    """The share of each label among the positions that count, on freshly drawn sequences.

    Returns: num_outputs shares that sum to one. 1 - max(shares) is the error of always answering
        the most frequent label, the number any model's error is to be read against.
    """
    generator = torch.Generator().manual_seed(seed)
    batch = task.sampler(split)(num_sequences, generator)
    counts = torch.bincount(batch.targets[batch.mask], minlength=task.num_outputs)
    return tuple((counts.double() / counts.sum()).tolist())
