"""Ray: output, trace and errors of the engine in one process; lost workers, bad addresses, disk."""

import gc
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from anna_attn.mpc import InProcess, ModelViolation, NotLocal, Protocol, RayEngine, Step
from anna_attn.mpc.protocols import (
    AttentionShape,
    anna_attention,
    connectivity,
    k_hop,
    list_ranking,
    low_rank_attention,
    match2,
    prefix_sum,
    sort,
)

ray = pytest.importorskip("ray")

# Ray leaves handles of what it starts to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:unclosed file <_io\.\w+ name='/dev/null':ResourceWarning"),
    pytest.mark.filterwarnings(r"ignore:subprocess \d+ is still running:ResourceWarning"),
]

# As a script, whose functions no other process can import: Ray then ships them whole.
VIOLATIONS = runpy.run_path(str(Path(__file__).with_name("test_violations.py")))


@pytest.fixture(scope="module", autouse=True)
def local_ray(trials_of_addresses):
    words = np.arange(3)
    assert RayEngine(num_cpus=2).run(prefix_sum(3, 0.5), words).output.tolist() == [0, 1, 3]
    assert ray.cluster_resources()["CPU"] == 2
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    gc.collect()


def both(protocol, words, **options):
    """Results of Ray and of one process."""
    engine = RayEngine(check_locality=True, **options)
    return engine.run(protocol, words), InProcess(check_locality=True).run(protocol, words)


def assert_same(protocol, words, **options):
    found, expected = both(protocol, words, **options)
    assert np.array_equal(found.output, expected.output)
    assert found.output.dtype == expected.output.dtype
    assert found.trace == expected.trace
    return found


def attention(num_tokens, is_causal):
    shape = AttentionShape(num_heads=1, num_tables=2, code_bits=3, value_dim=2, value_bits=3)
    return anna_attention(num_tokens, 5, shape, is_causal=is_causal)


PROTOCOLS = {
    "sort": lambda n, eps: (sort(n, eps, word_bits=10), 1 << 10),
    "prefix_sum": lambda n, eps: (prefix_sum(n, eps), 1 << 20),
    "k_hop": lambda n, eps: (k_hop(n, eps, num_symbols=4, hops=3), 4),
    "match2": lambda n, eps: (match2(n, eps, modulus=37), 37),
}


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
@pytest.mark.parametrize("num_words", [0, 1, 5, 500])
@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_protocols_on_words(name, num_words, eps):
    protocol, high = PROTOCOLS[name](num_words, eps)
    words = np.random.default_rng(num_words).integers(0, high, num_words)
    assert_same(protocol, words, num_blocks=3)


@pytest.mark.parametrize("eps", [1 / 3, 1 / 2, 2 / 3])
def test_list_ranking(eps):
    successors = np.append(np.random.default_rng(0).permutation(np.arange(2, 101)), 0)
    successors = np.where(successors == np.arange(1, 101), 0, successors)
    order = np.random.default_rng(1).permutation(100)
    successors[order[:-1]], successors[order[-1]] = order[1:] + 1, 0
    assert_same(list_ranking(100, eps), successors)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal):
    words = np.random.default_rng(0).integers(0, 8, 60 * 6)
    assert assert_same(attention(60, is_causal), words, num_blocks=4).output.any()


def test_low_rank_attention():
    protocol = low_rank_attention(50, 3, rank=2, value_dim=2, feature_bits=4, value_bits=4)
    assert_same(protocol, np.random.default_rng(0).integers(0, 16, 50 * 6))


def test_a_loop_that_halts_early():
    edges = np.random.default_rng(0).integers(0, 40, 60)
    protocol = connectivity(40, 30, 0.5)
    found = assert_same(protocol, edges)
    assert found.trace.num_rounds < protocol.num_rounds


