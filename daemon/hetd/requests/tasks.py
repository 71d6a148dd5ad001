"""Requests that change existing tasks: cancel, hold, amend, move."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.requests.parking import ParkRequests
from hetd.requests.resources import resource_named
from hetd.requests.slices import LOOKS, chunks, page_chunks
from hetd.requests.submit import refuse_deadline, refuse_priority
from hetsched import events as e
from hetsched.ids import TaskId
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from hetd.config import ActiveConfig
    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.runtime import Runtime
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from hetd.workers.commands import Commands


class TaskRequests:
    """Handles requests that change existing tasks."""

    def __init__(
        self,
        runtime: Runtime,
        config: ActiveConfig,
        devices: Mapping[str, m.DeviceInfo],
        commands: Commands,
        rights: Permissions,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._journal = runtime.journal
        self._config = config
        self._devices = devices
        self._commands = commands
        self._rights = rights
        self._leases = runtime.leases
        self.parking = ParkRequests(runtime, commands)

    def control(self, peer: Peer, request: m.Control) -> Steps:
        _refuse_odd(request)
        ids = yield from self._own_ids(peer, request.ids)
        live = [task for task in ids if task in self._journal.live]
        if request.verb == "park":
            self.parking.check(peer, ids)
        for number, some in enumerate(page_chunks(self._journal, live)):
            if number:
                yield
            self._control(peer, request, some)
        if request.verb == "park":
            self.parking.add(peer, request, ids)
            return None
        return m.Done(request.request, live)

    def _control(self, peer: Peer, request: m.Control, tasks: Sequence[int]) -> None:
        # tasks may have ended since, with a cancelled dependency
        live = [TaskId(task) for task in tasks if task in self._journal.live]
        parks = request.verb == "park"
        what, why = ("hold", "park") if parks else (request.verb, request.reason)
        for task in live:
            self._ordered(peer, task, what, why)
        if request.verb == "snapshot":
            for task in live:
                self._commands.want_snapshot(task)
            return
        if request.verb == "signal":
            for task in live:
                self._commands.pass_signal(task, request.signal)
            return
        for task in live:
            self._leases.ordered(self._journal.live[task], request.verb)
        event = self._event_of(peer, request)
        self._runtime.dispatch(*map(event, live))

    def renew(self, peer: Peer, request: m.Renew) -> m.Message:
        """Begin the period of a lease again."""
        tasks, released = self._leases.renew(peer.uid, request.lease)
        return m.Renewed(request.request, tasks, released)

    def _event_of(self, peer: Peer, request: m.Control) -> Callable[[TaskId], e.Event]:
        """Return the function that creates the event of a verb for a task."""
        if request.verb == "cancel":
            return self._cancellation(peer, request.reason)
        if request.requeue:
            return partial(e.TaskHeld, requeue=True)
        return _EVENTS[request.verb]

    def _cancellation(
        self, peer: Peer, reason: str
    ) -> Callable[[TaskId], e.TaskCancelled]:
        """Return the function that creates cancellations with user and reason."""

        def cancelled(task: TaskId) -> e.TaskCancelled:
            own = self._journal.live[task].owner == peer.uid
            who = "its owner" if own else f"uid {peer.uid}"
            because = f": {reason}" if reason else ""
            return e.TaskCancelled(task, f"cancelled by {who}{because}")

        return cancelled

    def _ordered(self, peer: Peer, task: int, what: str, text: str = "") -> None:
        """Record a user's order in the page of a task."""
        order = m.Order(self._clock.wall(), what, peer.uid, text)
        self._journal.record_order(self._journal.live[task], order)

    def amend(self, peer: Peer, request: m.Amend) -> Steps:
        refuse_deadline(request.deadline_s)
        if request.priority is not None:
            self._demand_priority(peer, request.priority)
        ids = yield from self._own_ids(peer, request.ids)
        live = [task for task in ids if task in self._journal.live]
        for number, some in enumerate(page_chunks(self._journal, live)):
            if number:
                yield
            self._amend(peer, some, request)
        return m.Done(request.request, live)

    def _amend(self, peer: Peer, tasks: Sequence[int], request: m.Amend) -> None:
        live = self._journal.live
        pages = [live[task] for task in tasks if task in live]
        for page in pages:
            page.spec = self._amended(page, request)
            self._ordered(peer, page.id, "set", _told(request))
        self._runtime.amend_all(pages)

    def _amended(self, page: TaskPage, request: m.Amend) -> m.TaskSpec:
        """Return the specification of a task with the requested changes."""
        wanted: dict[str, Any] = {}
        if request.priority is not None:
            wanted["priority"] = request.priority
        if request.no_deadline:
            wanted["deadline_s"] = None
        elif request.deadline_s is not None:
            passed = self._clock.wall() - page.submitted
            wanted["deadline_s"] = passed + request.deadline_s
        return msgspec.structs.replace(page.spec, **wanted)

    def _own_ids(
        self, peer: Peer, ids: Sequence[int]
    ) -> Generator[None, None, list[int]]:
        """Return the distinct ids of a request; refuse tasks of other users."""
        once = list(dict.fromkeys(ids))
        for number, some in enumerate(chunks(once, LOOKS)):
            if number:
                yield
            for task in some:
                self._rights.require_own(peer, task)
        return once

    def _demand_priority(self, peer: Peer, priority: int) -> None:
        if not self._rights.is_admin(peer.uid):
            refuse_priority(priority, self._config.limits.priority.of(peer.uid))

    def migrate(self, peer: Peer, request: m.Migrate) -> m.Message:
        page = self._rights.own(peer, request.id)
        device = resource_named(self._devices, request.resource)
        if request.id not in self._journal.live:
            raise InputError(f"task {request.id} is {page.state}; it cannot be moved")
        if device.spec.kind not in page.spec.kinds:
            raise InputError(
                f"task {request.id} cannot run on {request.resource}: {page.spec.app} "
                f"has implementations for {', '.join(page.spec.kinds)}"
            )
        _demand_movable(page)
        self._ordered(peer, request.id, "migrate", f"to {request.resource}")
        self._runtime.dispatch(e.TaskMoved(TaskId(request.id), request.resource))
        return m.Done(request.request, [request.id])


def _demand_movable(page: TaskPage) -> None:
    """Refuse to move a running task that cannot save its state."""
    if page.state == "running" and not page.spec.preemptible:
        raise InputError(
            f"task {page.id} runs on {page.resource} and cannot save its state: `hetctl "
            "hold --requeue` stops it, and it restarts where you move and release it"
        )


def _refuse_odd(request: m.Control) -> None:
    """Refuse fields that do not apply to a verb."""
    if request.requeue and request.verb != "hold":
        raise InputError(f"requeue: goes with hold, not with {request.verb}")
    if (request.verb == "signal") != (request.signal > 0):
        raise InputError(f"signal: {request.signal} does not go with {request.verb}")
    if request.signal in (signal.SIGSTOP, signal.SIGCONT):
        raise InputError("signal: hold and release stop a command and let it go on")


def _told(request: m.Amend) -> str:
    """Describe the changes to a task as users write them."""
    told = []
    if request.priority is not None:
        told.append(f"priority={request.priority}")
    if request.no_deadline:
        told.append("deadline=none")
    elif request.deadline_s is not None:
        told.append(f"deadline={request.deadline_s:g}s")
    return " ".join(told)


_EVENTS: dict[str, Callable[[TaskId], e.Event]] = {
    "cancel": e.TaskCancelled,
    "hold": e.TaskHeld,
    "park": e.TaskHeld,
    "release": e.TaskReleased,
}
