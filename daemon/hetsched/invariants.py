"""Invariants of the scheduler's state, checked after every step of a test."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from hetsched.arrays import array_of
from hetsched.tasks import PLACEABLE, State
from libtask.errors import BugError

if TYPE_CHECKING:
    from hetsched.accounts import OwnerAccount
    from hetsched.arrays import ArrayKey
    from hetsched.queues import RunQueue
    from hetsched.system import ResourceState, System
    from hetsched.tasks import TaskRecord


ROUNDED = 1e-6
"""Difference of sums of charges that comes from rounding."""
NOWHERE: list[str] = []
"""Places of a task that is in no queue and on no resource; never changed."""


def check(system: System) -> None:
    """Raise `BugError` if a task is in two places or none, or a slot is used twice."""
    places: dict[int, list[str]] = {}
    if system.resources.keys() != system.states.keys():
        raise BugError("resources and their states disagree")
    _check_unplaced(system, places)
    _check_arrays(system)
    _check_blocked(system, places)
    for name, state in system.states.items():
        _check_queue(f"queue of {name}", name, state.queue, places)
        _check_running(name, state, places)
        _check_lent_slots(name, state, system)
    for task in system.tasks.values():
        _check_task(task, places.pop(task.id, NOWHERE), system)
    if not system.awaited.keys() <= system.tasks.keys():
        raise BugError("a task that has ended waits for others")
    for stranger, where in places.items():
        raise BugError(f"task {stranger} is in {where}, but not in the table of tasks")
    for task in system.departing.values():
        if task.state is not State.RUNNING:
            raise BugError(f"task {task.id} is departing while {task.state}")
    _check_accounts(system)


# This runs after every step of a test, so messages are only built when they are needed.


def _check_queue(
    where: str, resource: str | None, queue: RunQueue, places: dict[int, list[str]]
) -> None:
    if not queue and not queue.rows():
        return  # usually
    rows = set()
    for task in queue.tasks():
        places.setdefault(task.id, []).append(where)
        rows.add(task.row)
        if task.resource != resource:
            raise BugError(f"task {task.id} has another resource than its queue")
    if rows != set(queue.rows()):
        raise BugError(f"{where} lacks a row")
    for row in rows:
        head = queue.head_of(row)
        if head not in queue or head.row is not row:
            raise BugError(f"{where} has a wrong head")


def _check_unplaced(system: System, places: dict[int, list[str]]) -> None:
    """Check the queues of tasks that wait for no resource yet."""
    _check_queue("unplaced", None, system.unplaced, places)
    for queue in system.displaced:
        _check_queue("displaced", None, queue, places)
    for owner, queue in system.deferred.items():
        _check_queue(f"deferred, of {owner}", None, queue, places)
    for (_, array), queue in system.arrays.items():
        _check_queue(f"array {array}", None, queue, places)


def _check_arrays(system: System) -> None:
    """Check that the admitted members of each array are within its limit."""
    admitted: Counter[ArrayKey] = Counter()
    most: dict[ArrayKey, int] = {}
    for task in system.tasks.values():
        key = array_of(task)
        if key is not None:
            most[key] = max(most.get(key, 0), task.submitted.at_once)
            up = task.state is State.RUNNING or task.state in PLACEABLE
            admitted[key] += up and system.array_queue(task) is None
    for key, count in admitted.items():
        if count > most[key]:
            raise BugError(
                f"{count} tasks of array {key} are admitted: {most[key]} may be"
            )
    if not all(system.arrays.values()):
        raise BugError("an array without waiting tasks has a queue")


def _check_blocked(system: System, places: dict[int, list[str]]) -> None:
    for task in system.blocked:
        places.setdefault(task.id, []).append("blocked")
        if task.resource is not None or task.needs is None:
            raise BugError(f"task {task.id} is blocked, and has a resource or no needs")


def _check_running(
    name: str, state: ResourceState, places: dict[int, list[str]]
) -> None:
    slots, running = state.slots, len(state.running)
    if running > slots:
        raise BugError(f"{name} runs more tasks than it has slots")
    if state.queue and not state.usable:
        raise BugError(f"tasks wait for {name}, which is not usable")
    if state.queue and running < slots:
        raise BugError(f"{name} has a free slot while tasks wait for it")
    for task in state.running.values():
        places.setdefault(task.id, []).append(f"running on {name}")
        if task.resource != name:
            raise BugError(
                f"task {task.id} has another resource than the one that runs it"
            )
    for task in state.trailing.values():
        places.setdefault(task.id, []).append(f"running on {name}, behind another")
        first = task.train[0] if task.train else None
        if task.resource != name or first is None or first.id not in state.running:
            raise BugError(f"task {task.id} is in no train that runs on {name}")


def _check_lent_slots(name: str, state: ResourceState, system: System) -> None:
    running = state.running.values()
    if state.own_slots > state.resource.slots:
        raise BugError(f"{name} has more slots than its own and those that are lent")
    if state.lent != sum(task.lent for task in running):
        raise BugError(f"{name} counts {state.lent} lent slots")
    if state.awaiting != sum(task.id in system.awaited for task in running):
        raise BugError(f"{name} counts {state.awaiting} tasks that wait for others")


def _check_accounts(system: System) -> None:
    """Check the waiting and the charged tasks of each owner's account."""
    tasks: dict[OwnerAccount, list[TaskRecord]] = {}
    for task in system.tasks.values():
        tasks.setdefault(task.row.account, []).append(task)
    for account, own in tasks.items():
        waiting = sum([task.state in PLACEABLE for task in own])
        if account.waiting != waiting:
            wrong = f"{waiting} tasks wait, and {account.waiting} are counted"
            raise BugError(f"account {account.number}: {wrong}")
        charges = [task.charge for task in own if task.state is State.RUNNING]
        if account.running not in (0, len(charges)):
            wrong = f"{len(charges)} tasks run, and {account.running} are charged"
            raise BugError(f"account {account.number}: {wrong}")
        expected = sum(charges) if account.running else 0.0
        if not math.isclose(
            account.charged, expected, rel_tol=ROUNDED, abs_tol=ROUNDED
        ):
            wrong = f"charges of {expected} s, and {account.charged} are counted"
            raise BugError(f"account {account.number}: {wrong}")


