"""The tasks of a submitter that has died stand still until it is back."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from system.private_daemon import PATIENCE, eventually
from system.terminal import Terminal
from system.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]


def test_a_running_task_of_a_dead_submitter_is_held_over_a_restart(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = private_daemon()
    with renewing(daemon):
        task = Tracing(
            daemon, tmp_path, gate_at=5, total_strips=400, lease="pool", lease_s=2.0
        )
        task.await_gate()
    assert not daemon.info(task.id).fenced
    eventually(lambda: daemon.info(task.id).fenced, "the end of the lease")
    task.open_gate()
    daemon.await_state(task.id, "held")
    shown = Terminal(daemon)("show", str(task.id))
    assert "'pool', 2 s: over, so the task is held until it is renewed" in shown
    done = len(task.strips())

    daemon.restart()
    assert daemon.info(task.id).state == "held"
    assert len(task.strips()) == done
    renewed = daemon.client.renew("pool")
    assert (renewed.tasks, renewed.released) == (1, 1)
    with renewing(daemon):
        task.check_completed(400)

    assert len(task.pids()) == 1


@contextmanager
def renewing(daemon: PrivateDaemon) -> Iterator[None]:
    """Renew the lease of a live submitter."""
    client, over = daemon.connect(), threading.Event()

    def renew() -> None:
        while not over.wait(0.2):
            client.renew("pool")

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
