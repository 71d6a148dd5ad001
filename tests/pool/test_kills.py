"""Random kills of all of a pool's processes: no job is lost, none is completed twice.

`python -m torture pool` is the long form, which also cuts links.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pool.private_pool import DAEMON, PATIENCE, kill
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetpool import PoolTask
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(400)

VICTIMS = {"worker": 10, "hetd": 5, "agent": 3, "scheduler": 2}
"""Kills by victim; those that start in milliseconds more often."""
JOBS_A_KILL = 2
STRIPS = 40
SEED = int(os.environ.get("HETD_SEED", "1"))


def strike(made: PrivatePool, victim: str, name: str) -> None:
    """Kill a process and start it again."""
    daemon = made.nodes[name].daemon
    assert daemon is not None
    if victim == "worker":
        for pid in made.workers()[:1]:  # there is none when all jobs have just ended
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif victim == "agent":
        made.kill_node(name)
        made.start_node(name)
    elif victim == "hetd":
        daemon.kill9()
        daemon.start(PATIENCE)
    else:
        kill(made.scheduler)
        made.start_scheduler()


def have_ended(made: PrivatePool, tasks: list[PoolTask], count: int) -> bool:
    """Return whether so many jobs have ended; start again what ended by itself."""
    made.revive()
    return sum(task.done() for task in tasks) >= count


def test_no_job_is_lost_or_completed_twice(
    own_pool: Callable[..., PrivatePool],
) -> None:
    chance = random.Random(SEED)
    # patient: no node is given up while its processes start again
    config = "attempts = 1000\n" + DAEMON
    made = own_pool(lease_s=20.0, replace_s=60.0, daemon=config)
    victims = [name for name, count in VICTIMS.items() for _ in range(count)]
    chance.shuffle(victims)
    with made.pool() as client:
        made.await_nodes(client, "n1", "n2")
        times = [chance.uniform(0.2, 1.2) for _ in range(len(victims) * JOBS_A_KILL)]
        tasks = [
            client.submit("synthetic", {"seconds": {"cpu": each}, "strips": STRIPS})
            for each in times
        ]

        for number, victim in enumerate(victims):
            enough = partial(have_ended, made, tasks, number * JOBS_A_KILL // 2)
            eventually(enough, "progress", PATIENCE)
            strike(made, victim, chance.choice(["n1", "n2"]))

        every = partial(have_ended, made, tasks, len(tasks))
        eventually(every, "the end of all jobs", 2 * PATIENCE)
        for task in tasks:
            assert task.result(0)["strips"] == STRIPS
    for task in tasks:
        states = [
            each.state for name in made.nodes for each in made.tasks_of(name, task.id)
        ]
        # one that had not begun may have been given to the other node
        assert states.count("completed") == 1, f"seed {SEED}: {task} {states}"
        assert set(states) <= {"completed", "cancelled"}, (
            f"seed {SEED}: {task} {states}"
        )
