"""Small picklable jobs for test_jobs.py, importable by worker processes."""

import json
import os
import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Add:
    """Sum the kept results it needs, plus a number; counts how often it ran."""

    number: int
    needs: tuple[str, ...] = ()

    def execute(self, folder, report):
        assert torch.get_num_threads() == 1
        report(1, 1, "adding")
        with open(folder / f"ran-{self.number}", "a") as log:
            log.write(f"{os.getpid()}\n")
        read = [json.loads((folder / f"{n}.json").read_text())["result"] for n in self.needs]
        return {"sum": self.number + sum(result["sum"] for result in read)}


@dataclass(frozen=True)
class Fail:
    """A job that fails."""

    def execute(self, folder, report):
        raise ValueError("the job's own words")


@dataclass(frozen=True)
class Wait:
    """Says in a file which process it runs in, then does not end."""

    def execute(self, folder, report):
        (folder / "waiting").write_text(f"{os.getpid()}\n")
        while True:
            time.sleep(0.1)
