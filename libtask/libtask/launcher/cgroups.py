"""Control groups: one per worker, if this user may create them (cgroup v2).

A single write kills all processes of a group, however fast they fork. Without groups,
`libtask.processes` finds the descendants of a worker. Where the groups may limit memory, the
kernel keeps a task within what it stated to need, else the launcher watches it. The launcher
uses this module, and each new worker to enter its group and to limit it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SYSTEMD = Path("/run/systemd/system")
"""Exists if systemd manages the groups: only delegated ones may be used then."""
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks delegated groups; before version 253 those of
users' units have none that users can read."""


class WorkerGroups:
    """The groups of a launcher's workers, below its own group.

    Args:
        parent: folder of the launcher's own group.
        limits_memory: whether the groups can limit memory.

    """

    def __init__(self, parent: Path, *, limits_memory: bool = False) -> None:
        self.parent = parent
        self._limits_memory = limits_memory
        self._prefix = f"hetd-{os.getpid()}-"
        self._remove_stale()

    def make(self, worker: str) -> Path | None:
        """Create a worker's group; None: it cannot be created, or not killed as a whole."""
        folder = self._folder(worker)
        try:
            folder.mkdir()
        except OSError:
            return None
        if not (folder / "cgroup.kill").exists():  # before Linux 5.14
            folder.rmdir()
            return None
        if self._limits_memory:
            with contextlib.suppress(
                OSError
            ):  # the worker ends with its task's processes
                (folder / "memory.oom.group").write_text("1")
        return folder

    def has_exceeded_memory(self, worker: str) -> bool:
        """Whether a worker's group has reached its own limit, and could free nothing."""
        try:
            lines = (self._folder(worker) / "memory.events").read_text().splitlines()
        except OSError:
            return False
        # `oom_kill` would also count kills for a limit of the whole user or machine
        return any(line.startswith("oom ") and line != "oom 0" for line in lines)

    def kill(self, worker: str) -> None:
        """Kill every process of a worker's group without waiting."""
        with contextlib.suppress(OSError):
            (self._folder(worker) / "cgroup.kill").write_text("1")

    def remove(self, worker: str) -> bool:
        """Remove a worker's group; return whether no process was left in it."""
        try:
            self._folder(worker).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _folder(self, worker: str) -> Path:
        return self.parent / (self._prefix + worker)

    def _remove_stale(self) -> None:
        """Remove the empty groups of killed launchers."""
        for folder in self.parent.glob("hetd-*-*"):
            launcher = folder.name.split("-")[1]
            if not Path("/proc", launcher).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


def enter(folder: Path) -> None:
    """Move this process into a group, or leave it where it is on failure."""
    with contextlib.suppress(OSError):
        (folder / "cgroup.procs").write_text("0")


class MemoryLimit:
    """The memory limit of a worker's own group; the worker sets it for each task.

    Args:
        group: folder of the group; None: there is none.

    """

    def __init__(self, group: Path | None) -> None:
        file = None if group is None else group / "memory.max"
        self._file = file if file is not None and file.exists() else None
        self._limit = 0

    def set(self, limit: int) -> None:
        """Limit the memory to these bytes; 0: do not limit it."""
        if self._file is None or limit == self._limit:
            return
        with contextlib.suppress(OSError):  # the launcher watches it, too
            self._file.write_text(str(limit) if limit else "max")
            self._limit = limit


def find_groups(*, delegated: bool = False) -> WorkerGroups | None:
    """Return this launcher's groups; None: it may not create any.

    Args:
        delegated: whether its own group is known to be delegated to it.

    """
    parent = _own_group()
    if parent is None or not _may_make(parent, delegated=delegated):
        return None
    return groups_below(parent)


def groups_below(parent: Path) -> WorkerGroups:
    """Return the groups of a launcher or fork server below the launcher's own."""
    return WorkerGroups(parent, limits_memory=pass_on_memory(parent))


def pass_on_memory(parent: Path) -> bool:
    """Let groups below the launcher's own limit memory; return whether they can.

    A group with processes passes no controller on, so the launcher moves into a group of
    its own below. It moves back if there are other processes.
    """
    try:
        if "memory" in (parent / "cgroup.subtree_control").read_text().split():
            return True
        if "memory" not in (parent / "cgroup.controllers").read_text().split():
            return False
    except OSError:
        return False
    own = parent / f"hetd-{os.getpid()}-@launcher"
    try:
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text("0")
        (parent / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        enter(parent)
        with contextlib.suppress(OSError):
            own.rmdir()
        return False
    return True


def _own_group() -> Path | None:
    """Return the folder of this process's group; None: there is no cgroup v2."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    roots = [words[1] for words in map(str.split, mounts) if words[2] == "cgroup2"]
    own = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    if not roots or not own:
        return None
    folder = Path(roots[0] + own[0])
    return folder if folder.is_dir() else None


def _may_make(parent: Path, *, delegated: bool) -> bool:
    if not os.access(parent, os.W_OK):
        return False
    if delegated or not SYSTEMD.exists():
        return True
    return any(_is_marked(parent, name) for name in DELEGATED)


def _is_marked(folder: Path, name: str) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(folder, name) == b"1"
    return False
