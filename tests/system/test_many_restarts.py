"""Many crashes and restarts of the daemon: running tasks notice none of them."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from libtask.client.session import Session
from system import traced
from torture.deployment import PATIENCE, Deployment, eventually
from torture.load import DEAF

if TYPE_CHECKING:
    from pathlib import Path

RESTARTS = int(os.environ.get("HETD_RESTARTS", "20"))
ORDERLY = 5
"""Every so many of them is a stop, not a crash."""
PLACES = ("cpu", "cpu", "gpu0", "fpga0")
"""As many tasks as the resources of an deployment run at once."""


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


@pytest.mark.timeout(60 + 4 * RESTARTS)
def test_running_tasks_survive_many_restarts(tmp_path: Path) -> None:
    traces = [tmp_path / f"trace-{number}" for number in range(len(PLACES))]
    with Deployment("affinity") as deployment:
        deployment.start_daemon()
        deployment.await_answer()
        deployment.start_launcher()
        with closing(
            Session(deployment.socket, DEAF, timeout=PATIENCE, patience=PATIENCE)
        ) as session:
            specs = [a_gated_task(tmp_path, *each) for each in enumerate(PLACES)]
            ids = session.request(m.Submit(request=0, tasks=specs, key="k")).ids
            eventually(lambda: all(map(pids, traces)), "all tasks at work")
            first = [pids(trace) for trace in traces]

            for number in range(RESTARTS):
                if number % ORDERLY:
                    deployment.kill_daemon()
                else:
                    assert deployment.stop_daemon() == 0
                deployment.start_daemon()
                deployment.await_answer()
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
