"""Control groups: one per worker, if this user may create them (cgroup v2).

A single write kills all processes of a group, however fast they fork. Without groups,
`libtask.processes` finds the descendants of a worker. The launcher uses this module,
and each new worker to enter its group.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SYSTEMD = Path("/run/systemd/system")
"""Exists if systemd manages the groups: only delegated ones may be used then."""
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks delegated groups."""


class WorkerGroups:
    """The groups of a launcher's workers, below its own group.

    Args:
        parent: folder of the launcher's own group.

    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
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
        return folder

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
        return self._parent / (self._prefix + worker)

    def _remove_stale(self) -> None:
        """Remove the empty groups of killed launchers."""
        for folder in self._parent.glob("hetd-*-*"):
            launcher = folder.name.split("-")[1]
            if not Path("/proc", launcher).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


def enter(folder: Path) -> None:
    """Move this process into a group, or leave it where it is on failure."""
    with contextlib.suppress(OSError):
        (folder / "cgroup.procs").write_text("0")


def find_groups() -> WorkerGroups | None:
    """Return this launcher's groups; None: it may not create any."""
    parent = _own_group()
    if parent is None or not _may_make(parent):
        return None
    return WorkerGroups(parent)


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


def _may_make(parent: Path) -> bool:
    if not os.access(parent, os.W_OK):
        return False
    return not SYSTEMD.exists() or any(_is_marked(parent, name) for name in DELEGATED)


def _is_marked(folder: Path, name: str) -> bool:
    with contextlib.suppress(OSError):
        return os.getxattr(folder, name) == b"1"
    return False
