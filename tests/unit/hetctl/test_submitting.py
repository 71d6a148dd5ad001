"""`hetctl submit`, `batch` and `wait`: their messages and exit statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.messages import Submit, Submitted
from unit.fake_daemon import FakeDaemon, a_change, a_task
from unit.hetctl.typed_commands import complaint, document, text

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Message


SYNTHETIC = ("submit", "synthetic", "--seconds", '{"cpu": 1}')


def test_submit_sends_options(daemon: FakeDaemon) -> None:
    daemon.tasks[4] = a_task(4)
    words = ("--priority", "3", "--on", "cpu,gpu0", "--on", "fpga0", "--strip", "8")

    ids = document(
        *SYNTHETIC, *words, "--after", "last", "--hold", "--name", "x", "--count", "2"
    )

    spec = daemon.requests(Submit)[0].tasks[1]
    assert ids == {"format": "hetctl/submitted-1", "ids": [5, 6], "name": None}
    assert (spec.app, spec.params["seconds"]) == ("synthetic", {"cpu": 1.0})
    assert (spec.priority, spec.resources, spec.strip) == (
        3,
        ["cpu", "gpu0", "fpga0"],
        8,
    )
    assert (spec.after, spec.hold, spec.name) == ([4], True, "x")


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["completed", "completed"], 0),
        (["completed", "failed"], 10),
        (["cancelled", "completed"], 11),
        (["dropped", "completed"], 11),
        (["cancelled", "failed"], 10),
        (["completed", "running"], 124),
    ],
)
def test_status_of_a_wait(daemon: FakeDaemon, states: list[str], status: int) -> None:
    daemon.tasks = {
        number: a_task(number, state=each) for number, each in enumerate(states, 1)
    }

    found = document("wait", "1-2", "--timeout", "200ms", status=status)

    assert [task["state"] for task in found["tasks"]] == states


def test_submit_and_wait(daemon: FakeDaemon) -> None:
    def fail(message: Submit) -> list[Message]:
        change = a_change(1, "failed", reason="on fire", resource="cpu")
        return [Submitted(message.request, [1]), change]

    daemon.answers[Submit] = fail

    assert text(*SYNTHETIC, "--wait", status=10).splitlines() == [
        "task 1 submitted",
        "task 1 failed on cpu: on fire",
    ]


def test_batch_refers_to_earlier_tasks(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.tasks[99] = a_task(99)
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        name = "first"
        params = { seconds = { cpu = 1.0 } }
        count = 2
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        after = ["first", 99]
        priority = 4
    """)

    assert document("batch", str(path))["ids"] == [100, 101, 102]
    sent = daemon.requests(Submit)[0].tasks
    assert [task.after for task in sent] == [[], [], [-2, -1, 99]]
    assert sent[2].priority == 4
    assert "3 tasks, no mistakes" in text("batch", str(path), "--check")


