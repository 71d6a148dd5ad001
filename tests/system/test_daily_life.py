"""Names, listings, repetitions and ends of tasks, as users see them every day."""

from __future__ import annotations

import json
import subprocess
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from system.terminal import HETCTL

if TYPE_CHECKING:
    from pathlib import Path

    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

SLOW = """
    from dataclasses import dataclass
    from pathlib import Path
    from libtask import Task

    @dataclass
    class Slow(Task):
        gate: str

        def load(self):
            while not Path(self.gate).exists():
                pass

        def total(self):
            return 1

    @Slow.on("cpu")
    def run(task, device, checkpoint):
        for _ in checkpoint.strips():
            yield
"""


def _ids(hetctl: Terminal, *words: str) -> list[int]:
    return [task["id"] for task in hetctl.json("list", *words)["tasks"]]


def test_a_name_means_its_newest_submission(hetctl: Terminal) -> None:
    array = ("submit", "--array", "1-2", "--name", "daily", "--", "true")
    first, second = (hetctl.json(*array)["ids"] for _ in range(2))
    hetctl("wait", "@daily:all")

    assert sorted(_ids(hetctl, "@daily")) == second
    assert sorted(_ids(hetctl, "@daily:all")) == first + second
    assert hetctl("forget", "@daily") == "2 tasks forgotten\n"
    assert sorted(_ids(hetctl, "@daily:all")) == first
    hetctl("forget", "@daily")
    gone = hetctl.completed("list", "@daily")
    assert gone.returncode == 4
    assert gone.stderr == "hetctl: selector '@daily': no task of that name\n"


def test_failed_tasks_are_submitted_again(hetctl: Terminal, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = f"test $HETD_INDEX = 1 || test -e {mark}"
    array = ("submit", "--array", "1-2", "--name", "again", "--wait")
    found = hetctl.json(*array, "--", "sh", "-c", program, status=10)["tasks"]
    mark.touch()

    again = hetctl.json("requeue", "@again", "--failed")
    hetctl("wait", "last")

    failed = [task["id"] for task in found if task["state"] == "failed"]
    repeated = hetctl.json("show", "last")
    assert (again["old"], again["ids"]) == (failed, [repeated["id"]])
    assert (repeated["state"], repeated["requeued"]) == ("completed", failed[0])


def test_a_cut_listing_says_so(hetctl: Terminal) -> None:
    hetctl("submit", "--count", "3", "--wait", "--", "true")

    for verb in ("list", "history"):
        short = hetctl.completed(verb, "--limit", "2", "--json")
        whole = hetctl.json(verb, "--limit", "100000")
        found = json.loads(short.stdout)
        assert (len(found["tasks"]), found["truncated"]) == (2, True)
        assert (len(whole["tasks"]), whole["truncated"]) == (found["total"], False)
        assert f"showing the newest 2 of {found['total']}" in short.stderr


def test_a_cut_listing_of_completed_tasks_says_so(hetctl: Terminal) -> None:
    hetctl("submit", "--count", "3", "--wait", "--", "true")
    words = ("list", "--state", "completed", "--limit")
    there = len(hetctl.json(*words, "100000")["tasks"])

    cut = f"hetctl: showing the newest 2 of {there}; --limit {there} shows all\n"
    assert hetctl.completed(*words, "2").stderr == cut
    assert hetctl.completed(*words, str(there)).stderr == ""


def test_a_task_that_never_ran_is_listed_on_no_resource(hetctl: Terminal) -> None:
    long = ("submit", "synthetic", "--seconds", '{"fpga": 600}', "--on", "fpga0")
    (first,) = hetctl.json(*long)["ids"]
    (task,) = hetctl.json(*long)["ids"]
    assert hetctl.json("show", str(task))["resource"] == "fpga0"  # in its queue

    hetctl("cancel", str(task), str(first))

    (listed,) = hetctl.json("list", str(task))["tasks"]
    assert (listed["state"], listed["resource"]) == ("cancelled", None)
    assert "where" not in hetctl("show", str(task))


def test_a_reason_stays_with_a_cancelled_task(hetctl: Terminal) -> None:
    (task,) = hetctl.json("submit", "--hold", "--", "true")["ids"]

    hetctl("cancel", str(task), "--reason", "wrong data")

    said = "cancelled by its owner: wrong data"
    assert hetctl.json("show", str(task))["reason"] == said
    assert said in hetctl("list", str(task))
    assert said in hetctl("events", str(task))


def test_a_wait_says_within_seconds_what_is_unusual(
    hetctl: Terminal, daemon: PrivateDaemon, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(dedent(SLOW))
    gate = tmp_path / "gate"
    app = f"{tmp_path}/slow.py:Slow"
    (task,) = hetctl.json("submit", app, "--gate", str(gate))["ids"]
    daemon.await_state(task, "running")

    with subprocess.Popen(
        [*HETCTL, "wait", str(task), "--socket", str(daemon.socket)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
        gate.touch()
        out, _ = waiting.communicate()

    assert line.startswith(f"hetctl: task {task} is being set up on cpu: ")
    assert "compiling slow:Slow for cpu, which is needed once on this machine" in line
    assert out == f"task {task} completed on cpu\n"


def test_a_program_in_a_file_is_no_application(
    hetctl: Terminal, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text("print('hello')\n")

    refused = hetctl.completed("submit", str(plain))
    said = hetctl("run", "--", "python3", str(plain))

    assert refused.returncode == 2
    way = f"to run it as a program: hetctl submit -- python {plain}"
    assert refused.stderr.count("\n") == 1
    assert way in refused.stderr
    assert said == "hello\n"


@pytest.mark.parametrize("form", ["chrome", "scenario"])
def test_a_trace_in_a_file_says_what_it_contains(
    hetctl: Terminal, tmp_path: Path, form: str
) -> None:
    hetctl("submit", "--wait", "--", "true")
    path = tmp_path / "trace.json"

    said = hetctl("trace", "last", "--format", form, "-o", str(path))

    assert said == f"{path}: 1 task written\n"
    assert json.loads(path.read_text())
