"""The flow of the batch: tasks arrive, run and move; what became of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hetdemo.batch import Arrivals
from libtask.client.client import Selection
from libtask.messages import ENDED

if TYPE_CHECKING:
    from hetdemo.batch import Job
    from hetdemo.progress import Followed
    from libtask.client.client import Client
    from libtask.messages import TaskInfo

LOOK_S = 0.05
"""Seconds between two looks at the clock while nothing happens."""


def run_batch(client: Client, jobs: list[Job], shown: Followed) -> list[TaskInfo]:
    """Submit the jobs as they arrive, follow all to their ends; return their records."""
    ids: list[int] = []
    unfinished: set[int] = set()
    arrivals = Arrivals(len(jobs))
    with client.watch() as changes:
        while unfinished or not arrivals.over:
            if arrivals.due(time.monotonic(), len(unfinished)):
                job = jobs[len(ids)]
                ids.append(client.submit(job.task, name=job.name).id)
                unfinished.add(ids[-1])
                shown.arrived(ids[-1], job.name)
            change = changes.within(LOOK_S)
            if change is None:
                continue
            shown.changed(change)
            if change.state in ENDED:
                unfinished.discard(change.id)
    infos = {info.id: info for info in client.tasks(Selection(tuple(ids), detail=True))}
    return [infos[task] for task in ids]
