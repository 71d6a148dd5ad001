"""Sparrow's sampling: which processors a task probes (Ousterhout et al., SOSP 2013).

The choice is a hash of task and processor, so that no state is kept and the same events
give the same probes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from hetsched.planning.expected_finish import ready_since, waiting_without_place
from hetsched.planning.hashed_random import hashed
from hetsched.planning.owners_in_turn import OwnersInTurn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetsched.ids import TaskId
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

StageKey: TypeAlias = tuple[object, str]
"""Job and application: the tasks that share their probes."""
Places: TypeAlias = tuple[tuple[int, str, int], ...]
"""Number, name and slots of processors."""
Probes: TypeAlias = tuple[str, ...]
"""Names of the processors that a task probes."""
KEPT = 4096
"""Tasks whose probes are remembered."""


def probes_of(task: TaskRecord, system: System, count: int, seed: int) -> Probes:
    """Return the `count` processors that a task probes, of those that can run it now.

    A processor with several slots is as likely to be probed as that many processors.
    """
    able = system.affinities(task.row)
    places = [
        (number, name, state.slots)
        for number, (name, state) in enumerate(system.states.items())
        if name in able
    ]
    return _drawn(task.id, tuple(places), count, seed)


@lru_cache(maxsize=KEPT)
def _drawn(task: TaskId, places: Places, count: int, seed: int) -> Probes:
    """Return what a task probes: a pure function, remembered for the next decisions."""
    drawn = sorted(
        (hashed(seed, int(task), number, slot), name)
        for number, name, slots in places
        for slot in range(slots)
    )
    return tuple(dict.fromkeys([name for _, name in drawn]))[:count]


def launches(system: System, count: int, seed: int) -> Iterator[tuple[TaskRecord, str]]:
    """Yield tasks and the idle processors that take them, the first that was ready first.

    A probe belongs to the stage: a free processor takes the first unlaunched task of the
    earliest stage that has probed it (batch sampling with late binding).
    """
    waiting = waiting_without_place(system)
    waiting.sort(key=lambda task: (-task.priority, ready_since(task), task.sequence))
    idle = system.idle()
    stages: dict[StageKey, list[TaskRecord]] = {}
    probed: dict[StageKey, set[str]] = {}
    for task in waiting:
        key = _stage_of(task, system)
        stages.setdefault(key, []).append(task)
        known, able = probed.setdefault(key, set()), system.affinities(task.row)
        if any(name in able and name not in known for name in idle):
            known.update(probes_of(task, system, count, seed))
    turns = OwnersInTurn(system)
    for name in idle:
        for _ in range(system.spare(name)):
            having_probed = [
                tasks for key, tasks in stages.items() if name in probed[key]
            ]
            launchable = _launchable(having_probed, name, system)
            chosen = next(iter(turns.next_of(launchable)), None)
            if chosen is None:
                break
            turns.charge(chosen)
            stages[_stage_of(chosen, system)].remove(chosen)
            yield chosen, name


def _launchable(
    stages: list[list[TaskRecord]], name: str, system: System
) -> Iterator[TaskRecord]:
    """Yield the first task of each stage that a processor can run now."""
    for tasks in stages:
        for task in tasks:
            if name in system.affinities(task.row):
                yield task
                break


def _stage_of(task: TaskRecord, system: System) -> StageKey:
    job = system.job_of(task)
    return (task.id if job is None else job.key), task.submitted.app
