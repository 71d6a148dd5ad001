"""Dependencies of a task on others that ended before the scheduler knew of it.

The scheduler follows dependencies on unfinished tasks. What ended before a submit, or before
a restart of hetd, is judged here by the same conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetd.tasks.inputs import result_forgotten, value_of
from hetsched.state import dependency_ended, not_needed
from libtask.messages import InputValue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from libtask.messages import TaskSpec, TaskState


class EndedTask(msgspec.Struct, frozen=True):
    """The end of a task that another one depends on; with a result only if it completed."""

    state: TaskState
    reason: str = ""
    result: InputValue | None = None


class Settled(msgspec.Struct, frozen=True):
    """The consequence of dependencies that ended before.

    Attributes:
        notok_met: whether a task of `after_notok` did not complete.
        reason: why the task ends at once; empty: it does not.

    """

    notok_met: bool = False
    reason: str = ""


def ended_task(page: TaskPage, *, with_result: bool) -> EndedTask:
    """Return what is known of an ended task."""
    taken = with_result and page.state == "completed"
    result = value_of(page) if taken else None
    return EndedTask(page.state.value, page.reason or "", result)


def settle(spec: TaskSpec, journal: Journal, known: Mapping[int, EndedTask]) -> Settled:
    """Judge the dependencies of a task that have ended; keep the results that it takes.

    Args:
        spec: the task.
        journal: the journal, which has the task already.
        known: ended tasks that were read before.

    """
    for each in spec.inputs:
        if each.task not in journal.live:
            reason = _take_result(each.task, journal, known)
            if reason:
                return Settled(reason=reason)
    for task in spec.after:
        end = _end(task, journal, known)
        if end is not None and end.state != "completed":
            return Settled(reason=dependency_ended(task, end.state, end.reason))
    return _settle_notok(spec, journal, known)


def _settle_notok(
    spec: TaskSpec, journal: Journal, known: Mapping[int, EndedTask]
) -> Settled:
    states = {task: _state(task, journal, known) for task in spec.after_notok}
    if any(state not in ("live", "completed", None) for state in states.values()):
        return Settled(notok_met=True)
    if not states or "live" in states.values():
        return Settled()
    forgotten = next((task for task, state in states.items() if state is None), None)
    if forgotten is not None:
        return Settled(
            reason=f"task {forgotten}, which it comes after, is no longer known"
        )
    return Settled(reason=not_needed(max(states)))


def _state(task: int, journal: Journal, known: Mapping[int, EndedTask]) -> str | None:
    """Return the state of an ended task, `live`, or None if it is forgotten."""
    if task in journal.live:
        return "live"
    end = _end(task, journal, known)
    return None if end is None else end.state


def _end(
    task: int, journal: Journal, known: Mapping[int, EndedTask]
) -> EndedTask | None:
    """Return the end of a task; None: it is unfinished or forgotten."""
    if task in journal.live:
        return None
    if task in known:
        return known[task]
    page = journal.find(task)
    return None if page is None else ended_task(page, with_result=False)


def _take_result(task: int, journal: Journal, known: Mapping[int, EndedTask]) -> str:
    """Keep the result of an ended task; return why there is none."""
    ended = known.get(task)
    if ended is not None and ended.result is not None:
        journal.inputs.keep(ended.result)
    if journal.inputs.knows(task):
        return ""
    page = journal.find(task)
    if page is None:
        return result_forgotten(task)
    if page.state != "completed":
        return dependency_ended(task, page.state, page.reason or "")
    journal.inputs.complete(page)
    return ""
