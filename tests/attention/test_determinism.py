"""D. Outputs are a function of the inputs and the saved tables alone."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.checkpoint import checkpoint

from anna_attn.attention import anna_attention, full

BACKENDS = ("auto", "torch", "torch_one_table", "reference")

IN_A_NEW_PROCESS = """
import sys
from safetensors.torch import load_file, save_file
from anna_attn.attention import anna_attention
from anna_attn.lsh import HashTables, Hyperplane

saved = load_file(sys.argv[1])
tables = HashTables(Hyperplane(8), 5, 4, 2, seed=999)
tables.load_state_dict({k[7:]: v for k, v in saved.items() if k.startswith("tables.")})
inputs = [saved[name] for name in ("query", "key", "value")]
outputs = {
    f"{backend} {causal}": anna_attention(*inputs, tables, is_causal=causal, backend=backend)
    for backend in ("auto", "torch", "torch_one_table", "reference")
    for causal in (False, True)
}
save_file(outputs, sys.argv[2])
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_twice_the_same_bits(problem, backend, is_causal):
    plain = problem(300, 300, dtype=torch.float32)
    first = plain.gradients([plain.value], is_causal=is_causal, backend=backend)
    second = plain.gradients([plain.value], is_causal=is_causal, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_same_bits_in_a_new_process(problem, tmp_path):
    plain = problem(150, 150, dtype=torch.float32)
    saved = {f"tables.{name}": t for name, t in plain.tables.state_dict().items()}
    inputs = {"query": plain.query, "key": plain.key, "value": plain.value.detach()}
    save_file({**saved, **inputs}, tmp_path / "in.safetensors")
    command = [sys.executable, "-c", IN_A_NEW_PROCESS]
    arguments = [str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")]
    subprocess.run([*command, *arguments], check=True)
    outputs = load_file(tmp_path / "out.safetensors")
    for backend in BACKENDS:
        for is_causal in (False, True):
            here = plain.run(is_causal=is_causal, backend=backend)
            assert torch.equal(outputs[f"{backend} {is_causal}"], here)


@pytest.mark.parametrize("backend", BACKENDS)
def test_recomputation_gives_the_same_gradient(problem, backend):
    plain = problem(100, 100)

    def run(value):
        return anna_attention(plain.query, plain.key, value, plain.tables, backend=backend)

    (expected,) = torch.autograd.grad(run(plain.value).square().sum(), plain.value)
    output = checkpoint(run, plain.value, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(output, torch.Tensor)
    (actual,) = torch.autograd.grad(output.square().sum(), plain.value)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_random_state_is_left_alone(problem, backend):
    plain = problem(100, 100)
    before = torch.get_rng_state()
    plain.gradients([plain.value], backend=backend, is_causal=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("is_causal", [False, True])
def test_training_mode_and_grad_mode_change_nothing(problem, is_causal):
    plain = problem(300, 300, dtype=torch.float32)
    expected = plain.run(is_causal=is_causal)
    plain.tables.eval()
    with torch.no_grad():
        assert torch.equal(plain.run(is_causal=is_causal), expected)


@pytest.mark.parametrize("backend", ["torch", "torch_one_table"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_number_of_threads_changes_no_bit(problem, backend, is_causal):
    plain = problem(520, 520, dtype=torch.float32, width=16, batch=1, num_tables=2)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(plain.gradients([plain.value], is_causal=is_causal, backend=backend))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("budget", [200, 5_000, 40_000, 1 << 21])
@pytest.mark.parametrize("hashes", [4, 20])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"decay": [0.1, 0.5]}])
def test_other_rows_of_the_batch_change_no_bit(problem, hashes, options, budget, monkeypatch):
    """However heads and tables are taken together, and however many codes the others have."""
    monkeypatch.setattr(full, "STATE_ELEMENTS", budget)
    plain = problem(150, 150, dtype=torch.float32, batch=3, num_tables=7, hashes=hashes)
    query, key, value = plain.query, plain.key, plain.value.detach()
    query[0] = key[0] = query[0, :, :3].repeat(1, 50, 1)
    if "decay" in options:
        options = {"is_causal": True, "decay": torch.tensor(options["decay"])}
    options = {"backend": "torch", **options}
    together = anna_attention(query, key, value, plain.tables, **options)
    for b in range(3):
        rows = [x[b : b + 1] for x in (query, key, value)]
        alone = anna_attention(*rows, plain.tables, **options)
        assert torch.equal(alone, together[b : b + 1])