def test_a_batch_gives_its_tasks_needs(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        cores = "all"
        memory = "1.5G"
        device_memory = 4096
        time = "30m"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        cores = 2
        retries = 5
        seconds = { gpu = 2.5, cpu = 9 }
    """)

    document("batch", str(path))

    sent = daemon.requests(Submit)[0].tasks
    assert [
        (task.cores, task.memory_bytes, task.device_bytes, task.time_limit_s)
        for task in sent
    ] == [(-1, 3 << 29, 4096, 1800.0), (2, 0, 0, None)]
    assert [task.retries for task in sent] == [0, 5]
    assert [task.seconds for task in sent] == [{}, {"gpu": 2.5, "cpu": 9.0}]


def test_options_say_what_a_task_needs(daemon: FakeDaemon) -> None:
    needs = (
        "--cores 3 --memory 512M --device-memory 1GiB --time 90s --retries 4 "
        "--expect gpu=1m --expect gpu0=2.5s"
    )

    text("submit", "synthetic", "--set", 'seconds={"cpu": 1.0}', *needs.split())

    (task,) = daemon.requests(Submit)[0].tasks
    assert (task.cores, task.memory_bytes) == (3, 512 << 20)
    assert (task.device_bytes, task.time_limit_s) == (1 << 30, 90.0)
    assert task.retries == 4
    assert task.seconds == {"gpu": 60.0, "gpu0": 2.5}


def test_a_batch_gives_its_tasks_deadlines(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text("""
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        deadline = "1.5min"
        overrun = "stop"
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
        deadline = 0.25
        count = 2
        [[task]]
        app = "synthetic"
        params = { seconds = { cpu = 1.0 } }
    """)

    assert document("batch", str(path))["ids"] == [1, 2, 3, 4]

    sent = daemon.requests(Submit)[0].tasks
    assert [(task.deadline_s, task.overrun) for task in sent] == [
        (90.0, "stop"),
        (0.25, "continue"),
        (0.25, "continue"),
        (None, "continue"),
    ]


def test_an_array_may_limit_how_many_run_at_once(daemon: FakeDaemon) -> None:
    text("submit", "--array", "0-9%3", "--", "true")
    text("submit", "--array", "0-1", "--", "true")

    limited, free = (request.tasks for request in daemon.requests(Submit))
    assert [task.at_once for task in limited] == [3] * 10
    assert len({task.array for task in limited}) == 1
    assert limited[0].array
    assert [(task.array, task.at_once) for task in free] == [("", 0)] * 2


@pytest.mark.parametrize(
    "words", ["--on gpu", "--gpus 1", "--gpus=1", "--gres gpu:1", "--gres gpu --on gpu"]
)
def test_a_task_gets_any_gpu(daemon: FakeDaemon, words: str) -> None:
    text("submit", *words.split(), "--", "true")
    text("submit", "synthetic", "--set", 'seconds={"gpu": 1.0}', *words.split())

    sent = [task for request in daemon.requests(Submit) for task in request.tasks]
    assert [task.resources for task in sent] == [["gpu0"], ["gpu0"]]
    assert sent[0].kinds == ["gpu"]


@pytest.mark.parametrize(
    "words", ["--gpus 2", "--gpus 0", "--gpus two", "--gres gpu:2", "--gres fpga:1"]
)
def test_more_than_one_accelerator_is_refused(daemon: FakeDaemon, words: str) -> None:
    refused = f"{words}: a task gets one accelerator at most; --on gpu gives it any GPU"

    for rest in (["--", "true"], ["synthetic", "--set", 'seconds={"gpu": 1.0}']):
        told = complaint("submit", *words.split(), *rest)
        assert refused in " ".join(told.split())
    assert not daemon.requests(Submit)


def test_a_script_with_more_than_one_accelerator_is_refused(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    script = tmp_path / "s.sh"
    script.write_text("#!/bin/sh\n#HET --gres gpu:4\ntrue\n")

    told = " ".join(complaint("submit", str(script)).split())

    assert "line 2: --gres gpu:4: a task gets one accelerator at most" in told


@pytest.mark.parametrize("limit", ["", "0", "-1", "x", "99999999", "3%3"])
def test_a_wrong_limit_of_an_array_is_refused(daemon: FakeDaemon, limit: str) -> None:
    line = complaint("submit", "--array", f"0-9%{limit}", "--", "true")

    assert f"expected a number of tasks at once after %, got {limit!r}" in line
    assert not daemon.requests(Submit)


def test_a_batch_limits_how_many_tasks_of_a_table_run_at_once(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    task = '[[task]]\napp = "synthetic"\nparams = { seconds = { cpu = 1.0 } }\n'
    path.write_text(f"{task}count = 3\nat_once = 2\n{task}count = 2\nat_once = 2\n")

    document("batch", str(path))

    sent = daemon.requests(Submit)[0].tasks
    assert [each.at_once for each in sent] == [2] * 5
    assert [each.array == sent[0].array for each in sent] == [True] * 3 + [False] * 2
