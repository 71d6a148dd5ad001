"""Output about tasks: tables and the fixed JSON forms; modules that commands import."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.output import iso
from libtask.messages import Amend, Control, Done, ListTasks
from unit.fake_daemon import FakeDaemon, a_task
from unit.hetctl.recorded_tasks import a_moved_task
from unit.hetctl.typed_commands import complaint, document, text

if TYPE_CHECKING:
    from pathlib import Path


def test_times_are_utc_with_milliseconds() -> None:
    assert iso(1767323045.678) == "2026-01-02T03:04:05.678Z"
    assert iso(None) is None


def test_task_as_json(daemon: FakeDaemon) -> None:
    daemon.tasks[7] = a_moved_task()

    shown = document("show", "7")

    assert shown["format"] == "hetctl/task-1"
    assert (shown["id"], shown["app"], shown["type"]) == (7, "heat", "heat/64")
    assert (shown["state"], shown["owner"], shown["resource"]) == (
        "completed",
        "uid:0",
        "gpu0",
    )
    assert shown["submitted"] == "1970-01-01T00:16:40.000Z"
    assert (shown["migrations"], shown["emulated"]) == (1, True)
    assert shown["result"] == {"mean": 0.5}
    assert [(s["resource"], s["strips"]) for s in shown["segments"]] == [
        ("cpu", 10),
        ("gpu0", 30),
    ]


def test_list_as_table_and_json(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        3: a_task(3, state="running", resource="gpu0", progress=0.42),
        7: a_moved_task(),
    }

    heading, first, second = text("list", "--all").splitlines()

    assert heading.split()[:5] == ["ID", "NAME", "TYPE", "STATE", "WHERE"]
    assert first.split()[:8] == [
        "3",
        "-",
        "heat/64",
        "running",
        "gpu0",
        "(emulated)",
        "42",
        "%",
    ]
    assert second.startswith("7 ")
    assert [task["id"] for task in document("ls", "--all")["tasks"]] == [3, 7]
    assert [task["id"] for task in document("ps", "--state", "running")["tasks"]] == [3]


def test_numbers_without_a_json_form_are_told_by_name(daemon: FakeDaemon) -> None:
    values = {"mean": math.nan, "most": [math.inf, -math.inf], "none": None}
    daemon.tasks[1] = a_task(
        1,
        state="completed",
        owner=f"uid:{os.getuid()}",
        result=values | {"raw": b"ab"},
        params=values,
    )
    named = {"mean": "NaN", "most": ["Infinity", "-Infinity"], "none": None}

    shown = document("show", "1")

    assert shown["params"] == named
    assert shown["result"] == named | {"raw": "YWI="}
    assert document("result", "1")["result"] == named | {"raw": "YWI="}
    assert json.loads(text("result", "1")) == named | {"raw": "YWI="}
    lines = [line.split() for line in text("show", "1").splitlines()]
    encoded = json.dumps(named, separators=(",", ":"))
    assert ["params", encoded] in lines


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"a": (1, 2.5), "b": [None, "x"]}, {"a": [1, 2.5], "b": [None, "x"]}),
        ([1 << 80], [1 << 80]),
        ((math.nan, {"a": -math.inf}), ["NaN", {"a": "-Infinity"}]),
        ({"a": range(3)}, None),
        ("\udcff", None),
    ],
)
def test_a_pickled_result_is_printed_as_json_where_it_has_such_a_form(
    daemon: FakeDaemon, tmp_path: Path, value: object, printed: object
) -> None:
    data = pickle.dumps(value)
    stored = {"pickled": type(value).__name__, "data": data}
    known = {"state": "completed", "owner": f"uid:{os.getuid()}"}
    daemon.tasks[1] = a_task(1, result=[stored, 3], **known)
    saved = tmp_path / "result.json"
    expected = printed or stored | {"data": f"<{len(data)} bytes>"}

    text("result", "1", "--save", str(saved))

    assert json.loads(text("result", "1")) == [expected, 3]
    assert document("result", "1")["result"] == [expected, 3]
    assert json.loads(saved.read_text()) == [expected, 3]


@pytest.mark.parametrize("value", [None, {1, 2}, {"a": [1, "b", None]}])
def test_only_an_array_of_numbers_or_texts_is_saved_as_one(
    daemon: FakeDaemon, tmp_path: Path, value: object
) -> None:
    stored = {"pickled": type(value).__name__, "data": pickle.dumps(value)}
    known = {"state": "completed", "owner": f"uid:{os.getuid()}"}
    daemon.tasks[1] = a_task(1, result=stored, **known)
    saved = tmp_path / "result.npy"

    refused = CliRunner().invoke(main, ["result", "1", "--save", str(saved)])

    assert refused.exit_code == 2
    assert "not an array of numbers or texts; --save FILE.pickle" in refused.output
    assert not saved.exists()


def test_another_users_result_is_not_unpickled(daemon: FakeDaemon) -> None:
    stored = {"pickled": "dict", "data": pickle.dumps({})}
    owner = f"uid:{os.getuid() + 1}"
    daemon.tasks[1] = a_task(1, state="completed", owner=owner, result=stored)

    assert document("result", "1")["result"]["pickled"] == "dict"


def test_a_move_says_what_becomes_of_each_task(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        1: a_task(1, state="running", resource="cpu"),
        2: a_task(2, state="running", resource="gpu0"),
        3: a_task(3, state="held"),
        4: a_task(4),
    }

    assert text("migrate", "1-4", "--to", "gpu0").splitlines() == [
        "task 1 moves to gpu0",
        "task 2 is on gpu0 already, and stays there",
        "task 3 is held; it goes to gpu0 when it is released",
        "task 4 moves to gpu0",
    ]


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "migrate", "set"])
def test_a_name_without_unfinished_tasks_is_told(daemon: FakeDaemon, verb: str) -> None:
    daemon.tasks[1] = a_task(1, state="completed", name="study")
    rest = {"migrate": ["--to", "gpu0"], "set": ["priority=1"]}.get(verb, [])

    assert complaint(verb, "@study", *rest, status=0) == "no tasks\n"


def test_changes_are_printed_as_they_were_typed(daemon: FakeDaemon) -> None:
    daemon.tasks = {1: a_task(1), 2: a_task(2)}
    daemon.answers[Amend] = lambda asked: [Done(asked.request, asked.ids)]

    changed = text("set", "1,2", "deadline=none", "priority=5")

    assert changed == "".join(
        f"task {task}: deadline=none, priority=5\n" for task in (1, 2)
    )


def test_selectors_reach_the_daemon(daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 7)}
    daemon.tasks[2] = a_task(2, state="completed")

    assert document("cancel", "all")["ids"] == [1, 3, 4, 5, 6]
    assert document("hold", "5-99,1")["ids"] == [5, 6, 1]
    assert document("release", "last")["ids"] == [6]
    assert [each.verb for each in daemon.requests(Control)] == [
        "cancel",
        "hold",
        "release",
    ]


def test_progress_lists_running_tasks(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        1: a_task(1),
        2: a_task(2, state="running", progress=0.5, started=1.0),
    }

    (only,) = document("progress")["tasks"]

    assert (only["id"], only["progress"]) == (2, 0.5)
    assert only["left_s"] == pytest.approx(only["elapsed_s"])
    assert "50 %" in text("progress")


def test_listing_asks_once(daemon: FakeDaemon) -> None:
    text("list")

    assert len(daemon.requests(ListTasks)) == 1


def test_a_state_is_found_behind_newer_tasks(daemon: FakeDaemon) -> None:
    daemon.tasks[1] = a_task(1, state="running", resource="cpu")
    daemon.tasks[2] = a_task(2, state="queued")
    daemon.tasks[3] = a_task(3, state="queued")

    found = document("list", "--state", "running", "--limit", "1")

    assert [task["id"] for task in found["tasks"]] == [1]


def test_a_status_command_loads_little() -> None:
    script = (
        "import sys; from hetctl.__main__ import main\n"
        "import hetctl.commands.tasks, hetctl.options, libtask.client.client\n"
        "heavy = {'numpy', 'numba', 'rich', 'matplotlib', 'pyopencl', 'asyncio', 'hetd'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
