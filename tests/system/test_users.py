"""Several users of one daemon see and change what is theirs, and nothing else's.

Root only: with real uids.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import PATIENCE, RESOURCES, eventually
from system.shared_daemon import (
    ANN,
    BEN,
    DAEMON,
    EVE,
    SharedDaemon,
    missing,
    shared_daemon,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

CONFIG = """
policy = "affinity"
[limits]
running = 1
"""
LONG = ("synthetic", "--seconds", '{"cpu": 600, "gpu": 600}', "--strips", "60000")
VERBS: dict[str, tuple[str, ...]] = {
    "list": ("--all",),
    "show": ("TASK", "--json"),
    "logs": ("TASK",),
    "explain": ("TASK",),
    "result": ("TASK",),
    "events": ("--json",),
    "history": (),
    "progress": (),
    "report": (),
    "trace": (),
    "requeue": ("TASK",),
    "top": ("--once",),
}
"""Verbs that tell of tasks, with their arguments."""
ASK = """
import json, sys
from click.testing import CliRunner
from hetctl.__main__ import main
socket, task, verbs = sys.argv[1:]
told = {}
for verb, words in json.loads(verbs).items():
    words = [task if word == "TASK" else word for word in words]
    result = CliRunner().invoke(main, [verb, "--socket", socket, *words])
    told[verb] = result.output
    assert "Usage" not in result.output, result.output
    assert "no such option" not in result.output.lower(), result.output
print(json.dumps(told))
"""
"""Program that uses the verbs one after the other."""
MARKED = '{"cpu": 600, "gpu": 600}'


@pytest.fixture
def shared() -> Iterator[SharedDaemon]:
    with shared_daemon(CONFIG + RESOURCES) as shared:
        yield shared


def answers(shared: SharedDaemon, task: int) -> dict[str, str]:
    """Return what each verb tells another user, and the daemon's, about a task."""
    found: dict[str, str] = {}
    for uid in (BEN, DAEMON):
        python = shared.command(uid)[:-1]  # without -m
        done = subprocess.run(
            [*python, "-c", ASK, str(shared.socket), str(task), json.dumps(VERBS)],
            env=shared.environment(uid),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        told = json.loads(done.stdout)
        found |= {f"{verb} of {uid}": text for verb, text in told.items()}
    return found


def another_python(shared: SharedDaemon, uid: int) -> str:
    """Make an interpreter of a user's own."""
    folder = shared.home(uid) / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {shared.interpreter.parent}\n")
    (folder / "bin" / "python").symlink_to(shared.interpreter)
    return str(folder / "bin" / "python")


def submit(shared: SharedDaemon, uid: int, count: int) -> list[int]:
    ids = []
    for _ in range(count):
        words = ("synthetic", "--seconds", MARKED, "--strips", "60000")
        status, document, complaint = shared.hetctl(uid, "submit", *words)
        assert status == 0, complaint
        ids += document["ids"]
    return ids


def workers_of(shared: SharedDaemon, uid: int) -> int:
    """Count the launcher and workers of a user."""
    return sum(owner == uid for owner in shared.processes().values())


def test_users_share_a_daemon_and_nothing_else(shared: SharedDaemon) -> None:
    first, second = submit(shared, ANN, 2)
    (other,) = submit(shared, BEN, 1)
    eventually(lambda: workers_of(shared, ANN) > 1, "a worker of the one")
    eventually(lambda: workers_of(shared, BEN) > 1, "a worker of the other")

    # each runs what is his, as himself, one at a time as the limit says
    assert set(shared.processes().values()) == {ANN, BEN}
    assert shared.seen(ANN) == {first: "running", second: "queued"}
    assert shared.seen(BEN) == {other: "running"}

    status, _, complaint = shared.hetctl(BEN, "show", str(first))
    assert (status, json.loads(complaint)["text"]) == (
        5,
        "task 1 belongs to another user",
    )
    status, _, complaint = shared.hetctl(BEN, "cancel", str(first))
    assert (status, json.loads(complaint)["text"]) == (
        5,
        "task 1 belongs to another user",
    )
    assert shared.hetctl(BEN, "drain", "cpu")[0] == 5
    assert shared.seen(ANN)[first] == "running"

    # who is not of the group does not even come to speak
    status, _, complaint = shared.hetctl(EVE, "list")
    assert status == 3, complaint
    assert f"no permission to use {shared.socket}" in complaint


def test_nobody_else_reads_what_a_command_has_in_its_environment(
    shared: SharedDaemon,
) -> None:
    word = "what-only-ann-may-read"
    words = ("--env", f"PRIVATE={word}", "--", "sleep", "1000")
    status, document, complaint = shared.hetctl(ANN, "submit", *words)
    assert status == 0, complaint
    (task,) = document["ids"]
    eventually(lambda: shared.seen(ANN)[task] == "running", "its start")

    told = answers(shared, task)

    assert [each for each in told if word in told[each]] == []
    holders = [path for path in shared.folder.rglob("*") if _holds(path, word)]
    assert {path.stat().st_uid for path in holders} == {ANN}
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}


