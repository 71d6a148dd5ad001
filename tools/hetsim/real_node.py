"""A real daemon for the time of a block, with null devices named as in a scenario.

It is started as a user would start it, as a process of its own, and spoken to through
`libtask` only: nothing of its shell is imported here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from libtask.client.client import Client, Selection
from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError, HetError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsim.scenario import ResourceModel

START_S = 30.0
"""Seconds that the daemon may take to serve; it asks no drivers."""

END_S = 20.0


@contextmanager
def real_node(resources: list[ResourceModel], migration_s: float) -> Iterator[Client]:
    """Run a daemon with these resources, in null devices; its tasks end with the block.

    Args:
        resources: those of a scenario; a processor that is shared cannot be had, since
            tasks that only wait do not slow each other down.
        migration_s: what its scheduler is to reckon a move to take, besides copying.

    Raises:
        DaemonUnreachableError: it does not start; ends with what it said last.

    """
    with ExitStack() as parts:
        folder = tempfile.TemporaryDirectory(
            prefix="hetsim-", ignore_cleanup_errors=True
        )
        home = Path(parts.enter_context(folder))
        config = {
            "migration_ms": 1e3 * migration_s,
            "resource": [_table(resource) for resource in resources],
        }
        (home / "hetd.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
        process = _start(home)
        parts.callback(_end, process)
        _await(process, home)
        client = parts.enter_context(Client(home / "s"))
        parts.callback(_cancel_all, client)
        yield client


def _table(resource: ResourceModel) -> dict[str, Any]:
    table = {
        "name": resource.name,
        "kind": resource.kind,
        "driver": "null",
        "slots": resource.slots,
        "emulated": True,
        "busy_watts": resource.busy_watts,
        "idle_watts": resource.idle_watts,
        "link_bytes_per_s": resource.link_bytes_per_s,
    }
    return {key: value for key, value in table.items() if value is not None}


def _start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hetd", "--socket", str(home / "s")]
    command += ["--state", str(home / "state"), "--config", str(home / "hetd.toml")]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # a Ctrl-C is ours: it must be there while tasks are cancelled
            start_new_session=True,
        )


def _await(process: subprocess.Popen[bytes], home: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            probe(home / "s")
        except DaemonUnreachableError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                said = (home / "log").read_text(errors="replace").splitlines()
                last = said[-1] if said else "no message"
                raise DaemonUnreachableError(
                    f"the private daemon does not start: {last}"
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
    return [info.id for info in client.tasks(Selection()) if info.state not in ENDED]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
