"""What a daemon leaves behind: processes, files, descriptors, a damaged database.

The part of the common oracle that is not about tasks; see `history` for those.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from hettorture.arena import NotInTimeError, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hettorture.arena import Arena

DRAFTS = ("*.new", "*.tmp", "*.bad", "*.partial")
"""Names of what is written before it gets its name; and of what was found broken."""


def remains(arena: Arena, ended: int) -> list[str]:
    """Stop the daemon; return what is not as it was before anything began.

    Args:
        arena: whose tasks have all ended.
        ended: how many tasks there are.

    """
    found = [*_snapshots(arena), *_stop(arena), *_processes(arena), *_files(arena)]
    return found + list(_database(arena.files.state / "hetd.db", ended))


def _snapshots(arena: Arena) -> Iterator[str]:
    """Demand that a launcher that comes removes what ended tasks have left."""
    arena.keep_launcher()
    arena.kill_launcher()
    # else the daemon's end may send home the one that is gone, and leave the new one
    eventually(
        lambda: not arena.is_launcher_there(), "the launcher's end at the daemon"
    )
    arena.start_launcher()
    shelf = arena.socket.with_suffix(".launcher") / "snapshots"
    try:
        eventually(lambda: not any(shelf.glob("*")), "the end of all snapshots")
    except NotInTimeError:
        yield from (f"snapshots {path.name} are left" for path in shelf.glob("*"))


def _stop(arena: Arena) -> Iterator[str]:
    arena.keep_launcher()
    try:
        # one that has just been started does not know yet that it is to leave
        eventually(arena.is_launcher_there, "the launcher at the daemon")
    except NotInTimeError as error:
        yield str(error)
    status = arena.stop_daemon()
    if status != 0:
        yield f"the daemon ended with status {status}\n{arena.files.last_words()}"


def _processes(arena: Arena) -> Iterator[str]:
    try:
        eventually(lambda: not arena.family(), "the end of all processes")
    except NotInTimeError:
        for process in arena.family():
            yield f"process {process.pid} is left: {_described(process)}"


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.status()}, child of {process.ppid()}"
    except psutil.NoSuchProcess:
        return "it has ended now"


def _files(arena: Arena) -> Iterator[str]:
    for pattern in DRAFTS:
        for path in arena.folder.rglob(pattern):
            yield f"file {path.relative_to(arena.folder)} is left"
    for path in (arena.socket, arena.files.state / "hetd.db-wal"):
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
