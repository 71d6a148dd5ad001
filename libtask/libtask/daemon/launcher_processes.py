"""A socket's crew: the launcher and its workers, found by what they were started with."""

from __future__ import annotations

from pathlib import Path

LAUNCHER = "libtask.launcher"


def processes_of(socket: Path) -> dict[int, list[str]]:
    """Find the processes that were told of a socket.

    Returns:
        Their command lines, by pid: a daemon's, its crew's, those of commands.

    """
    found = {}
    for entry in Path("/proc").iterdir():
        words = _command_line(entry) if entry.name.isdigit() else []
        if str(socket) in words:
            found[int(entry.name)] = words
    return found


def launcher_processes(socket: Path) -> set[int]:
    """Find a socket's launcher and workers, orphans among them; return their pids."""
    found = processes_of(socket).items()
    return {pid for pid, words in found if LAUNCHER in words}


def _command_line(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return []
