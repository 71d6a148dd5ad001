"""The tasks of a node: how it submits jobs to its own hetd."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from hetpool.jobs import CANCELLED
from hetpool.messages import JobTerms
from hetpool.node.tasks import NodeTasks
from libtask.messages import Control, Devices, Submit
from unit.fake_daemon import FakeDaemon
from unit.hetpool.fake_engine import a_job

if TYPE_CHECKING:
    from pathlib import Path


def test_expected_times_of_other_nodes_stay_away(tmp_path: Path) -> None:
    """hetd refuses times of resources that it does not have."""
    seconds = {"gpu": 3.0, "gpu0": 2.0, "gpu7": 1.0, "n1/cpu": 9.0, "n2/cpu": 8.0}
    params = {"seconds": {"cpu": 0.0}}
    daemon = FakeDaemon(tmp_path / "s")
    with closing(daemon), closing(_tasks(daemon.path, tmp_path)) as tasks:
        for number in (1, 2):
            job = a_job(number, params=params, seconds=seconds)
            tasks.submit(job, {}, JobTerms(job.id))

    sent = [spec.seconds for each in daemon.requests(Submit) for spec in each.tasks]
    assert sent == [{"gpu": 3.0, "gpu0": 2.0, "cpu": 9.0}] * 2
    assert len(daemon.requests(Devices)) == 1


def test_a_cancellation_has_one_reason(tmp_path: Path) -> None:
    """hetd says itself that the owner cancelled a task, before the reason that they gave."""
    daemon = FakeDaemon(tmp_path / "s")
    with closing(daemon), closing(_tasks(daemon.path, tmp_path)) as tasks:
        tasks.cancel([7], CANCELLED)
        tasks.cancel([8], "enough")

    sent = [(each.ids, each.reason) for each in daemon.requests(Control)]
    assert sent == [([7], ""), ([8], "enough")]


def _tasks(socket: Path, folder: Path) -> NodeTasks:
    return NodeTasks(socket, folder, "n1", lease_s=30.0)