def test_every_number_of_blocks():
    words = np.random.default_rng(0).integers(0, 1 << 20, 200)
    protocol = prefix_sum(200, 0.5)
    traces = {
        RayEngine(num_blocks=blocks).run(protocol, words).trace
        for blocks in (1, 2, 5, protocol.num_machines, 1000)
    }
    assert traces == {InProcess().run(protocol, words).trace}


def test_progress_is_told_as_elsewhere():
    told = {}
    protocol, words = prefix_sum(50, 0.5), np.arange(50)
    for name, engine in (("ray", RayEngine()), ("here", InProcess())):
        told[name] = []
        engine.run(protocol, words, progress=lambda *call, to=told[name]: to.append(call))
    assert told["ray"] == told["here"]
    assert told["ray"]


def error_of(engine, run):
    with pytest.raises(ValueError) as info:  # noqa: PT011 - which one is compared
        run(engine)
    return info.value


def assert_same_error(run):
    expected = error_of(InProcess(check_locality=True), run)
    found = error_of(RayEngine(check_locality=True, num_blocks=3), run)
    assert type(found) is type(expected)
    if isinstance(expected, NotLocal):
        # Which machines are not local depends on who is rerun together.
        assert found.machine in range(6)
        found.machine = expected.machine
        assert vars(found) == vars(expected)
    elif isinstance(expected, ModelViolation):
        assert (vars(found), str(found)) == (vars(expected), str(expected))
    else:
        assert str(found) == str(expected)
    return found


@pytest.mark.parametrize("case", list(VIOLATIONS["CASES"]))
def test_violations(case):
    step, kind, *_ = VIOLATIONS["CASES"][case]
    assert isinstance(assert_same_error(lambda engine: VIOLATIONS["run"](engine, step)), kind)


@pytest.mark.parametrize("name", ["missing_rows", "floats", "no_messages", "wide_payload"])
def test_violations_of_shape(name):
    fanout = 0 if name in ("missing_rows", "floats") else 1
    step = Step("broken", VIOLATIONS[name], fanout, fanout, fanout)
    error = assert_same_error(lambda engine: VIOLATIONS["run"](engine, step))
    assert "shape: step 'broken', round 0" in str(error)


def small(*steps, init=lambda ids, words: {"x": words}, machines=6, name="small"):
    """A protocol that keeps one word on each machine."""
    return Protocol(
        name=name,
        num_machines=machines,
        local_memory=8,
        word_bits=8,
        num_words=machines,
        words_per_machine=1,
        init=init,
        steps=steps,
        output=lambda ids, memory: memory["x"],
        num_outputs=machines,
    )


def to_the_next(machines=6):
    """A step that sends each machine's word to the next."""

    def fn(ids, memory, inbox):
        return memory, (ids[:, None] + 1) % machines, memory["x"][..., None]

    return Step("to the next", fn, 1, 1, 1)


def keep_received():
    def fn(ids, memory, inbox):
        return {"x": inbox.payload[:, 0]}, None, None

    return Step("keep", fn)


@pytest.mark.parametrize(
    "flags",
    [[0, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 0, 0], [2] * 6, [0, 0, 0, 0, 3, 1]],
)
def test_machines_that_do_not_agree_to_leave_a_step_out(flags):
    idle = Step("maybe", lambda ids, memory, inbox: (memory, None, None), unless="x")
    protocol, words = small(to_the_next(), keep_received(), idle), np.array([*map(int, flags)])
    error = assert_same_error(lambda engine: engine.run(protocol, words))
    assert "agreement to leave a step out: step 'maybe', round 1" in str(error)


def test_several_rules_broken_at_once():
    """Machine 1 sends to nobody, machine 3 keeps a wide word, and machine 5 is told too much."""

    def fn(ids, memory, inbox):
        kept = np.where(ids[:, None] == 3, 256, memory["x"])
        to = np.where(ids[:, None] == 1, 77, 5)
        return {"x": kept}, to, memory["x"][..., None]

    protocol = small(to_the_next(), Step("broken", fn, 1, 1, 1))
    error = assert_same_error(lambda engine: engine.run(protocol, np.arange(6)))
    assert (type(error).__name__, error.machine, error.round_index) == ("UnknownMachine", 1, 1)


