"""The demo's own daemon: its socket and state lie in the output folder."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from libtask.daemon.private import private_daemon
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.client.client import Client


@contextmanager
def demo_daemon(folder: Path, policy: str) -> Iterator[Client]:
    """Run a daemon on this machine as its user has configured it.

    Args:
        folder: for its state and log; emptied first.
        policy: name of its policy.

    Raises:
        InputError: another demo uses the folder.
        DaemonUnreachableError: it does not start; ends with what it said last.

    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as parts:
        _lock(folder, parts)
        _empty(folder / "daemon")
        daemon = private_daemon(None, folder=folder / "daemon", policy=policy)
        yield parts.enter_context(daemon)


def _lock(folder: Path, parts: ExitStack) -> None:
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    parts.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"another demo is running in {folder}") from error


def _empty(folder: Path) -> None:
    """Forget an earlier demo: its tasks, its logs, and what it had measured."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
