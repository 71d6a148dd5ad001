"""Programs that watch all of their tasks, and the resources, over restarts of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from system.private_daemon import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import TaskChanged
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

SHORT = {"seconds": {"cpu": 0.01}}


def test_ones_own_tasks_are_watched_by_their_names(private_daemon: Start) -> None:
    daemon = private_daemon()
    before = daemon.client.submit("synthetic", SHORT, name="pool/1", hold=True)
    with daemon.connect().watch_all("pool/*") as changes:
        first = changes.within(PATIENCE)
        assert first is not None
        assert (first.id, first.what, first.name) == (before.id, "seen", "pool/1")

        daemon.client.submit("synthetic", SHORT, name="another").result(PATIENCE)
        later = daemon.client.submit("synthetic", SHORT, name="pool/2")
        later.result(PATIENCE)
        assert _until(changes.within, later.id, "completed") == {later.id}

        daemon.restart()
        daemon.client.release(before.id)
        assert before.id in _until(changes.within, before.id, "completed")


def _until(
    within: Callable[[float], TaskChanged | None], task: int, state: str
) -> set[int]:
    """Read changes up to one of a task; return the tasks that they were of."""
    seen = set()
    while True:
        change = within(PATIENCE)
        assert change is not None
        seen.add(change.id)
        if (change.id, change.state) == (task, state):
            return seen


def test_resources_are_watched_over_a_restart(private_daemon: Start) -> None:
    daemon = private_daemon()
    with daemon.connect().watch_resources() as changes:
        present = {next(changes).name for _ in range(3)}
        assert present == {"cpu", "gpu0", "fpga0"}

        daemon.client.drain("gpu0")
        drained = changes.within(PATIENCE)
        assert drained is not None
        assert (drained.name, drained.state, drained.slots) == ("gpu0", "draining", 0)
        assert drained.reason.startswith("drained by uid")

        daemon.restart()
        again = {(each.name, each.slots) for each in (next(changes) for _ in range(3))}
        assert again == {("cpu", 2), ("gpu0", 0), ("fpga0", 1)}
        daemon.client.resume("gpu0")
        back = changes.within(PATIENCE)
        assert back is not None
        assert (back.name, back.state, back.slots, back.reason) == ("gpu0", "up", 1, "")
