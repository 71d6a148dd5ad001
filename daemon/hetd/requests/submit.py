"""What users submit: checked, and given an id."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hetd.requests.resources import resource_named
from hetd.requests.slices import Reading
from libtask import messages as m
from libtask.errors import InputError, NotAllowedError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Work
    from hetd.requests.storage_quota import Bytes
    from hetd.runtime import Node
    from hetd.tasks.page import Entry
    from hetd.transport.router import Peer


LATEST = 1e10
"""Seconds to the latest deadline that can be told in nanoseconds: three centuries."""


class SubmissionDesk:
    """Takes in new tasks, all of a request or none.

    They are checked bit by bit, and taken in at once: a request that is interrupted by a
    crash has made all of its tasks, or none.
    """

    def __init__(self, node: Node, rights: Permissions, kept: Bytes) -> None:
        self._node = node
        self._rights = rights
        self._kept = kept

    def submit(self, peer: Peer, request: m.Submit) -> Work:
        _refuse_dependencies(request.tasks)
        reading = Reading(self._node.journal)
        completed: set[int] = set()
        if request.part_of:
            self._rights.demand_own(peer, request.part_of)
        for position, spec in enumerate(request.tasks):
            self._check(peer, spec)
            for other in spec.after:
                self._look_up(peer, other, position, completed)
                if reading.is_enough():
                    yield
        self._demand_room(peer.uid, request.tasks)
        # from here on nothing is between what is looked at and what is done
        launcher = self._node.pool.has_launcher(peer.uid)
        if request.worker:
            self._demand_free(peer, request)
        first = self._node.journal.next_id()
        specs = [
            self._anchored(spec, first + position, completed)
            for position, spec in enumerate(request.tasks)
        ]
        submission = request.part_of or first
        entries = [
            self._admit(peer, spec, request.worker, submission) for spec in specs
        ]
        reach("submit.admitted")
        self._node.submit(entries)
        ids = [entry.id for entry in entries]
        return m.Submitted(request.request, ids, launcher)

    def _demand_free(self, peer: Peer, request: m.Submit) -> None:
        """Refuse a program's submit that it cannot run by itself."""
        if not self._node.pool.free(peer.uid, request.worker):
            raise InputError(f"worker {request.worker!r} is not here or has a task")
        if len(request.tasks) != 1:
            raise InputError(
                f"a worker of its own runs 1 task, not {len(request.tasks)}"
            )

    def again(
        self, peer: Peer, ended: Sequence[Entry], request: m.Requeue
    ) -> list[Entry]:
        """Take in tasks that have ended as new ones; all, or none.

        Raises:
            InputError, NotAllowedError: as for a submit.

        """
        specs = [self._spec_again(entry, request) for entry in ended]
        for spec in specs:
            self._check(peer, spec)
        by_owner: dict[int, list[m.TaskSpec]] = {}
        for entry, spec in zip(ended, specs, strict=True):
            by_owner.setdefault(entry.owner, []).append(spec)
        for owner, some in by_owner.items():
            self._demand_room(owner, some)
        first = self._node.journal.next_id()
        renamed = {each.old: each.new for each in request.done} | {
            entry.id: first + position for position, entry in enumerate(ended)
        }
        made = []
        for entry, spec in zip(ended, specs, strict=True):
            after = [renamed.get(task, task) for task in spec.after]
            wanted = msgspec.structs.replace(spec, after=after)
            made.append(self._repeat(peer, entry, wanted, first))
        self._node.submit(made)
        return made

    def _repeat(
        self, peer: Peer, ended: Entry, spec: m.TaskSpec, submission: int
    ) -> Entry:
        """Open a page for a task that repeats one; the order says which."""
        now = self._node.clock.wall()
        route = peer.route if ended.owner == peer.uid else b""
        entry = self._node.journal.admit(spec, ended.owner, now, route)
        entry.submission = submission
        entry.requeued = ended.id
        order = m.Order(now, "requeue", peer.uid, f"of task {ended.id}")
        self._node.journal.ordered(entry, order)
        return entry

    def _spec_again(self, ended: Entry, request: m.Requeue) -> m.TaskSpec:
        """Describe a task that has ended as it is submitted again; it is not held.

        Raises:
            InputError: one that it comes after has failed, and is not submitted again.

        """
        again = {*request.ids, *(each.old for each in request.done)}
        live = self._node.journal.live
        after = [task for task in ended.spec.after if task in again or task in live]
        for task in ended.spec.after:
            other = None if task in after else self._node.journal.find(task)
            if other is not None and other.state != "completed":
                raise InputError(
                    f"task {ended.id} comes after task {task}, which ended as "
                    f"{other.state}: submit that again, too"
                )
        return msgspec.structs.replace(ended.spec, hold=False, after=after)

    def _demand_room(self, owner: int, specs: Sequence[m.TaskSpec]) -> None:
        """Refuse what exceeds the limits of tasks, and of bytes, that a user may have."""
        limit = self._node.limits.tasks.of(owner)
        has = len(self._node.journal.live_of.get(owner, ()))
        if limit is not None and has + len(specs) > limit:
            raise NotAllowedError(
                f"you may have {limit} unended tasks and have {has}: no room for "
                f"{len(specs)} more; wait until some end, or ask for a higher limit"
            )
        self._kept.demand_room(owner, specs)

    def _admit(
        self, peer: Peer, spec: m.TaskSpec, worker: str, submission: int
    ) -> Entry:
        now = self._node.clock.wall()
        entry = self._node.journal.admit(spec, peer.uid, now, peer.route)
        entry.submission = submission
        if spec.hold:
            order = m.Order(entry.submitted, "hold", peer.uid, "at its submission")
            self._node.journal.ordered(entry, order)
        if worker:
            self._node.pool.reserve(peer.uid, worker, entry.id)
        return entry

    def _check(self, peer: Peer, spec: m.TaskSpec) -> None:
        """Refuse a task that can never run."""
        refuse_deadline(spec.deadline_s)
        if not self._rights.may_rule(peer.uid):
            refuse_priority(spec.priority, self._node.limits.priority.of(peer.uid))
        if not 0 <= spec.work < math.inf:
            raise InputError(f"work: expected a finite amount, got {spec.work:g}")
        for name in spec.resources:
            resource_named(self._node, name)
        if not any(_can_run(spec, device) for device in self._node.devices.values()):
            offered = ", ".join(
                f"{name} ({device.spec.kind})"
                for name, device in self._node.devices.items()
            )
            allowed = f" on {', '.join(spec.resources)}" if spec.resources else ""
            raise InputError(
                f"{spec.app} cannot run{allowed}: it has implementations for "
                f"{', '.join(spec.kinds) or 'nothing'}; this node has {offered}"
            )

    def _look_up(
        self, peer: Peer, other: int, position: int, completed: set[int]
    ) -> None:
        """Refuse a task after one that will not complete; take note of one that has."""
        if other < 0:
            if -other > position:
                raise InputError(
                    f"after: {other} is before the first task of the submit"
                )
            return
        entry = self._rights.own(peer, other)
        _demand_promising(entry)
        if entry.state == "completed":
            completed.add(other)

    def _anchored(self, spec: m.TaskSpec, task: int, completed: set[int]) -> m.TaskSpec:
        """Name the unfinished tasks that a new one comes after by their ids."""
        if not spec.after:
            return spec
        after = [
            task + other if other < 0 else other
            for other in spec.after
            if other not in completed
        ]
        live = self._node.journal.live
        for other in after:
            if (
                other < task and other not in live
            ):  # it has ended since it was looked up
                entry = self._node.journal.find(other)
                if entry is not None:
                    _demand_promising(entry)
        return msgspec.structs.replace(spec, after=after)


def _demand_promising(entry: Entry) -> None:
    if entry.state in m.ENDED - {"completed"}:
        raise InputError(
            f"task {entry.id}, which it comes after, ended as {entry.state}"
        )


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
    """Refuse a deadline that cannot be told by the clock.

    Raises:
        InputError: says what is expected.

    """
    if seconds is None or 0 < seconds < LATEST:
        return
    limit = "" if seconds <= 0 else f", below {LATEST:g}"
    raise InputError(f"deadline: expected seconds above 0{limit}, got {seconds:g}")
