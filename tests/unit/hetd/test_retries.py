"""Tasks that are run again after failures of their own, as the daemon keeps and shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.clock import Clock
from hetsched.system import SECOND
from libtask import messages as m
from libtask.documents import MAX_RETRIES
from libtask.messages.codec import MalformedError, decode_to_daemon, encode
from unit.daemon_shell import Shell, a_peer, a_spec

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_700_000_000.0


class Hours:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: int(self.seconds * SECOND), lambda: EPOCH + self.seconds)


def _failed(shell: Shell, **fields: int) -> int:
    """Submit a task, and let its worker report that it failed."""
    shell.launcher()
    (task,) = shell.submit(a_spec(kinds=["cpu"], **fields))
    (name,) = shell.sent.to("launcher1000", m.StartWorkers)[-1].names
    shell.worker(name)
    run = shell.run_of(name)
    failed = m.Failed(run.task, run.epoch, "exit status 3", exit_code=3)
    shell.reports.report(a_peer(name), failed)
    return task


def test_a_pause_is_shown_with_the_error(tmp_path: Path) -> None:
    hours = Hours()
    shell = Shell(tmp_path, hours.clock())

    task = _failed(shell, retries=2)

    info = shell.journal.live[task].info(detail=True)
    assert (info.state, info.reason, info.exit_code) == (
        "waiting",
        "exit status 3",
        3,
    )
    assert (info.retries, info.retried, info.begins) == (2, 1, EPOCH + 1)
    assert info.segments[0].error == "exit status 3"
    hours.seconds = 1.5
    assert (shell.runtime.next_deadline() or 0) <= SECOND
    shell.runtime.tick()
    info = shell.journal.live[task].info(detail=True)
    assert (info.state, info.begins) == ("running", None)
    shell.close()


def test_a_pause_survives_a_restart(tmp_path: Path) -> None:
    hours = Hours()
    shell = Shell(tmp_path, hours.clock())
    task = _failed(shell, retries=2)
    shell.commit()
    shell.close()

    hours.seconds = 0.5
    again = Shell(tmp_path, hours.clock())
    again.runtime.restore()
    page = again.journal.live[task]
    restored = (page.state, page.runtime.retried, page.begins, page.reason)
    hours.seconds = 1.6
    again.runtime.tick()

    assert restored == ("waiting", 1, EPOCH + 1.5, "exit status 3")
    assert page.state == "running"
    again.close()


@pytest.mark.parametrize("retries", [-1, MAX_RETRIES + 1])
def test_retries_are_bounded(retries: int) -> None:
    request = m.Submit(1, [a_spec(retries=retries)])

    with pytest.raises(MalformedError, match="retries"):
        decode_to_daemon(encode(request))
