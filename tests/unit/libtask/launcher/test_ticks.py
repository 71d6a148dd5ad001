"""How often a launcher looks at its workers: rarely while none has a task."""

from __future__ import annotations

import os
from pathlib import Path

from libtask.launcher.supervisor import Child, Supervisor
from libtask.phase import Phase, PhasePage
from libtask.worker.options import WorkerOptions


def test_workers_have_tasks_from_the_beginning_of_one_to_its_end() -> None:
    supervisor = Supervisor(lambda _: None, os.open(os.devnull, os.O_RDONLY))
    page = PhasePage.shared()
    options = WorkerOptions("w1", Path("/nowhere"), page=page)
    empty = supervisor.have_tasks()
    supervisor._children[1] = Child(options, pid=1)

    idle = supervisor.have_tasks()
    page.begin(1, 1, 0, Phase.LOADING)
    busy = supervisor.have_tasks()
    page.enter(Phase.IDLE)

    assert (empty, idle, busy, supervisor.have_tasks()) == (False, False, True, False)
