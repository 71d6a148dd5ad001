"""The demo's own daemon: its socket and state lie in the output folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.client.client import Client, Selection
from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError, HetError, InputError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 90.0
"""Seconds that the daemon may take to serve; drivers may compile when first asked."""

END_S = 20.0
LONGEST_SOCKET = 100
"""Bytes of a socket's path; the kernel takes 107, and files beside it have longer names."""


@contextmanager
def private_daemon(folder: Path, policy: str) -> Iterator[Client]:
    """Run a daemon; it ends with the block, and so does every task, whatever happens.

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
        socket = place_socket(folder / "daemon", parts)
        log = folder / "daemon" / "hetd.log"
        process = _start(socket, folder / "daemon" / "state", log, policy)
        parts.callback(_end, process)
        _await(process, socket, log)
        client = parts.enter_context(Client(socket))
        parts.callback(_cancel_all, client)
        yield client


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


def place_socket(folder: Path, parts: ExitStack) -> Path:
    """Place the socket in the folder; in a temporary one where its path is too long."""
    socket = folder / "hetd.sock"
    if len(os.fsencode(socket)) <= LONGEST_SOCKET:
        return socket
    short = tempfile.TemporaryDirectory(prefix="hetd-", ignore_cleanup_errors=True)
    return Path(parts.enter_context(short)) / "hetd.sock"


def _start(
    socket: Path, state: Path, log: Path, policy: str
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hetd", "--policy", policy]
    command += ["--socket", str(socket), "--state", str(state)]
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603  our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # a Ctrl-C is ours: it must be there while tasks are cancelled
            start_new_session=True,
        )


def _await(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            probe(socket)
        except DaemonUnreachableError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(encoding="utf-8", errors="replace").splitlines()
                last = said[-1] if said else "no message"
                raise DaemonUnreachableError(
                    f"the demo's daemon does not start: {last} (see {log})"
                ) from error
            time.sleep(0.05)
        else:
            return


def _cancel_all(client: Client) -> None:
    """Leave no task behind: workers go on without a daemon."""
    try:
        unfinished = _unfinished(client)
        if unfinished:
            client.cancel(*unfinished)
        deadline = time.monotonic() + END_S
        while _unfinished(client) and time.monotonic() < deadline:
            time.sleep(0.05)
    except HetError:  # the daemon itself is gone; its launcher ends by itself
        return


def _unfinished(client: Client) -> list[int]:
    tasks = client.tasks(Selection())
    return [info.id for info in tasks if info.state not in ENDED]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
