"""The disk under a running daemon: full, failing, cut. What was acknowledged is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from libtask.client.client import Client, Selection
from libtask.errors import HetError
from system.private_daemon import PATIENCE, PrivateDaemon, eventually
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., PrivateDaemon]

HELD = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, hold=True)
PRIVATE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-Urm"]
"""Starts a command where it may mount file systems that nobody else sees."""


def _runs(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


tmpfs = pytest.mark.skipif(
    not _runs(*PRIVATE, "mount", "-t", "tmpfs", "none", "/mnt"),
    reason="a file system of its own cannot be mounted here",
)
traceable = pytest.mark.skipif(
    not _runs("strace", "-o", "/dev/null", "true"), reason="strace cannot run here"
)


@pytest.fixture
def small_disk(private_daemon: Start, monkeypatch: pytest.MonkeyPatch) -> PrivateDaemon:
    """Run a daemon whose state lies on a disk of 1 MiB."""
    plain = PrivateDaemon.command

    def command(daemon: PrivateDaemon) -> list[str]:
        daemon.state.mkdir(exist_ok=True)
        mount = f"mount -t tmpfs -o size=1m none {daemon.state}"
        return [*PRIVATE, "sh", "-c", f'{mount} && exec "$@"', "sh", *plain(daemon)]

    monkeypatch.setattr(PrivateDaemon, "command", command)
    return private_daemon()


def _disk(daemon: PrivateDaemon) -> Path:
    """Return the state as the daemon sees it."""
    return Path(f"/proc/{daemon.pid}/root{daemon.state}")


def _fill(folder: Path) -> Path:
    """Take all the room there is; return the file that has it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 65536
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return filler


def _submit_until_refused(client: Client, most: int = 100) -> tuple[list[int], str]:
    """Submit tasks; return the ids acknowledged, and the error that ended it."""
    ids: list[int] = []
    for _ in range(most):
        try:
            ids += [handle.id for handle in client.submit_specs([HELD] * 50)]
        except HetError as error:
            return ids, str(error)
    return ids, ""


@tmpfs
def test_a_full_disk_refuses_what_is_new_and_takes_the_ends_of_tasks(
    small_disk: PrivateDaemon, tmp_path: Path
) -> None:
    daemon, client = small_disk, small_disk.client
    task = Tracing(daemon, tmp_path, gate_at=5)
    task.await_gate()
    filler = _fill(_disk(daemon))

    ids, error = _submit_until_refused(client)
    task.open_gate()

    assert "nothing was submitted; retry when there is space" in error
    task.check_completed()
    assert {each.id for each in client.tasks(Selection(limit=9999))} == {task.id, *ids}
    again, error = _submit_until_refused(client, most=1)
    assert (again, "no space left" in error) == ([], True)

    filler.unlink()
    eventually(lambda: _submit_until_refused(client, most=1)[0], "room again")
    assert daemon.is_up()


@traceable
def test_a_failed_sync_ends_the_daemon_and_loses_nothing_acknowledged(
    private_daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = private_daemon()
    daemon.terminate()
    plain, inject = PrivateDaemon.command, "inject=fdatasync:error=EIO:when=25+"
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    with monkeypatch.context() as patch:
        patch.setattr(
            PrivateDaemon, "command", lambda self: [*trace, "-e", inject, *plain(self)]
        )
        daemon.start()
    with Client(daemon.socket, patience=0.0) as client:
        ids, _ = _submit_until_refused(client)
    status = daemon.wait()

    assert status == 1
    last = daemon.log.read_text().strip().splitlines()[-1]
    assert last.startswith(f"hetd: {daemon.state}/hetd.db: disk I/O error")
    assert last.endswith("start hetd again once the disk is sound")
    daemon.start()
    found = {each.id for each in daemon.connect().tasks(Selection(limit=9999))}
    assert ids
    assert set(ids) <= found


def test_a_damaged_store_keeps_the_daemon_from_starting(private_daemon: Start) -> None:
    daemon = private_daemon()
    daemon.client.submit_specs([HELD] * 50)
    daemon.kill9()
    log = daemon.state / "hetd.db-wal"
    sound = log.read_bytes()
    os.truncate(log, len(sound) // 2)

    ended = subprocess.run(
        daemon.command(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "its log is damaged" in ended.stderr
    assert "`hetctl daemon restore FILE` brings a backup" in ended.stderr
    assert not daemon.socket.exists() or not daemon.is_up()
    log.write_bytes(sound)
    daemon.start()
    assert len(daemon.connect().tasks(Selection(limit=100))) == 50
