"""Parts of tasks in the journal: their specifications, and what they have done.

A part is a task of its own, with its page, its worker and its snapshots. It does the last
iterations of another task, whose worker merges the snapshot that the part leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from hetd.tasks.recovery import running_s
from libtask.messages import CheckpointRecord, PartOf, PartResult, TaskSpec

if TYPE_CHECKING:
    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from libtask.messages import StripsGiven

LEAST_S = 1e-3
"""Least time that a part gets until its deadline or time limit, which may have come."""


def open_part(
    journal: Journal, page: TaskPage, given: StripsGiven, now: float
) -> TaskPage:
    """Open a page for iterations that a task gave up, and lower the limit of the task.

    Args:
        journal: gets the page.
        page: the task, maybe a part itself.
        given: the iterations.
        now: seconds since the epoch.

    """
    spec = _specification(page, given, now)
    part = journal.admit(spec, page.owner, now, b"")
    part.limit, page.limit = given.stop, given.start
    part.checkpoint = CheckpointRecord(given.start, given.total)
    part.submission = page.submission
    journal.save(page)
    return part


def _specification(page: TaskPage, given: StripsGiven, now: float) -> TaskSpec:
    spec = page.spec
    whole = page.id if spec.part is None else spec.part.task
    deadline, limit = page.deadline, spec.time_limit_s
    return structs.replace(
        spec,
        name=f"part of {whole}",
        job="",
        after=[],
        after_any=[],
        after_notok=[],
        hold=False,
        begin=None,
        array="",
        at_once=0,
        resume=False,
        resumes="",
        lease="",  # it is held with the whole task
        lease_s=0.0,
        overrun="continue",  # the whole task is stopped, with its parts
        deadline_s=None if deadline is None else max(deadline - now, LEAST_S),
        time_limit_s=None
        if limit is None
        else max(limit - running_s(page, now), LEAST_S),
        part=PartOf(whole, given.start, given.total),
    )


def keep_piece(journal: Journal, page: TaskPage) -> None:
    """Note in the page of the whole task what a part has done that just completed."""
    part = page.spec.part
    whole = None if part is None else journal.live.get(part.task)
    if part is not None and whole is not None:
        stop = part.total if page.limit is None else page.limit
        piece = PartResult(page.snapshots_name, part.start, stop)
        whole.pieces = (*whole.pieces, piece)
        journal.save(whole)
