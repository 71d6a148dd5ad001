"""Requests to submit tasks: check them and assign ids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hetd.requests.resources import resource_named
from hetd.requests.slices import ReadBudget
from libtask import messages as m
from libtask.errors import InputError, NotAllowedError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.requests.storage_quota import StorageQuota
    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer


LATEST = 1e10
"""Largest deadline in seconds that fits into nanoseconds: about three centuries."""


class SubmitRequests:
    """Handles submits; each is atomic.

    Tasks are checked in steps and created in one step, so that a crash leaves either all
    tasks of a request or none.
    """

    def __init__(
        self, runtime: Runtime, rights: Permissions, quota: StorageQuota
    ) -> None:
        self._runtime = runtime
        self._rights = rights
        self._quota = quota

    def submit(self, peer: Peer, request: m.Submit) -> Steps:
        _refuse_dependencies(request.tasks)
        reading = ReadBudget(self._runtime.journal)
        completed: set[int] = set()
        if request.part_of:
            self._rights.require_own(peer, request.part_of)
        for position, spec in enumerate(request.tasks):
            self._check(peer, spec)
            for other in spec.after:
                self._look_up(peer, other, position, completed)
                if reading.is_enough():
                    yield
        self._demand_room(peer.uid, request.tasks)
        # from here on no other request runs between check and change
        launcher = self._runtime.pool.has_launcher(peer.uid)
        if request.worker:
            self._demand_free(peer, request)
        first = self._runtime.journal.next_id()
        specs = [
            self._anchored(spec, first + position, completed)
            for position, spec in enumerate(request.tasks)
        ]
        submission = request.part_of or first
        pages = [self._admit(peer, spec, request.worker, submission) for spec in specs]
        reach("submit.admitted")
        self._runtime.submit(pages)
        ids = [page.id for page in pages]
        return m.Submitted(request.request, ids, launcher)

    def _demand_free(self, peer: Peer, request: m.Submit) -> None:
        """Refuse a submit that names a worker which cannot run it."""
        if not self._runtime.pool.free(peer.uid, request.worker):
            raise InputError(f"worker {request.worker!r} is not here or has a task")
        if len(request.tasks) != 1:
            raise InputError(
                f"a worker of its own runs 1 task, not {len(request.tasks)}"
            )

    def again(
        self, peer: Peer, ended: Sequence[TaskPage], request: m.Requeue
    ) -> list[TaskPage]:
        """Create new tasks from ended ones; all or none.

        Raises:
            InputError, NotAllowedError: as for a submit.

        """
        specs = [self._spec_again(page, request) for page in ended]
        for spec in specs:
            self._check(peer, spec)
        by_owner: dict[int, list[m.TaskSpec]] = {}
        for page, spec in zip(ended, specs, strict=True):
            by_owner.setdefault(page.owner, []).append(spec)
        for owner, some in by_owner.items():
            self._demand_room(owner, some)
        first = self._runtime.journal.next_id()
        renamed = {each.old: each.new for each in request.done} | {
            page.id: first + position for position, page in enumerate(ended)
        }
        made = []
        for page, spec in zip(ended, specs, strict=True):
            after = [renamed.get(task, task) for task in spec.after]
            wanted = msgspec.structs.replace(spec, after=after)
            made.append(self._repeat(peer, page, wanted, first))
        self._runtime.submit(made)
        return made

    def _repeat(
        self, peer: Peer, ended: TaskPage, spec: m.TaskSpec, submission: int
    ) -> TaskPage:
        """Create the page of a task that repeats an ended one, and record the order."""
        now = self._runtime.clock.wall()
        route = peer.route if ended.owner == peer.uid else b""
        page = self._runtime.journal.admit(spec, ended.owner, now, route)
        page.submission = submission
        page.requeued = ended.id
        order = m.Order(now, "requeue", peer.uid, f"of task {ended.id}")
        self._runtime.journal.record_order(page, order)
        return page

    def _spec_again(self, ended: TaskPage, request: m.Requeue) -> m.TaskSpec:
        """Describe a task that has ended as it is submitted again; it is not held.

        Raises:
            InputError: one that it comes after has failed, and is not submitted again.

        """
        again = {*request.ids, *(each.old for each in request.done)}
        live = self._runtime.journal.live
        after = [task for task in ended.spec.after if task in again or task in live]
        for task in ended.spec.after:
            other = None if task in after else self._runtime.journal.find(task)
            if other is not None and other.state != "completed":
                raise InputError(
                    f"task {ended.id} comes after task {task}, which ended as "
                    f"{other.state}: submit that again, too"
                )
        return msgspec.structs.replace(ended.spec, hold=False, after=after)

    def _demand_room(self, owner: int, specs: Sequence[m.TaskSpec]) -> None:
        """Refuse what exceeds the limits of tasks, and of bytes, that a user may have."""
        limit = self._runtime.limits.tasks.of(owner)
        has = len(self._runtime.journal.live_of.get(owner, ()))
        if limit is not None and has + len(specs) > limit:
            raise NotAllowedError(
                f"you may have {limit} unfinished tasks and have {has}: no room for "
                f"{len(specs)} more; wait until some end, or ask for a higher limit"
            )
        self._quota.require_room(owner, specs)

    def _admit(
        self, peer: Peer, spec: m.TaskSpec, worker: str, submission: int
    ) -> TaskPage:
        now = self._runtime.clock.wall()
        page = self._runtime.journal.admit(spec, peer.uid, now, peer.route)
        page.submission = submission
        if spec.hold:
            order = m.Order(page.submitted, "hold", peer.uid, "at its submission")
            self._runtime.journal.record_order(page, order)
        if worker:
            self._runtime.pool.reserve(peer.uid, worker, page.id)
        return page

    def _check(self, peer: Peer, spec: m.TaskSpec) -> None:
        """Refuse a task that no resource can run."""
        refuse_deadline(spec.deadline_s)
        if not self._rights.is_admin(peer.uid):
            refuse_priority(spec.priority, self._runtime.limits.priority.of(peer.uid))
        if not 0 <= spec.work < math.inf:
            raise InputError(f"work: expected a finite amount, got {spec.work:g}")
        for name in spec.resources:
            resource_named(self._runtime, name)
        if not any(_can_run(spec, device) for device in self._runtime.devices.values()):
            offered = ", ".join(
                f"{name} ({device.spec.kind})"
                for name, device in self._runtime.devices.items()
            )
            allowed = f" on {', '.join(spec.resources)}" if spec.resources else ""
            raise InputError(
                f"{spec.app} cannot run{allowed}: it has implementations for "
                f"{', '.join(spec.kinds) or 'nothing'}; this node has {offered}"
            )

    def _look_up(
        self, peer: Peer, other: int, position: int, completed: set[int]
    ) -> None:
        """Refuse a dependency that will not complete; collect completed ones."""
        if other < 0:
            if -other > position:
                raise InputError(
                    f"after: {other} is before the first task of the submit"
                )
            return
        page = self._rights.own(peer, other)
        _demand_promising(page)
        if page.state == "completed":
            completed.add(other)

    def _anchored(self, spec: m.TaskSpec, task: int, completed: set[int]) -> m.TaskSpec:
        """Replace the dependencies of a new task by the ids of unfinished tasks."""
        if not spec.after:
            return spec
        after = [
            task + other if other < 0 else other
            for other in spec.after
            if other not in completed
        ]
        live = self._runtime.journal.live
        for other in after:
            if (
                other < task and other not in live
            ):  # it has ended since it was looked up
                page = self._runtime.journal.find(other)
                if page is not None:
                    _demand_promising(page)
        return msgspec.structs.replace(spec, after=after)


def _demand_promising(page: TaskPage) -> None:
    if page.state in m.ENDED - {"completed"}:
        raise InputError(f"task {page.id}, which it comes after, ended as {page.state}")


def _refuse_dependencies(specs: Sequence[m.TaskSpec]) -> None:
    count = sum(len(spec.after) for spec in specs)
    if count > m.MAX_IDS:
        text = f"after: {count} dependencies in one submit, at most {m.MAX_IDS}"
        raise InputError(text)


def _can_run(spec: m.TaskSpec, device: m.DeviceInfo) -> bool:
    allowed = not spec.resources or device.spec.name in spec.resources
    return allowed and device.spec.kind in spec.kinds


def refuse_priority(priority: int, most: int | None) -> None:
    """Refuse a priority beyond the bounds of a user.

    Raises:
        NotAllowedError: says what is expected.

    """
    if most is not None and not -most <= priority <= most:
        raise NotAllowedError(
            f"priority: expected -{most} to {most}, got {priority}; administrators may "
            f"give others ([limits] priority)"
        )


def refuse_deadline(seconds: float | None) -> None:
    """Refuse a deadline that the clock cannot represent.

    Raises:
        InputError: says what is expected.

    """
    if seconds is None or 0 < seconds < LATEST:
        return
    limit = "" if seconds <= 0 else f", below {LATEST:g}"
    raise InputError(f"deadline: expected seconds above 0{limit}, got {seconds:g}")
