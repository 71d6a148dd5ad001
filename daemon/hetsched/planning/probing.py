"""Sparrow's sampling: which processors a task probes (Ousterhout et al., SOSP 2013).

The choice is a hash of task and processor, so that no state is kept and the same events
give the same probes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hetsched.planning.expected_finish import waiting_without_place
from hetsched.planning.hashed_random import hashed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.system import System
    from hetsched.tasks import TaskRecord

StageKey: TypeAlias = tuple[object, str]
"""Job and application: the tasks that share their probes."""


def probes_of(task: TaskRecord, system: System, count: int, seed: int) -> list[str]:
    """Return the `count` processors that a task probes, of those that can run it now.

    A processor with several slots is as likely to be probed as that many processors.
    """
    numbers = {name: number for number, name in enumerate(system.resources)}
    drawn = sorted(
        (hashed(seed, int(task.id), numbers[name], slot), name)
        for name in system.affinities(task.row)
        for slot in range(system.states[name].slots)
    )
    return list(dict.fromkeys([name for _, name in drawn]))[:count]


def launches(system: System, count: int, seed: int) -> Iterator[tuple[TaskRecord, str]]:
    """Yield tasks and the idle processors that take them, first come, first served.

    A probe belongs to the stage: a free processor takes the first unlaunched task of the
    earliest stage that has probed it (batch sampling with late binding).
    """
    waiting = waiting_without_place(system)
    waiting.sort(key=lambda task: (-task.priority, task.sequence))
    stages: dict[StageKey, list[TaskRecord]] = {}
    probed: dict[StageKey, set[str]] = {}
    for task in waiting:
        key = _stage_of(task, system)
        stages.setdefault(key, []).append(task)
        probed.setdefault(key, set()).update(probes_of(task, system, count, seed))
    for name in system.idle():
        for _ in range(system.spare(name)):
            for key, tasks in stages.items():
                if name not in probed[key]:
                    continue
                able = [t for t in tasks if name in system.affinities(t.row)]
                if able:
                    tasks.remove(able[0])
                    yield able[0], name
                    break


def _stage_of(task: TaskRecord, system: System) -> StageKey:
    job = system.job_of(task)
    return (task.id if job is None else job.key), task.submitted.app
