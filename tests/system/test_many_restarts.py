"""Many crashes and restarts of the daemon: running tasks notice none of them."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hettorture.arena import PATIENCE, Arena, eventually
from hettorture.customers import DEAF
from libtask import messages as m
from libtask.client.session import Session
from system import traced

if TYPE_CHECKING:
    from pathlib import Path

RESTARTS = int(os.environ.get("HETD_RESTARTS", "100"))
ORDERLY = 5
"""Every so many of them is a stop, not a crash."""
PLACES = ("cpu", "cpu", "gpu0", "fpga0")
"""As many tasks as the resources of an arena run at once."""


def a_gated_task(folder: Path, number: int, place: str) -> m.TaskSpec:
    params = {
        "trace": str(folder / f"trace-{number}"),
        "gate": str(folder / "gate"),
        "gate_at": 5,
    }
    return m.TaskSpec(
        app=f"{traced.__file__}:Traced",
        params=params,
        type=f"traced/{number}",
        kinds=["cpu", "gpu", "fpga"],
        resources=[place],
        iterations=20,
    )


def pids(trace: Path) -> set[str]:
    """Return which processes ran strips of a task."""
    if not trace.exists():
        return set()
    return {line.split()[-1] for line in trace.read_text(encoding="ascii").splitlines()}


@pytest.mark.timeout(4 * RESTARTS)
def test_running_tasks_survive_many_restarts(tmp_path: Path) -> None:
    traces = [tmp_path / f"trace-{number}" for number in range(len(PLACES))]
    with Arena("affinity") as arena:
        arena.start_daemon()
        arena.await_answer()
        arena.start_launcher()
        with closing(
            Session(arena.socket, DEAF, timeout=PATIENCE, patience=PATIENCE)
        ) as session:
            specs = [a_gated_task(tmp_path, *each) for each in enumerate(PLACES)]
            ids = session.request(m.Submit(request=0, tasks=specs, key="k")).ids
            eventually(lambda: all(map(pids, traces)), "all tasks at work")
            first = [pids(trace) for trace in traces]

            for number in range(RESTARTS):
                if number % ORDERLY:
                    arena.kill_daemon()
                else:
                    assert arena.stop_daemon() == 0
                arena.start_daemon()
                arena.await_answer()
                found = session.request(m.ListTasks(request=0, ids=ids)).tasks
                assert {(task.state, task.attempts) for task in found} == {
                    ("running", 0)
                }
            (tmp_path / "gate").touch()

            def ended() -> bool:
                found = session.request(m.ListTasks(request=0, ids=ids)).tasks
                return {task.state for task in found} == {"completed"}

            eventually(ended, "the end of all tasks")

    assert [pids(trace) for trace in traces] == first
    assert all(len(each) == 1 for each in first)
