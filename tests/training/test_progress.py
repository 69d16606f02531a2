import io

import pytest
from rich.console import Console

from anna_attn.training import ProgressEvent, TrainingBars, train
from anna_attn.training.progress import describe_event


def test_description():
    event = ProgressEvent("fresh", 0, 2, 3, 12, 3, 20, 0.25, None)
    assert describe_event(event) == "fresh: loss 0.2500"
    event = ProgressEvent("fresh", 0, 2, 3, 12, 3, 20, 0.25, 0.015)
    assert describe_event(event) == "fresh: loss 0.2500, error 1.500%"


def _console():
    return Console(file=io.StringIO(), width=160, force_terminal=True)


def test_one_bar_for_one_run(tiny):
    console = _console()
    with TrainingBars(console=console) as bars:
        train(tiny.model(), tiny.sampler, tiny.stages(), tiny.config(), progress=bars.add("seed 3"))
    text = console.file.getvalue()
    assert "seed 3" in text
    assert "20/20" in text
    assert "fixed: loss" in text


def test_one_bar_for_many_runs(tiny):
    console = _console()
    with TrainingBars(console=console) as bars:
        for_run = bars.add_runs("figure 1a", 2)
        for run in range(2):
            train(
                tiny.model(), tiny.sampler, tiny.stages(4, 2), tiny.config(), progress=for_run(run)
            )
    text = console.file.getvalue()
    assert "2/2" in text
    assert "run 2/2, fixed: loss" in text


@pytest.mark.parametrize("steps", [1, 3])
def test_bars_stop_when_training_fails(tiny, steps):
    console = _console()
    with pytest.raises(KeyboardInterrupt), TrainingBars(console=console) as bars:
        train(
            tiny.model(),
            tiny.interrupting_sampler(2 + steps),
            tiny.stages(),
            tiny.config(),
            progress=bars.add("cut"),
        )
    assert f"{steps}/20" in console.file.getvalue()