def _check_task(task: TaskRecord, places: list[str], system: System) -> None:
    wrong = (
        _misplaced(task, places)
        or _astray(task, system)
        or _lending(task, system)
        or _idle(task, system)
        or _unready(task, system)
        or _parted(task, system)
    )
    if wrong is not None:
        story = (
            f"task {task.id} is {task.state} and in {places}: {task.describe_story()}"
        )
        raise BugError(f"{wrong}: {story}")


def _misplaced(task: TaskRecord, places: list[str]) -> str | None:
    """Return what is wrong with the place of a task."""
    running = task.state is State.RUNNING
    if len(places) != (running or task.state in PLACEABLE):
        return "not in exactly one place"
    if places and running != places[0].startswith("running"):
        return "state and place disagree"
    if running and not task.bound:
        return "runs without a worker"
    return None


def _astray(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with what is wanted of a task."""
    leaving = task.intent is not None and task.leaving  # usually there is none
    if task.not_started:  # it leaves a slot where it has one
        leaving = task.id in system.states[task.assigned_to].running
    if leaving != (task.id in system.departing):
        return "intent and departing tasks disagree"
    if task.intent is not None and task.state is not State.RUNNING:
        return "has an intent, but does not run"
    if task.not_started and task.state is not State.RUNNING:
        return "unstarted in a train, but does not run"
    return None


def _lending(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with a task that lends its slot, or has a lent one."""
    if (task.lent or task.id in system.awaited) and task.state is not State.RUNNING:
        return "lends a slot, or has a lent one, but does not run"
    return None


def _idle(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with a task's progress and dependencies."""
    if task.progress > task.kept and not task.bound:
        return "progress without a worker or a snapshot"
    for other in task.unmet:
        if other not in system.tasks and other not in system.ending:
            return "depends on an ended task"
    if not task.needed and task.submitted.after_notok.isdisjoint(task.unmet):
        return "waits for a failure that cannot come"
    return None


def _unready(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with the instant that a task waits for, or its failures."""
    waits, for_instant = task.state is State.WAITING, task in system.beginnings
    if for_instant and (task.unmet or not waits):
        return "waits for an instant while it does not wait, or waits for a task"
    if waits and not (task.unmet or for_instant or task.awaits_parts):
        return "waits for no task and no instant"
    if task.retried > task.submitted.retries:
        return "was run again too often"
    return None


def _parted(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with a task's parts, or with it as a part."""
    if not task.submitted.start <= task.kept <= task.limit <= 1.0:
        return "has its limit before its start, or before what is kept"
    whole = task.submitted.part_of
    if whole is not None and whole not in system.tasks and task.cancelling is None:
        return "is a part of a task that ended"
    return _overlapping(task, system) if task.parts_left else None


def _overlapping(task: TaskRecord, system: System) -> str | None:
    """Return what is wrong with the parts that a task has."""
    if not task.parts_left <= system.tasks.keys():
        return "has a part that ended"
    parts = [system.tasks[number] for number in task.parts_left]
    stretches = [(0.0, task.limit)]
    stretches += [(part.submitted.start, part.limit) for part in parts]
    stretches.sort()
    if any(one[1] > other[0] for one, other in pairwise(stretches)):
        return "shares strips with a part"
    return None
