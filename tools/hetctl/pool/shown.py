"""Tasks of a pool as rows and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.output import clock_time, iso, task_document
from hetctl.views.places import marked

if TYPE_CHECKING:
    from hetctl.documents.pool import PoolTaskDetail, PoolTaskPart, PoolTasks
    from hetctl.pool.gathering import Gathered, TaskView

HEADINGS = ("id", "app", "state", "node", "on", "done", "moves", "submitted", "note")
LONGEST_NOTE = 60


def resource_of(view: TaskView) -> str:
    """Return the resource that a task is on, or was last; empty: none is known."""
    if view.hidden:
        return ""
    if view.info is not None and view.info.resource:
        return view.info.resource
    return view.status.resource if view.status is not None else ""


def reason_of(view: TaskView) -> str:
    """Return why a task waits, is out of reach, or ended without a result; empty: it does not."""
    if view.hidden:
        return "; ".join(f"{node}: {why}" for node, why in sorted(view.hidden.items()))
    if view.status is not None and view.status.finished:
        return view.status.reason
    if view.info is not None and view.info.reason:
        return view.info.reason
    return view.status.reason if view.status is not None else ""


def progress_of(view: TaskView) -> float:
    """Return the share of a task that is done."""
    if view.info is None:
        return view.status.progress if view.status is not None else 0.0
    return 1.0 if view.info.state == "completed" else view.info.progress


def row(view: TaskView, found: Gathered) -> tuple[str, ...]:
    """Return the cells of `HEADINGS`."""
    resource = resource_of(view)
    where = marked(resource, found.emulated(view.node)) if resource else "-"
    note = reason_of(view)
    return (
        view.id,
        view.app,
        view.state,
        view.node or "-",
        where,
        f"{100 * progress_of(view):.0f} %",
        str(view.moves),
        clock_time(view.submitted),
        note if len(note) <= LONGEST_NOTE else note[: LONGEST_NOTE - 1] + "…",
    )


def part_of(view: TaskView, found: Gathered) -> PoolTaskPart:
    """Return the document of a task."""
    info, resource = view.info, resource_of(view)
    return {
        "id": view.id,
        "job": view.job,
        "app": view.app,
        "state": view.state,
        "node": view.node or None,
        "resource": resource or None,
        "emulated": resource in found.emulated(view.node),
        "progress": progress_of(view),
        "moves": view.moves,
        "migrations": info.migrations if info is not None else 0,
        "submitted": iso(view.submitted),
        "started": iso(view.attempts[0][1].started) if view.attempts else None,
        "finished": iso(view.finished),
        "reason": reason_of(view) or None,
    }


def tasks_part(views: list[TaskView], found: Gathered) -> PoolTasks:
    """Return the document of several tasks."""
    return {
        "format": "hetctl/pool-tasks-1",
        "tasks": [part_of(view, found) for view in views],
        "unanswered": sorted(found.unanswered),
    }


def detail_of(view: TaskView, found: Gathered) -> PoolTaskDetail:
    """Return the document of a task with its tasks in the hetd of each node."""
    tasks = {
        node: task_document(info, found.emulated(node)) for node, info in view.attempts
    }
    return {**part_of(view, found), "tasks": tasks}