def test_nobody_else_reads_the_environment_of_a_task(shared: SharedDaemon) -> None:
    word = "what-only-ann-may-read"
    status, document, complaint = shared.hetctl(
        ANN, "submit", *LONG, "--env", f"PRIVATE={word}"
    )
    assert status == 0, complaint
    (task,) = document["ids"]
    eventually(lambda: shared.seen(ANN)[task] == "running", "its start")
    status, document, complaint = shared.hetctl(
        BEN, "submit", *LONG, "--python", another_python(shared, BEN)
    )
    assert status == 0, complaint
    (other,) = document["ids"]
    eventually(
        lambda: shared.seen(BEN)[other] == "running", "one of another interpreter"
    )

    told = answers(shared, task)

    assert [each for each in told if word in told[each]] == []
    assert f"{task}" in told[f"list of {DAEMON}"]  # it sees the task
    assert word not in json.dumps(shared.hetctl(ANN, "show", str(task)))
    holders = [path for path in shared.folder.rglob("*") if _holds(path, word)]
    assert {path.parent.name for path in holders} == {"attachments"}
    assert {path.stat().st_uid for path in holders} == {ANN}
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}
    lines = [Path("/proc", str(pid), "cmdline") for pid in shared.processes()]
    assert not any(_holds(path, word) for path in lines)


STEP = """
import time
from dataclasses import dataclass
from libtask import Task

@dataclass
class Step(Task):
    seconds: float = 0.1

    def total(self):
        return 4

    def save(self, checkpoint):
        return None

@Step.on("cpu")
def on_cpu(task, device, checkpoint):
    for strip in checkpoint.strips():
        for _ in strip:
            time.sleep(task.seconds / 4)
        yield
"""


def test_a_scenario_for_administrators_keeps_users_programs_of_one_name_apart(
    shared: SharedDaemon, tmp_path: Path
) -> None:
    done: dict[str, int] = {}
    for uid, seconds in ((ANN, "0.1"), (BEN, "0.4")):
        path = shared.home(uid) / "step.py"
        path.write_text(STEP, encoding="utf-8")
        path.chmod(0o644)
        words = (f"{path}:Step", "--seconds", seconds, "--wait")
        status, document, complaint = shared.hetctl(uid, "submit", *words)
        assert status == 0, complaint
        done[str(document["tasks"][0]["id"])] = uid

    with_models = shared.hetctl(DAEMON, "trace")
    forget = ("models", "forget", "--all", "--socket", str(shared.socket))
    subprocess.run(
        shared.command(DAEMON, "hetctl", *forget),
        env=shared.environment(DAEMON),
        check=True,
    )
    from_runs = shared.hetctl(DAEMON, "trace")  # all that is known now

    for status, document, complaint in (with_models, from_runs):
        assert status == 0, complaint
        wanted = {task: f"uid:{uid}:step:Step/any" for task, uid in done.items()}
        assert {each["id"]: each["type"] for each in document["tasks"]} == wanted
        times = {each["name"]: each["seconds"]["cpu"] for each in document["types"]}
        assert times.keys() == set(wanted.values())
        assert len(set(times.values())) == len(times)
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "hetsim",
                "run",
                str(path),
                "--policy",
                "mm",
                "--json",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        tasks = json.loads(ran.stdout)["tasks"]
        assert {each["id"]: each["state"] for each in tasks} == dict.fromkeys(
            done, "completed"
        )


def _holds(path: Path, word: str) -> bool:
    """Whether a file holds a word; of what a mount hides nothing is to be seen."""
    with suppress(OSError):
        return path.is_file() and word.encode() in path.read_bytes()
    return False
