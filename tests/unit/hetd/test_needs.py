"""Cores, memory and time limits of submitted tasks, as the daemon takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hetd.clock import Clock
from hetsched.system import SECOND
from libtask import messages as m
from libtask.documents import ALL_CORES
from unit.daemon_shell import Shell, a_spec

if TYPE_CHECKING:
    from pathlib import Path


class Watch:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> Clock:
        return Clock(
            lambda: int(self.seconds * SECOND), lambda: 1_700_000_000.0 + self.seconds
        )


def a_shell(folder: Path, watch: Watch | None = None, **fields: Any) -> Shell:
    return Shell(
        folder,
        (watch or Watch()).clock(),
        cores=4,
        task_memory_mb=1024,
        **fields,
    )


def test_tasks_wait_for_the_cores_that_they_need(tmp_path: Path) -> None:
    shell = a_shell(tmp_path)
    specs = [a_spec(kinds=["cpu"], cores=cores) for cores in (3, 2, ALL_CORES)]

    tasks = shell.submit(*specs)

    assert [shell.state(task) for task in tasks] == ["running", "queued", "queued"]
    shell.close()


def test_a_restart_counts_the_cores_of_running_tasks(tmp_path: Path) -> None:
    watch = Watch()
    shell = a_shell(tmp_path, watch)
    shell.submit(a_spec(kinds=["cpu"], cores=3))
    shell.commit()
    shell.close()

    again = a_shell(tmp_path, watch)
    again.runtime.restore()
    (task,) = again.submit(a_spec(kinds=["gpu"], cores=2))

    assert again.state(task) == "queued"
    again.close()


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ({"time_limit_s": 0.0}, "time limit: expected seconds above 0"),
        ({"cores": 5}, "app needs 5 cores; this node has 4"),
        (
            {"memory_bytes": 3 << 30},
            "app needs 3 GiB of memory; this node has 1 GiB for tasks",
        ),
    ],
)
def test_what_the_node_can_never_give_is_refused(
    tmp_path: Path, needs: dict[str, Any], text: str
) -> None:
    shell = a_shell(tmp_path)

    assert shell.error(m.Submit(1, [a_spec(**needs)])).text == text
    shell.close()


GPUS = [
    m.DeviceInfo(m.DeviceSpec(name, "gpu", "null", memory_bytes=memory << 30))
    for name, memory in (("gpu0", 4), ("gpu1", 2))
]


def test_device_memory_is_refused_beyond_that_of_the_largest_device(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path, devices=GPUS)

    error = shell.error(m.Submit(1, [a_spec(device_bytes=5 << 30)]))
    (task,) = shell.submit(a_spec(device_bytes=3 << 30))

    assert error.text == ("app needs 5 GiB of a device's memory; the largest has 4 GiB")
    assert shell.state(task) == "running"
    shell.close()


def test_device_memory_of_devices_that_do_not_tell_theirs_is_not_counted(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)

    (task,) = shell.submit(a_spec(device_bytes=5 << 40))

    assert shell.state(task) == "running"
    shell.close()


def test_a_task_is_cancelled_at_its_time_limit(tmp_path: Path) -> None:
    watch = Watch()
    shell = a_shell(tmp_path, watch)
    (task,) = shell.submit(a_spec(app="command", time_limit_s=10.0))

    watch.seconds = 9.9
    shell.runtime.tick()
    before = shell.state(task)
    watch.seconds = 10.1
    assert (shell.runtime.next_deadline() or 0) <= watch.seconds * SECOND
    shell.runtime.tick()

    page = shell.runtime.journal.find(task)
    assert page is not None
    assert (before, page.exit_code) == ("running", 124)
    assert (page.state, page.reason) == (
        "cancelled",
        "it ran for 10 s, its time limit",
    )
    shell.close()


def test_only_the_time_of_running_counts(tmp_path: Path) -> None:
    watch = Watch()
    shell = a_shell(tmp_path, watch)
    shell.submit(a_spec(kinds=["gpu"]))
    (task,) = shell.submit(a_spec(kinds=["gpu"], time_limit_s=10.0))

    watch.seconds = 50.0
    shell.runtime.tick()

    assert shell.state(task) == "queued"
    shell.close()


def test_a_time_limit_holds_over_a_restart(tmp_path: Path) -> None:
    watch = Watch()
    shell = a_shell(tmp_path, watch, restore_grace_s=1000.0)
    (task,) = shell.submit(a_spec(time_limit_s=10.0))
    shell.commit()
    shell.close()
    watch.seconds = 6.0

    again = a_shell(tmp_path, watch, restore_grace_s=1000.0)
    again.runtime.restore()
    watch.seconds = 9.0
    again.runtime.tick()
    before = again.runtime.journal.live[task].runtime.cancelling
    watch.seconds = 11.0
    again.runtime.tick()

    assert before is None
    page = again.runtime.journal.find(task)
    assert page is not None
    assert page.runtime.cancelling or page.state == "cancelled"
    again.close()
