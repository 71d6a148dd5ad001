"""Processes, files, descriptors and database damage left behind by a daemon.

The part of the common oracle that is not about tasks; see `history` for those.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from torture.deployment import NotInTimeError, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torture.deployment import Deployment

DRAFTS = ("*.new", "*.tmp", "*.bad", "*.partial")
"""Names of what is written before it gets its name; and of what was found broken."""


def leaks(deployment: Deployment, ended: int) -> list[str]:
    """Stop the daemon; return what is not as it was before anything began.

    Args:
        deployment: whose tasks have all ended.
        ended: how many tasks there are.

    """
    found = [
        *_snapshots(deployment),
        *_stop(deployment),
        *_processes(deployment),
        *_files(deployment),
    ]
    return found + list(_database(deployment.files.state / "hetd.db", ended))


def _snapshots(deployment: Deployment) -> Iterator[str]:
    """Demand that a launcher that comes removes what ended tasks have left."""
    deployment.keep_launcher()
    deployment.kill_launcher()
    # else the daemon may retire the launcher that is gone, and leave the new one
    eventually(
        lambda: not deployment.is_launcher_there(), "the launcher's end at the daemon"
    )
    deployment.start_launcher()
    snapshots = deployment.socket.with_suffix(".launcher") / "snapshots"
    try:
        eventually(lambda: not any(snapshots.glob("*")), "the end of all snapshots")
    except NotInTimeError:
        yield from (f"snapshots {path.name} are left" for path in snapshots.glob("*"))


def _stop(deployment: Deployment) -> Iterator[str]:
    deployment.keep_launcher()
    try:
        # one that has just been started does not know yet that it is to leave
        eventually(deployment.is_launcher_there, "the launcher at the daemon")
    except NotInTimeError as error:
        yield str(error)
    status = deployment.stop_daemon()
    if status != 0:
        yield f"the daemon ended with status {status}\n{deployment.files.last_words()}"


def _processes(deployment: Deployment) -> Iterator[str]:
    try:
        eventually(lambda: not deployment.family(), "the end of all processes")
    except NotInTimeError:
        for process in deployment.family():
            yield f"process {process.pid} is left: {_described(process)}"


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.status()}, child of {process.ppid()}"
    except psutil.NoSuchProcess:
        return "it has ended now"


def _files(deployment: Deployment) -> Iterator[str]:
    for pattern in DRAFTS:
        for path in deployment.folder.rglob(pattern):
            yield f"file {path.relative_to(deployment.folder)} is left"
    for path in (deployment.socket, deployment.files.state / "hetd.db-wal"):
        if path.exists():
            yield f"{path.name} is left"


def _database(path: Path, ended: int) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as database:
        for (line,) in database.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield f"{path.name}: {line}"
        rows = dict(
            database.execute("SELECT ended != 0, count(*) FROM tasks GROUP BY 1")
        )
    if rows.get(0, 0):
        yield f"{path.name}: {rows[0]} tasks have not ended"
    if rows.get(1, 0) != ended:
        yield f"{path.name}: {rows.get(1, 0)} tasks, and {ended} were listed"


def descriptors(pid: int) -> int:
    """Count the open descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