def test_blocks_that_keep_other_shapes():
    def fn(ids, memory, inbox):
        return {"x": np.repeat(memory["x"], 2 if 0 in ids else 1, 1)}, None, None

    with pytest.raises(NotLocal, match="found field 'x' of another shape"):
        RayEngine(num_blocks=2).run(small(Step("wide", fn)), np.arange(6))


def test_what_a_protocol_raises_arrives_as_it_is():
    wrong = k_hop(4, 0.5, num_symbols=2, hops=1)
    error = assert_same_error(lambda engine: engine.run(wrong, np.array([0, 1, 3, 1])))
    assert str(error) == "symbols must lie in [0, 2), got 3"
    assert_same_error(lambda engine: engine.run(list_ranking(5, 0.5), np.array([2, 0, 4, 3, 0])))

    def write(ids, memory, inbox):
        memory["x"][:] = 0
        return memory, None, None

    error = assert_same_error(lambda engine: engine.run(small(Step("writes", write)), np.arange(6)))
    assert "read-only" in str(error)
    assert "memory[" in str(error.__cause__)


@pytest.mark.parametrize("kind", ["of two arguments", "that holds a lock"])
def test_what_cannot_travel_arrives_in_words(kind):
    def fn(ids, memory, inbox):
        error = of_two(1, 2) if kind == "of two arguments" else ValueError("1 and 2")
        error.lock = threading.Lock() if kind == "that holds a lock" else None
        raise error

    class OfTwo(Exception):
        """Pickle would make it again from its message, which is one argument."""

        def __init__(self, one, other):
            super().__init__(f"{one} and {other}")

    of_two = OfTwo
    words = "step 'raises' of 'small' raised what cannot be sent from process to process: .*1 and 2"
    with pytest.raises(RuntimeError, match=words):
        RayEngine().run(small(Step("raises", fn)), np.arange(6))


