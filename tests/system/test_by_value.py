"""Task classes that no file contains: of standard input, of `-c`, of a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

DEFINED = """\
from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

from libtask import Client, Task

SCALE = 3


def scaled(number):
    return math.isqrt(number) * SCALE


@dataclass
class Total(Task):
    n: int = 100
    where: Path = Path("/")
    pause: float = 0.0

    def total(self):
        return self.n

    def load(self):
        self.sum = 0

    def save(self, checkpoint):
        return {"sum": self.sum, "where": str(self.where)}


def add(task, device, checkpoint):
    for strip in checkpoint.strips():
        for number in strip:
            task.sum += scaled(number)
            time.sleep(task.pause)
        yield


Total.on("cpu")(add)
Total.on("gpu")(add)
"""
ONCE = """
with Client() as client:
    task = client.submit(Total(50, Path("/some/where")))
    print(json.dumps([task.result(60), task.info().type]))
"""
AGAIN = """
with Client() as client:
    found = [client.submit(Total(50)).result(60)]
    SCALE = 5
    found += client.map(Total, [50])

    def scaled(number):
        return 1

    found.append(client.submit(Total, {"n": 50}).result(60))

    @dataclass
    class Total(Task):
        def save(self, checkpoint):
            return "another class"

    @Total.on("cpu")
    def nothing(task, device, checkpoint):
        for strip in checkpoint.strips():
            yield

    found.append(client.submit(Total()).result(60))
    print(json.dumps(found))
"""
SUM = sum(int(number**0.5) for number in range(50))


def _run(daemon: PrivateDaemon, *words: str, text: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HETD_SOCKET": str(daemon.socket)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_class_of_standard_input_runs_with_what_it_uses(
    daemon: PrivateDaemon,
) -> None:
    found = _run(daemon, "-", text=DEFINED + ONCE)

    result = {"sum": 3 * SUM, "where": "/some/where"}
    assert found == [result, "notebook:Total/any"]


def test_a_class_of_a_command_line_runs(daemon: PrivateDaemon) -> None:
    assert _run(daemon, "-c", DEFINED + ONCE)[0]["sum"] == 3 * SUM


def test_a_program_without_a_guard_is_not_run_again(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    """A worker that imported the program would submit its tasks once more."""
    program = tmp_path / "my program.py"
    program.write_text(DEFINED + ONCE)
    before = daemon.client.tasks()[0].id if daemon.client.tasks() else 0

    found = _run(daemon, str(program))

    assert found[1] == "my_program:Total/any"
    assert daemon.client.tasks()[0].id == before + 1


def test_each_task_runs_what_is_defined_at_its_submission(
    daemon: PrivateDaemon,
) -> None:
    first, second, third, fourth = _run(daemon, "-", text=DEFINED + AGAIN)

    assert [each["sum"] for each in (first, second, third)] == [3 * SUM, 5 * SUM, 50]
    assert fourth == "another class"


MOVED = """
client = Client()
print(client.submit(Total(3000, pause=0.001), resources=["cpu", "gpu0"]).id)
"""


def test_it_moves_and_outlives_the_daemon(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    number = _run(daemon, "-", text=DEFINED + MOVED)
    daemon.await_state(number, "running")
    here = daemon.info(number).resource

    daemon.client.migrate(number, "gpu0" if here == "cpu" else "cpu")
    daemon.restart()
    result = daemon.client.handle(number).result(60)

    assert result["sum"] == 3 * sum(int(each**0.5) for each in range(3000))
    resources = [each.resource for each in daemon.info(number).segments]
    assert len(set(resources)) == 2


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ("import threading\nSCALE = threading.Lock()", "cannot pickle '_thread.lock'"),
        ("SCALE = bytes(20_000_000)", "is 19 MiB with what it refers to"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    daemon: PrivateDaemon, added: str, complaint: str
) -> None:
    program = f"""
{added}
try:
    Client().submit(Total(5))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""

    kind, text = _run(daemon, "-", text=DEFINED + program)

    assert kind == "InputError"
    assert complaint in text
    assert "\n" not in text
