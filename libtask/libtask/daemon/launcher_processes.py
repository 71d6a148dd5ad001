"""The launcher and worker processes of a socket, found by their command lines."""

from __future__ import annotations

from pathlib import Path

LAUNCHER = "libtask.launcher"


def processes_of(socket: Path) -> dict[int, list[str]]:
    """Find the processes with a socket in their command line.

    Returns:
        The command lines by pid, of the daemon, launchers, workers and clients.

    """
    found = {}
    for entry in Path("/proc").iterdir():
        words = _command_line(entry) if entry.name.isdigit() else []
        if str(socket) in words:
            found[int(entry.name)] = words
    return found


def launcher_processes(socket: Path) -> set[int]:
    """Return the pids of a socket's launcher and workers, including orphans."""
    found = processes_of(socket).items()
    return {pid for pid, words in found if LAUNCHER in words}


def _command_line(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has exited meanwhile
        return []
