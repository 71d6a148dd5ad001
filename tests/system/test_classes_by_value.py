"""Classes of tasks that are defined in a notebook, on standard input or in a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import InputError
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, eventually
from system.snapshotting import ON_DEMAND, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

CELLS = (
    """
from __future__ import annotations
import json, os, sys, time
from dataclasses import dataclass, field
from pathlib import Path
from libtask import Client, Size, Task
FACTOR = 10
""",
    """
@dataclass
class Sum:
    value: int = 0

def scaled(number):
    return FACTOR * number
""",
    '''
@dataclass
class Scaled(Task):
    """The sum of scaled numbers; it waits for a file before strip 5."""
    n: int
    gate: Path | None = None
    words: list[str] = field(default_factory=list)

    def size(self):
        return Size(str(self.n), work=self.n)

    def load(self):
        self.sum = Sum()
        self.places = []

    def total(self):
        return self.n

    def save(self, checkpoint):
        return {"sum": self.sum.value, "same": type(self.sum) is Sum,
                "gate": isinstance(self.gate, Path), "python": sys.executable,
                "places": self.places, "words": self.words}

def scale(task, device, checkpoint):
    task.places.append([device.spec.name, os.getpid()])
    for strip in checkpoint.strips():
        for number in strip:
            if number == 5 and task.gate:
                wait_at(task.gate)
            task.sum.value += scaled(number)
        yield

def wait_at(gate):
    gate.with_suffix(".at").touch()
    while not gate.exists():
        time.sleep(0.002)
    time.sleep(0.1)  # the worker reads the order to move meanwhile

Scaled.on("cpu")(scale)
Scaled.on("gpu")(scale)
''',
)
DEFINITIONS = "".join(CELLS)
SUBMIT = """
with Client() as client:
    print(json.dumps(client.submit(Scaled(4, words=["a"]), name="by-value").result()))
"""
MOVE = """
with Client() as client:
    task = client.submit(Scaled(40, Path(sys.argv[-1]).absolute()), strip=1)
    while not Path(sys.argv[-1]).with_suffix(".at").exists():
        time.sleep(0.01)
    client.migrate(task.id, "gpu0" if task.info().resource == "cpu" else "cpu")
    Path(sys.argv[-1]).touch()
    print(json.dumps(task.result()))
"""
LEAVE = """
with Client() as client:
    print(client.submit(Scaled(400, Path(sys.argv[-1]).absolute()), strip=1).id)
"""
NOTEBOOK = f"""
import code, __main__
for cell in {[*CELLS, SUBMIT]!r}:
    code.InteractiveInterpreter(vars(__main__)).runcode(compile(cell, "<cell>", "exec"))
"""
FROM_INPUT = ("-",)


def run(
    daemon: PrivateDaemon, words: Sequence[str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python as a user of a daemon; `text` is its standard input."""
    return subprocess.run(
        [sys.executable, *words],
        input=text,
        cwd=daemon.folder,
        env={**os.environ, "HETD_SOCKET": str(daemon.socket)},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(FROM_INPUT, DEFINITIONS + SUBMIT, id="standard-input"),
        pytest.param(("-c", DEFINITIONS + SUBMIT), "", id="command-line"),
        pytest.param(("-c", NOTEBOOK), "", id="cells-of-a-notebook"),
    ],
)
def test_a_class_that_no_file_contains_runs_by_value(
    daemon: PrivateDaemon, hetctl: Terminal, words: Sequence[str], text: str
) -> None:
    result = printed(run(daemon, words, text))

    places = result.pop("places")
    expected = {"sum": 60, "same": True, "gate": False, "words": ["a"]}
    assert result == {**expected, "python": sys.executable}
    assert len(places) == 1
    shown = hetctl.json("show", "@by-value")
    assert shown["type"] == "__main__:Scaled/4"
    assert "__main__:Scaled" in hetctl("show", "@by-value")
    assert "__main__:Scaled" in hetctl("models", "list")


def test_a_program_that_submits_its_class_at_its_top_level_is_not_run_again(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(DEFINITIONS + f"FACTOR = int(sys.argv[1])\n{SUBMIT}")

    result = printed(run(daemon, [str(program), "7"]))

    assert result["sum"] == 7 * 6
    types = [each.type for each in daemon.client.tasks()]
    assert types.count("program:Scaled/4") == 1


def test_a_class_by_value_moves_in_the_middle(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    words = [*FROM_INPUT, str(tmp_path / "gate")]

    result = printed(run(daemon, words, DEFINITIONS + MOVE))

    assert result["sum"] == 10 * sum(range(40))
    assert {name for name, _ in result["places"]} == {"cpu", "gpu0"}
    assert result["same"]
    assert result["gate"]


def test_a_class_by_value_continues_from_a_snapshot_after_a_crash_of_everything(
    private_daemon: Callable[..., PrivateDaemon], tmp_path: Path
) -> None:
    daemon = private_daemon(settings(ON_DEMAND).replace("5.0", "0.5"))
    gate = tmp_path / "gate"
    task = printed(run(daemon, [*FROM_INPUT, str(gate)], DEFINITIONS + LEAVE))
    eventually(gate.with_suffix(".at").exists, "the gate")
    daemon.client.hold(task)
    daemon.client.snapshot(task)
    gate.touch()
    daemon.await_state(task, "held")
    eventually(lambda: daemon.info(task).snapshot, "a snapshot")
    crew = [daemon.launcher(), *daemon.workers()]

    daemon.kill9()
    for pid in crew:
        os.kill(pid, signal.SIGKILL)
    daemon.start()
    client = daemon.connect()
    client.submit("synthetic", {"seconds": {"cpu": 0.0}})  # for a launcher
    client.release(task)
    eventually(lambda: daemon.info(task).state in ENDED, "the end")
    ended = daemon.info(task)

    assert ended.state == "completed", ended.reason
    result: Any = ended.result
    assert result["sum"] == 10 * sum(range(400))
    assert result["same"], "the restored object is of another class"
    assert len({pid for _, pid in result["places"]}) == 2


def test_an_ended_task_of_such_a_class_is_submitted_again(
    daemon: PrivateDaemon,
) -> None:
    printed(run(daemon, FROM_INPUT, DEFINITIONS + SUBMIT))
    last = max(daemon.client.tasks(), key=lambda each: each.id)

    (again,) = daemon.client.requeue(last.id)

    result: Any = again.result(PATIENCE)
    assert result["sum"] == 60


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("LOCK = __import__('threading').Lock()", "cannot be pickled"),
        ("LOCK = os.urandom(17 << 20)", "at most 16777216; load large data"),
    ],
)
def test_what_a_class_refers_to_must_be_small_and_possible_to_pickle(
    daemon: PrivateDaemon, more: str, told: str
) -> None:
    text = DEFINITIONS + f"{more}\nScaled.lock = lambda task: LOCK\n" + SUBMIT
    before = daemon.client.tasks()

    done = run(daemon, FROM_INPUT, text)

    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"libtask.errors.{InputError.__name__}: Scaled: "), last
    assert told in last
    assert daemon.client.tasks() == before


def test_a_class_by_value_is_a_file_that_only_its_owner_can_read(
    daemon: PrivateDaemon,
) -> None:
    printed(run(daemon, FROM_INPUT, DEFINITIONS + SUBMIT))

    attachments = Path(daemon.crew_folder, "attachments")
    holding = [
        each for each in attachments.iterdir() if b"wait_at" in each.read_bytes()
    ]
    assert holding
    assert {each.stat().st_mode & 0o777 for each in holding} == {0o600}
    assert attachments.stat().st_mode & 0o777 == 0o700
