"""A task moves from one daemon to another, by its snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask import snapshots
from libtask.errors import InputError
from libtask.snapshots import SnapshotError
from system.private_daemon import PATIENCE, eventually
from system.snapshotting import ON_DEMAND, files_of, settings
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client
    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

HEAT = {"n": 256, "steps": 40_000}
"""Some seconds of computing: it is parked long before its end."""
CPU = '[[resource]]\nname = "cpu"\nkind = "cpu"\nslots = 1\n'
"""A real one, for a real application."""


def real(start: Start) -> PrivateDaemon:
    config = settings(ON_DEMAND)
    return start(config[: config.index("[[resource]]")] + CPU)


def under_way(client: Client, params: dict[str, Any], done: float = 0.01) -> TaskHandle:
    """Submit a task, and wait until it has computed some strips."""
    task = client.submit("heat", params)
    eventually(lambda: task.info().progress > done, "the first strips")
    return task


def test_a_task_continues_on_another_daemon_with_equal_bits(
    private_daemon: Start, tmp_path: Path
) -> None:
    there, here = real(private_daemon), real(private_daemon)
    unmoved = here.client.submit("heat", {**HEAT, "output": str(tmp_path / "a.npy")})
    unmoved.result(PATIENCE)
    params = {**HEAT, "output": str(tmp_path / "b.npy")}

    task = under_way(there.client, params)
    parked = task.park(PATIENCE)
    copied = snapshots.export(parked.path, tmp_path / "copy")
    there.client.cancel(task.id)
    moved = here.client.submit("heat", params, hold=True, resume=True, key="move-1")
    adopted = moved.adopt(tmp_path / "copy")
    here.client.release(moved.id)

    assert not parked.error
    assert Path(parked.path) == files_of(there, task.id)[-1]
    assert parked.size_bytes == Path(parked.path).stat().st_size == copied.size_bytes
    assert 0 < adopted.progress == copied.progress == parked.progress < 1
    moved.result(PATIENCE)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert f"continues after iteration {copied.checkpoint.done}" in moved.logs()
    (segment,) = moved.info().segments
    assert segment.strips > 0


def test_what_cannot_be_adopted_leaves_the_task_as_it_was(
    private_daemon: Start, tmp_path: Path
) -> None:
    daemon = real(private_daemon)
    client = daemon.client
    task = under_way(client, HEAT)
    path = task.park(PATIENCE).path
    other = client.submit("markov", {"n": 64}, hold=True, resume=True)
    held = client.submit("heat", {"n": 64, "steps": 10}, hold=True)

    with pytest.raises(SnapshotError, match="of another application, heat"):
        other.adopt(path)
    with pytest.raises(InputError, match="cannot adopt a snapshot: it is held"):
        held.adopt(path)
    with pytest.raises(InputError, match="keeps no snapshots"):
        client.submit("command", {"argv": ["true"]}, resume=True)
    client.release(other.id)

    other.result(PATIENCE)
    assert client.show(other.id).version


def test_parking_from_a_terminal(private_daemon: Start) -> None:
    daemon = real(private_daemon)
    typed = Terminal(daemon)
    begun = under_way(daemon.client, {**HEAT, "steps": 4_000_000}, done=0.0001)
    waiting = daemon.client.submit("heat", HEAT)
    command = daemon.client.submit("command", {"argv": ["true"]})

    with pytest.raises(InputError, match="is a command, which writes no snapshots"):
        daemon.client.park(begun.id, command.id)
    assert begun.state != "held"
    document = typed.json("hold", "--park", str(begun.id), str(waiting.id))
    text = typed("hold", "--park", str(begun.id), str(waiting.id))

    (first, second) = document["parked"]
    assert Path(first["path"]).exists()
    assert (second["path"], second["error"]) == ("", "")
    assert first["path"] in text
    assert f"task {waiting.id} held; it has not begun" in text
    assert daemon.info(begun.id).state == "held"
