"""Decisions with 1,000 waiting tasks on 16 machines, under the policies for deadlines.

A task ends, a mapping event follows; another task arrives, and so does its event.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from hetsched import events as e
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.limits import Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND, Resource

POLICIES = ("mm", "msd", "mmu", "elare", "felare", "fair-deadline")
WAITING = 1000
MACHINES = 16
TYPES = 8
EVENTS = 600
STEP = SECOND // 100


def run() -> list[dict[str, Any]]:
    return [_measure(policy) for policy in POLICIES]


def _measure(policy: str) -> dict[str, Any]:
    crowd = Crowd(policy)
    crowd.fill()
    waiting = len(crowd.scheduler.system.unplaced)
    times = [crowd.step() for _ in range(EVENTS)]
    times.sort()
    return {
        "policy": policy,
        "machines": MACHINES,
        "types": TYPES,
        "waiting": waiting,
        "median_us": round(1e6 * statistics.median(times), 1),
        "p99_us": round(1e6 * times[int(0.99 * len(times))], 1),
        "max_us": round(1e6 * times[-1], 1),
    }


class Crowd:
    """Busy machines and a crowd of waiting tasks with different deadlines."""

    def __init__(self, policy: str) -> None:
        self.random = random.Random(1)
        self.now = 0
        self.number = 0
        names = [f"m{index}" for index in range(MACHINES)]
        resources = [
            Resource(name, "cpu", busy_watts=1.0 + index % 5, queue_limit=3)
            for index, name in enumerate(names)
        ]
        table = EstimateTable()
        for kind in range(TYPES):
            for name in names:
                table.learn(f"t{kind}", name, self.random.uniform(1.0, 9.0), 1.0)
        self.scheduler = Scheduler(
            resources, table, make_policy(policy, {}), limits=Limits(stage=0)
        )

    def fill(self) -> None:
        for _ in range(WAITING + 4 * MACHINES):
            self._handle(self._submission())

    def step(self) -> float:
        """End a task and let one arrive; return the longer decision in seconds."""
        running = [
            task
            for state in self.scheduler.system.states.values()
            for task in state.running.values()
        ]
        task = running[int(self.random.random() * len(running))]
        ended = self._handle(e.TaskFinished(task.id, task.epoch))
        return max(ended, self._handle(self._submission()))

    def _submission(self) -> e.TaskSubmitted:
        self.number += 1
        kind = f"t{int(self.random.random() * TYPES)}"
        # Due in minutes: all of them are alive and wait.
        due = self.now + int(self.random.uniform(200.0, 400.0) * SECOND)
        return e.TaskSubmitted(
            TaskId(self.number), kind, frozenset({"cpu"}), deadline=due
        )

    def _handle(self, event: e.Event) -> float:
        self.now += STEP
        began = time.perf_counter()
        self.scheduler.handle(event, self.now)
        return time.perf_counter() - began
