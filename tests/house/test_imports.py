"""What importing the package brings along, seen in a fresh process."""

import subprocess
import sys

ROOMS = ["lsh", "attention", "nn", "training"]


def modules_loaded_by(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_package_and_its_command_start_without_torch():
    loaded = modules_loaded_by("import anna_attn, anna_attn.cli")
    assert "anna_attn.cli" in loaded
    assert loaded & {"torch", "anna_attn.lab", "matplotlib", "jinja2", "scipy"} == set()


def test_the_library_starts_without_the_extra_lab():
    loaded = modules_loaded_by("; ".join(f"import anna_attn.{room}" for room in ROOMS))
    assert {f"anna_attn.{room}" for room in ROOMS} <= loaded
    assert loaded & {"anna_attn.lab", "matplotlib", "jinja2", "scipy", "typer"} == set()


def test_the_simulator_starts_without_torch():
    loaded = modules_loaded_by("import anna_attn.mpc, anna_attn.mpc.protocols")
    assert "anna_attn.mpc" in loaded
    assert loaded & {"torch", "anna_attn.lsh", "matplotlib", "typer"} == set()


def test_importing_leaves_the_global_random_state_alone():
    # Python's own `random` is left out: rich draws the ids of its styles from it on import.
    rooms = [*ROOMS, "lab.tasks", "lab.benchmarks", "mpc", "mpc.protocols"]
    loaded = modules_loaded_by(
        "import numpy, torch; "
        "state = (numpy.random.get_state()[1].tolist(), torch.get_rng_state()); "
        + "; ".join(f"import anna_attn.{room}" for room in rooms)
        + "; assert state[0] == numpy.random.get_state()[1].tolist(); "
        "assert torch.equal(state[1], torch.get_rng_state())"
    )
    assert {f"anna_attn.{room}" for room in rooms} <= loaded
