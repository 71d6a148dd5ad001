"""Control groups of workers, with limits of memory where the system has them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libtask.launcher import cgroups
from libtask.launcher.cgroups import (
    MemoryLimit,
    WorkerGroups,
    enter,
    find_groups,
    pass_on_memory,
)
from libtask.launcher.supervisor import Child, Supervisor
from libtask.phase import Phase, PhasePage
from libtask.worker.options import WorkerOptions

MIB = 1 << 20


def _a_group(folder: Path, controllers: str = "cpu memory pids") -> Path:
    """Make a folder that looks like a control group."""
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(f"{controllers}\n")
    (folder / "cgroup.subtree_control").write_text("\n")
    (folder / "cgroup.procs").write_text("")
    return folder


def test_the_launcher_makes_room_for_groups_with_limits(tmp_path: Path) -> None:
    parent = _a_group(tmp_path / "unit")

    assert pass_on_memory(parent)

    own = parent / f"hetd-{os.getpid()}-@launcher"
    assert (own / "cgroup.procs").read_text() == "0"
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"


def test_below_systemd_only_a_delegated_group_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = _a_group(tmp_path / "unit", "cpu pids")
    monkeypatch.setattr(cgroups, "SYSTEMD", tmp_path)
    monkeypatch.setattr(cgroups, "_own_group", lambda: own)

    assert find_groups() is None, "not marked"
    found = find_groups(delegated=True)
    assert found is not None
    assert found.parent == own


@pytest.mark.parametrize("controllers", ["", "cpu pids"])
def test_nothing_is_changed_where_memory_is_not_delegated(
    tmp_path: Path, controllers: str
) -> None:
    parent = _a_group(tmp_path / "unit", controllers)

    assert not pass_on_memory(parent)
    assert (parent / "cgroup.subtree_control").read_text() == "\n"
    assert not list(parent.glob("hetd-*"))


def test_the_launcher_returns_where_others_are_in_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = _a_group(tmp_path / "unit")
    write = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            raise OSError(16, "Device or resource busy")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)

    assert not pass_on_memory(parent)
    assert (parent / "cgroup.procs").read_text() == "0"


def test_a_worker_sets_the_limit_of_each_task(tmp_path: Path) -> None:
    file = tmp_path / "memory.max"
    file.write_text("max\n")
    limit = MemoryLimit(tmp_path)

    written = []
    for amount in (5 * MIB, 5 * MIB, 0, 7 * MIB):
        limit.set(amount)
        written.append(file.read_text())

    assert written == [str(5 * MIB)] * 2 + ["max", str(7 * MIB)]


@pytest.mark.parametrize("group", [None, Path("/nonexistent")])
def test_without_such_a_group_nothing_is_set(group: Path | None) -> None:
    MemoryLimit(group).set(5 * MIB)


def test_a_group_ends_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def make_group(path: Path) -> None:
        make(path)
        (path / "cgroup.kill").touch()

    monkeypatch.setattr(Path, "mkdir", make_group)

    made = WorkerGroups(tmp_path, limits_memory=True).make("w1")

    assert made is not None
    assert (made / "memory.oom.group").read_text() == "1"


@dataclass
class _Groups:
    """Groups of which some have exceeded their memory."""

    exceeded: set[str] = field(default_factory=set)

    def has_exceeded_memory(self, worker: str) -> bool:
        return worker in self.exceeded


@pytest.mark.parametrize(
    ("exceeded", "limit", "status", "told"),
    [
        (True, 4 << 30, -9, "used 4 GiB of 4 GiB of memory, and needed more"),
        (True, 20 << 20, -9, "used 20 MiB of 20 MiB of memory, and needed more"),
        (True, 4 << 30, -11, ""),
        (True, 0, -9, ""),
        (False, 4 << 30, -9, ""),
    ],
)
def test_an_end_by_the_kernel_names_the_limit(
    *, exceeded: bool, limit: int, status: int, told: str, tmp_path: Path
) -> None:
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._groups = _Groups({"w1"} if exceeded else set())  # type: ignore[assignment]  # all that it is asked
    page = PhasePage.shared()
    page.limit_memory(limit)
    page.begin(1, 1, 0, Phase.STRIPS)

    child = Child(WorkerOptions("w1", tmp_path / "s", page=page), 1)

    assert supervisor._beyond_limit(child, status) == told


@pytest.mark.parametrize(
    ("events", "exceeded"),
    [
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n", True),
        ("low 0\nhigh 0\nmax 9\noom 0\noom_kill 3\n", False),
        ("", False),
    ],
)
def test_only_the_groups_own_limit_counts(
    tmp_path: Path, events: str, *, exceeded: bool
) -> None:
    groups = WorkerGroups(tmp_path)
    folder = tmp_path / f"hetd-{os.getpid()}-w1"
    folder.mkdir()
    (folder / "memory.events").write_text(events)

    assert groups.has_exceeded_memory("w1") is exceeded
    assert not groups.has_exceeded_memory("w2")


def test_the_kernel_keeps_a_worker_within_its_limit() -> None:
    parent = _real_group()
    groups = WorkerGroups(parent, limits_memory=True)
    group = groups.make("w1")
    try:
        assert group is not None
        MemoryLimit(group).set(64 * MIB)
        eater = "x = bytearray(512 << 20); x[::4096] = b'1' * (512 << 8)"
        ended = subprocess.run(
            [sys.executable, "-c", eater],
            check=False,
            preexec_fn=lambda: enter(group),
        )
        assert ended.returncode == -signal.SIGKILL
        assert groups.has_exceeded_memory("w1")
    finally:
        groups.remove("w1")
        with contextlib.suppress(OSError):
            parent.rmdir()


def _real_group() -> Path:
    """Make a control group that passes `memory` on."""
    root = Path("/sys/fs/cgroup")
    folder = root / f"hetd-test-{os.getpid()}"
    try:
        if "memory" not in (root / "cgroup.controllers").read_text().split():
            pytest.skip("the controller memory is not in control groups of version 2")
        folder.mkdir()
        (folder / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group with a limit of memory can be made: {error}")
    return folder