def test_errors_are_not_printed_as_well(capfd):
    def fn(ids, memory, inbox):
        raise ValueError("of a block")

    sending = Step("raises", fn, 1, 1, 1)
    with pytest.raises(ValueError, match="of a block"):
        RayEngine(num_blocks=3).run(small(sending), np.arange(6))
    time.sleep(0.5)
    assert RayEngine().run(small(), np.arange(6)).output.tolist() == list(range(6))
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def dying_in(task, note):
    """A step that sends; the first task of that name notes its pid and waits to be killed."""
    inner = to_the_next().fn

    def claimed():
        try:
            os.close(os.open(f"{note}.claim", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    class Watched:
        def __init__(self):
            self.known = True

        def __setstate__(self, state):
            # Called where a task unpickles the step: in the tasks that map, and those that reduce.
            frame = sys._getframe()
            while frame is not None and frame.f_code.co_name != task:
                frame = frame.f_back
            if frame is not None and claimed():
                with open(f"{note}.part", "w") as file:
                    file.write(str(os.getpid()))
                os.rename(f"{note}.part", note)
                time.sleep(60)

        def __call__(self, *arguments):
            return inner(*arguments)

    return Step("to the next", Watched(), 1, 1, 1)


@pytest.mark.parametrize("task", ["map_step", "reduce_step"])
def test_a_worker_killed_at_work(task, tmp_path):
    note = tmp_path / "pid"
    killed = []

    def kill():
        while not note.exists():
            time.sleep(0.01)
        killed.append(int(note.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    steps = [to_the_next(), keep_received(), dying_in(task, str(note)), keep_received()]
    protocol = small(*steps, *steps[:2])
    killer.start()
    began = time.monotonic()
    found = RayEngine().run(protocol, np.arange(6))
    assert time.monotonic() - began < 30
    killer.join(10)
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    plain = InProcess().run(small(*[to_the_next(), keep_received()] * 3), np.arange(6))
    assert np.array_equal(found.output, plain.output)
    assert found.trace == plain.trace


def test_workers_killed_between_steps(tmp_path):
    """They hold nothing that later steps need."""

    def fn(ids, memory, inbox):
        (tmp_path / str(os.getpid())).touch()
        return memory, None, None

    killed = []

    def kill(done, total, name):
        for note in tmp_path.iterdir() if name == "noted" else ():
            killed.append(int(note.name))
            os.kill(killed[-1], signal.SIGKILL)
            note.unlink()

    steps = [to_the_next(), keep_received(), Step("noted", fn)] * 3
    began = time.monotonic()
    found = RayEngine().run(small(*steps), np.arange(6), progress=kill)
    assert time.monotonic() - began < 40
    assert len(killed) >= 3
    expected = InProcess().run(small(*steps), np.arange(6))
    assert np.array_equal(found.output, expected.output)
    assert found.trace == expected.trace


def test_a_step_that_kills_every_worker_is_given_up():
    def fn(ids, memory, inbox):
        os.kill(os.getpid(), signal.SIGKILL)

    words = "Ray gave up step 'dies' of 'small', with max_retries=1: WorkerCrashedError"
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=words):
        RayEngine(max_retries=1).run(small(Step("dies", fn)), np.arange(6))
    assert time.monotonic() - began < 40


def test_an_interrupt_stops_what_runs():
    def fn(ids, memory, inbox):
        time.sleep(60)
        return memory, None, None

    # Where tests run in the background, interrupts are ignored unless asked for.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            RayEngine().run(small(Step("sleeps", fn)), np.arange(6))
    finally:
        interrupt.cancel()
        signal.signal(signal.SIGINT, before)
    began = time.monotonic()
    assert RayEngine().run(small(), np.arange(6)).output.tolist() == list(range(6))
    assert time.monotonic() - began < 30


OPTIONS = {
    "num_blocks": (0, "num_blocks must be at least 1, got 0"),
    "num_cpus": (0, "num_cpus must be at least 1, got 0"),
    "max_retries": (-1, "max_retries must be at least 0, got -1"),
    "object_store_bytes": (1000, "object_store_bytes must be at least 75 MiB = 78643200, got 1000"),
}


@pytest.mark.parametrize("name", list(OPTIONS))
def test_options_that_cannot_be(name):
    value, words = OPTIONS[name]
    with pytest.raises(ValueError, match=words):
        RayEngine(**{name: value})


def test_a_ray_is_used_again_by_engines_of_the_same_options(local_ray):
    for engine in (RayEngine(num_cpus=2), RayEngine(num_cpus=2, num_blocks=1), RayEngine()):
        assert engine.run(prefix_sum(3, 0.5), np.arange(3)).output.tolist() == [0, 1, 3]
    assert ray.get_runtime_context().gcs_address == local_ray


LOCAL = {"num_cpus": 3, "object_store_bytes": 80 << 20, "spill_directory": "/somewhere"}


@pytest.mark.parametrize("name", list(LOCAL))
def test_options_that_would_have_no_effect(name):
    option = {name: LOCAL[name]}
    with pytest.raises(ValueError, match=f"{name} is for a Ray .* joined, at 'a:1'"):
        RayEngine(address="a:1", **option)
    with pytest.raises(ValueError, match=f"{name} is for a Ray .* this process has a Ray already"):
        RayEngine(**option).run(prefix_sum(3, 0.5), np.arange(3))


def test_an_address_of_another_ray_than_the_one_that_runs(local_ray):
    engine = RayEngine(address=local_ray)
    assert engine.run(prefix_sum(3, 0.5), np.arange(3)).output.tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match=r"cannot join '10\.0\.0\.1:1': this process is connected"):
        RayEngine(address="10.0.0.1:1").run(prefix_sum(3, 0.5), np.arange(3))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'anna-attn[ray]'")):
        RayEngine().run(prefix_sum(3, 0.5), np.arange(3))


def in_a_process(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


JOIN = """
import json, sys
import numpy as np
from anna_attn.mpc import InProcess, RayEngine
from anna_attn.mpc.protocols import prefix_sum
protocol, words = prefix_sum(100, 0.5), np.arange(100)
expected = InProcess().run(protocol, words)
for _ in range(2):
    found = RayEngine(address=sys.argv[1]).run(protocol, words)
    assert found.trace == expected.trace
    assert np.array_equal(found.output, expected.output)
import ray
print(json.dumps([ray.get_runtime_context().gcs_address, ray.get_runtime_context().get_job_id()]))
"""


def test_joining_a_ray_started_elsewhere(local_ray):
    address, job = in_a_process(JOIN, f"localhost:{local_ray.rpartition(':')[2]}")
    assert address == local_ray
    assert job != ray.get_runtime_context().get_job_id()


SPILL = """
import json, os, sys
import numpy as np
from anna_attn.mpc import RayEngine
from anna_attn.mpc.protocols import prefix_sum
store, spilled = 80 << 20, 0
def look(*_):
    global spilled
    files = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names]
    spilled = max(spilled, sum(os.path.getsize(file) for file in files if os.path.exists(file)))
words = np.random.default_rng(0).integers(0, 1000, 8_000_000)
engine = RayEngine(
    num_blocks=16, num_cpus=2, object_store_bytes=store, spill_directory=sys.argv[1]
)
output = engine.run(prefix_sum(len(words), 0.5), words, progress=look).output
print(json.dumps([bool(np.array_equal(output, np.cumsum(words))), spilled, words.nbytes]))
"""


def test_what_shared_memory_cannot_hold_goes_to_disk(tmp_path):
    is_right, spilled, held = in_a_process(SPILL, tmp_path)
    assert is_right
    # The input and what machines keep of it are twice its bytes.
    assert spilled >= 2 * held - (80 << 20)


ADDRESSES = """
import json, socket, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from anna_attn.mpc import RayEngine
from anna_attn.mpc.protocols import prefix_sum
def trial(address):
    began = time.monotonic()
    try:
        RayEngine(address=address).run(prefix_sum(3, 0.5), np.arange(3))
    except ConnectionError as error:
        return address, str(error), time.monotonic() - began
with ThreadPoolExecutor(len(sys.argv)) as pool:
    print(json.dumps(list(pool.map(trial, sys.argv[1:]))))
"""

MALFORMED = ["nonsense", "127.0.0.1:", ":6379", "127.0.0.1:port", "127.0.0.1:99999", "a..b:1"]
CLOSED = "127.0.0.1:1"
SILENT = "10.255.255.1:6379"


@pytest.fixture(scope="module")
def trials_of_addresses():
    """Under way from the start: some take 20 seconds of waiting."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        other = f"127.0.0.1:{listening.getsockname()[1]}"
        addresses = [*MALFORMED, CLOSED, f"ray://{CLOSED}", SILENT, other]
        with subprocess.Popen(
            [sys.executable, "-c", ADDRESSES, *addresses],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as trials:
            yield addresses, trials
            trials.kill()


def test_addresses_without_a_ray(trials_of_addresses):
    addresses, trials = trials_of_addresses
    output, errors = trials.communicate(timeout=60)
    assert trials.returncode == 0, errors
    found = {address: (words, seconds) for address, words, seconds in json.loads(output)}
    assert list(found) == addresses
    for address, (words, seconds) in found.items():
        assert words.startswith(f"no Ray at {address!r}: ")
        assert "\n" not in words
        assert seconds < 30
    for address in MALFORMED[:-1]:
        assert "an address is host:port" in found[address][0]
    assert "ConnectionRefusedError" in found[CLOSED][0]
    assert "does not answer as Ray does" in found[addresses[-1]][0]
