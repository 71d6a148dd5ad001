"""How often a launcher looks at its workers: rarely while none has a task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from libtask.launcher import supervisor as module
from libtask.launcher.supervisor import Child, Supervisor
from libtask.phase import Phase, PhasePage
from libtask.worker.options import WorkerOptions

if TYPE_CHECKING:
    import pytest


def test_workers_have_tasks_from_the_beginning_of_one_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # it is for good, and orphans of later tests would become children of this process
    monkeypatch.setattr(module, "become_subreaper", lambda: None)
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
