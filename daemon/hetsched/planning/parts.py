"""Parts of running tasks for idle resources: when one makes the end sooner, and how large.

Loesch and Platzner (2016, section IV-B) mention one task on several resources at once as
an interesting option. Only tasks whose strips are independent offer it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetsched.policy import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hetsched.planning.outlook import Outlook
    from hetsched.system import System
    from hetsched.tasks import TaskRecord

MOST_PARTS = 16
"""Parts that are made of one task at most: each costs a file and a record."""
RULE_PART = "an idle resource does a part of it, so that it ends sooner"


def share_work(
    system: System, outlook: Outlook, helpers: Iterable[str], least_gain: float
) -> Iterator[Split]:
    """Give each idle resource the part of a running task that saves most.

    Args:
        system: in which the parts run.
        outlook: what is expected of it.
        helpers: names of the idle resources; those for which a task waits are left out.
        least_gain: share of the task's remaining time that a part must save.

    """
    for name in helpers:
        if _is_wanted(system, name):
            continue
        offers = [
            (saved, -task.sequence, task, limit)
            for task in _divisible(system)
            if task.resource != name and name in system.affinities(task.row)
            for saved, limit in [division(outlook, task, name, least_gain)]
            if saved > 0.0
        ]
        if offers:
            _, _, task, limit = max(offers, key=lambda offer: offer[:2])
            yield Split(task.id, name, limit, RULE_PART)


def division(
    outlook: Outlook, task: TaskRecord, helper: str, least_gain: float
) -> tuple[float, float]:
    """Return the seconds saved by the best part for `helper`, and the limit of the task.

    Both sides then end at about the same time: the part begins one strip later, when the
    task has confirmed its limit, and after its data were copied. 0 seconds: the end comes
    no sooner by more than is uncertain about it.
    """
    system, here = outlook.system, task.assigned_to
    left = system.left(task)
    pace = system.seconds(task.row, here) * outlook.pace(here)
    paced = system.seconds(task.row, helper) * outlook.pace(helper, newcomers=1)
    strip = outlook.strip(task, here) * outlook.pace(here)
    setting_up = strip + outlook.transfer(task, here, helper)
    setting_up += system.resources[helper].reconfigure_s
    merging = task.submitted.merge_s + outlook.transfer(task, helper, here)
    balanced = (left * pace - setting_up) / max(pace + paced, 1e-9)
    end, share = min(
        (
            (max((left - share) * pace, setting_up + share * paced), share)
            for share in _shares(task, balanced)
            if 0.0 < share < left
        ),
        default=(math.inf, 0.0),
    )
    saved = left * pace - end - merging
    deviation = math.hypot(
        (left - share) * pace * _spread(system, task, here),
        share * paced * _spread(system, task, helper),
    )
    if saved <= outlook.caution / 2 * deviation + least_gain * left * pace:
        return 0.0, task.limit
    return saved, task.limit - share


def _shares(task: TaskRecord, balanced: float) -> list[float]:
    """List the shares of the work around `balanced` that a part of a task can have."""
    granule = task.granule
    if task.submitted.strips is not None:
        granule = 1.0 / task.submitted.strips
    if not granule:
        return [balanced]
    cut = (task.limit - balanced) / granule
    return [task.limit - at * granule for at in (math.ceil(cut), math.floor(cut))]


def _spread(system: System, task: TaskRecord, resource: str) -> float:
    return system.estimates.spread(task.row, system.resources[resource])


def _divisible(system: System) -> Iterator[TaskRecord]:
    """List the running tasks of which a part may be made now."""
    for state in system.states.values():
        for task in state.running.values():
            submitted = task.submitted
            if (
                submitted.parallel
                and submitted.preemptible
                and not submitted.served
                and task.intent is None
                and task.splits_for is None
                and task.train is None
                and task.pinned is None
                and _parts_of(system, task) < MOST_PARTS
            ):
                yield task


def _parts_of(system: System, task: TaskRecord) -> int:
    return len(system.tasks[task.submitted.part_of or task.id].parts)


def _is_wanted(system: System, name: str) -> bool:
    """Whether a task waits that could use a resource, or a part is being made for it."""
    rows = [task.row for task in system.blocked]
    queues = [state.queue for state in system.states.values()]
    for queue in [system.unplaced, *queues]:
        rows += queue.rows()
    if any(name in system.affinities(row) for row in rows):
        return True
    states = system.states.values()
    return any(t.splits_for == name for s in states for t in s.running.values())
