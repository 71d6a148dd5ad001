"""Requests to submit tasks: check them and assign ids."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import structs

from hetd.requests.resources import resource_named
from hetd.requests.slices import ReadBudget
from hetd.runtime import NONE_ENDED
from hetd.tasks.dependencies import EndedTask, ended_task
from hetd.tasks.equal_specs import are_alike
from hetd.tasks.page import CONTINUABLE, TaskPage
from hetsched.state import dependency_ended
from libtask import messages as m
from libtask.errors import InputError, NotAllowedError
from libtask.faultpoints import reach
from libtask.wording import shown, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hetd.config import ActiveConfig
    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.requests.storage_quota import StorageQuota
    from hetd.runtime import Runtime
    from hetd.transport.router import Peer
    from hetsched import events as e


USERS_KEPT = 256
"""Users whose last checked specification is kept."""
GIB = 1 << 30
LATEST = 1e10
"""Largest deadline in seconds that fits into nanoseconds: about three centuries."""


class SubmitRequests:
    """Handles submits; each is atomic.

    Tasks are checked in steps and created in one step, so that a crash leaves either all
    tasks of a request or none.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ActiveConfig,
        devices: Mapping[str, m.DeviceInfo],
        rights: Permissions,
        quota: StorageQuota,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._journal = runtime.journal
        self._pool = runtime.pool
        self._config = config
        self._devices = devices
        self._rights = rights
        self._quota = quota
        self._leases = runtime.leases
        self._called = runtime.called
        self._last_checked: dict[int, m.TaskSpec] = {}
        """uid -> the last specification that passed the checks."""
        self._checked_under = config.value

    def submit(self, peer: Peer, request: m.Submit) -> Steps | m.Submitted:
        tasks = self._checked(peer, request.tasks)
        if request.part_of:
            self._rights.require_own(peer, request.part_of)
        if any(map(m.dependencies, tasks)):
            return self._submit_dependent(peer, request, tasks)
        return self._accept(peer, request, tasks, NONE_ENDED)

    def _submit_dependent(
        self, peer: Peer, request: m.Submit, tasks: list[m.TaskSpec]
    ) -> Steps:
        """Look up the tasks that new ones depend on, in steps, and accept these."""
        _refuse_dependencies(tasks)
        reading = ReadBudget(self._journal)
        completed: set[int] = set()
        ended: dict[int, EndedTask] = {}
        for position, spec in enumerate(tasks):
            for other in spec.after:
                self._look_up(peer, other, position, completed)
                if reading.is_enough():
                    yield
            others = [*spec.after_any, *spec.after_notok]
            for other in [*others, *(each.task for each in spec.inputs)]:
                self._look_up_other(peer, other, position, ended, spec.inputs)
                if reading.is_enough():
                    yield
        # from here on no other request runs between check and change
        first = self._journal.next_id()
        specs = [
            self._anchored(spec, first + position, completed)
            for position, spec in enumerate(tasks)
        ]
        return self._accept(peer, request, specs, ended)

    def _accept(
        self,
        peer: Peer,
        request: m.Submit,
        tasks: list[m.TaskSpec],
        ended: Mapping[int, EndedTask],
    ) -> m.Submitted:
        """Create checked tasks, unless the user has no room for them."""
        self._demand_room(peer.uid, tasks)
        self._called.check(peer.uid, tasks)
        leased = [spec for spec in tasks if spec.lease_s]
        if leased:
            self._leases.check(peer.uid, leased)
        launcher = self._pool.has_launcher(peer.uid)
        if request.worker:
            self._demand_free(peer, request)
        now, submission = self._clock.wall(), request.part_of or self._journal.next_id()
        admit, uid, route = self._journal.admit, peer.uid, peer.route
        pages = [admit(spec, uid, now, route, submission) for spec in tasks]
        for page in pages:
            if page.spec.hold:
                order = m.Order(now, "hold", uid, "at its submission")
                self._journal.record_order(page, order)
        if request.worker:
            self._pool.reserve(uid, request.worker, pages[0].id)
            self._runtime.watch_assigned()
        reach("submit.admitted")
        if leased:
            self._leases.submitted(uid, leased)
        self._runtime.submit(pages, ended)
        return m.Submitted(request.request, [page.id for page in pages], launcher)

    def draft(self, peer: Peer, spec: m.TaskSpec) -> e.TaskSubmitted:
        """Check a task as a submit does, and describe it to the scheduler.

        Raises:
            InputError, NotAllowedError: as for a submit; its dependencies are not checked.

        """
        _refuse_dependencies([spec])
        self._checked(peer, [spec])
        self._demand_room(peer.uid, [spec])
        page = TaskPage(0, peer.uid, spec, self._clock.wall())
        return self._runtime.submission(page)

    def _demand_free(self, peer: Peer, request: m.Submit) -> None:
        """Refuse a submit that names a worker which cannot run it."""
        if not self._pool.free(peer.uid, request.worker):
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
        first = self._journal.next_id()
        renamed = {each.old: each.new for each in request.done} | {
            page.id: first + position for position, page in enumerate(ended)
        }
        made = []
        for page, spec in zip(ended, specs, strict=True):
            wanted = m.renumbered(spec, lambda task: renamed.get(task, task))
            made.append(self._repeat(peer, page, wanted, first))
        self._runtime.submit(made)
        return made

    def _repeat(
        self, peer: Peer, ended: TaskPage, spec: m.TaskSpec, submission: int
    ) -> TaskPage:
        """Create the page of a task that repeats an ended one, and record the order."""
        now = self._clock.wall()
        route = peer.route if ended.owner == peer.uid else b""
        page = self._journal.admit(spec, ended.owner, now, route)
        page.submission = submission
        page.requeued = ended.id
        order = m.Order(now, "requeue", peer.uid, f"of task {ended.id}")
        self._journal.record_order(page, order)
        return page

    def _spec_again(self, ended: TaskPage, request: m.Requeue) -> m.TaskSpec:
        """Describe a task that has ended as it is submitted again; it is not held.

        Raises:
            InputError: one that it comes after has failed, and is not submitted again.

        """
        again = {*request.ids, *(each.old for each in request.done)}
        live = self._journal.live
        after = [task for task in ended.spec.after if task in again or task in live]
        inputs = (each.task for each in ended.spec.inputs)
        for task in (*ended.spec.after, *inputs):
            if task in again or task in live:
                continue
            other = self._journal.find(task)
            if other is not None and other.state != "completed":
                raise InputError(
                    f"task {ended.id} comes after task {task}, which ended as "
                    f"{other.state}: submit that again, too"
                )
            if other is None and task not in ended.spec.after:
                raise InputError(
                    f"task {ended.id} takes the result of task {task}, which is no "
                    f"longer known"
                )
        resumes = self._snapshots_of(ended) if request.from_snapshot else ""
        return structs.replace(
            ended.spec,
            hold=False,
            after=after,
            resume=False,
            resumes=resumes,
            lease="",  # its submitter may be gone
            lease_s=0.0,
            caller=None,
        )

    def _snapshots_of(self, ended: TaskPage) -> str:
        """Return the name of the snapshots from which an ended task can be continued.

        Raises:
            InputError: there is none.

        """
        kept_s = self._config.value.snapshots.kept_s
        if ended.state not in CONTINUABLE:
            problem = (
                f"it ended as {ended.state}; only failed and cancelled tasks have one"
            )
        elif ended.snapshot is None:
            problem = "none was written"
        elif ended.snapshots_kept_until(kept_s) <= self._clock.wall():
            problem = f"it was kept for {kept_s:g} s after its end ([snapshots] kept_s)"
        else:
            return ended.snapshots_name
        raise InputError(f"task {ended.id} has no snapshot: {problem}")

    def _demand_room(self, owner: int, specs: Sequence[m.TaskSpec]) -> None:
        """Refuse what exceeds the limits of tasks, and of bytes, that a user may have."""
        limit = self._config.limits.tasks.of(owner)
        has = len(self._journal.live_of.get(owner, ()))
        if limit is not None and has + len(specs) > limit:
            raise NotAllowedError(
                f"you may have {limit} unfinished tasks and have {has}: no room for "
                f"{len(specs)} more; wait until some end, or ask for a higher limit"
            )
        self._quota.require_room(owner, specs)

    def _checked(self, peer: Peer, tasks: Sequence[m.TaskSpec]) -> list[m.TaskSpec]:
        """Refuse tasks that cannot be; return their specifications, equal ones as one object.

        A specification is checked once for all that are equal to it in a row: those of this
        submit, and of the user's next ones while the configuration stays.
        """
        if self._config.value is not self._checked_under:
            self._checked_under = self._config.value
            self._last_checked.clear()
        known = last = self._last_checked.get(peer.uid)
        found = []
        for spec in tasks:
            if last is None or not are_alike(last, spec):
                _refuse_reserved(spec)
                _refuse_strip(spec.strip)
                self._refuse_unknown_places(spec.seconds)
                self._check(peer, spec)
                last = spec
            elif spec.priority:
                self._check_priority(peer, spec)  # the user may be no administrator now
            found.append(last)
        if last is not None and last is not known:
            self._keep_checked(peer.uid, last)
        return found

    def _keep_checked(self, uid: int, spec: m.TaskSpec) -> None:
        """Keep the last checked specification of a user, for a bounded number of users."""
        if uid not in self._last_checked and len(self._last_checked) >= USERS_KEPT:
            self._last_checked.clear()
        self._last_checked[uid] = spec

    def _check_priority(self, peer: Peer, spec: m.TaskSpec) -> None:
        if spec.priority and not self._rights.is_admin(peer.uid):
            refuse_priority(spec.priority, self._config.limits.priority.of(peer.uid))

    def _check(self, peer: Peer, spec: m.TaskSpec) -> None:
        """Refuse a task that no resource can run."""
        refuse_deadline(spec.deadline_s)
        _refuse_places(spec)
        if 0 < spec.lease_s < m.MIN_LEASE_S:
            raise InputError(
                f"lease: expected {m.MIN_LEASE_S:g} to {m.MAX_LEASE_S:g} seconds, got "
                f"{spec.lease_s:g}"
            )
        if spec.at_once and not spec.array:
            raise InputError("at_once: it limits the tasks of an array; name the array")
        self._check_priority(peer, spec)
        self._refuse_needs(spec)
        self._refuse_device_memory(spec)
        if not 0 <= spec.work < math.inf:
            raise InputError(f"work: expected a finite amount, got {spec.work:g}")
        for name in spec.resources:
            resource_named(self._devices, name)
        if not any(_can_run(spec, device) for device in self._devices.values()):
            offered = ", ".join(
                f"{name} ({device.spec.kind})" for name, device in self._devices.items()
            )
            allowed = f" on {', '.join(spec.resources)}" if spec.resources else ""
            raise InputError(
                f"{spec.app} cannot run{allowed}: it has implementations for "
                f"{', '.join(spec.kinds) or 'nothing'}; this node has {offered}"
            )

    def _refuse_unknown_places(self, seconds: Mapping[str, float]) -> None:
        """Refuse expected times of what the node does not have: they would have no effect."""
        for name in seconds:
            if name not in self._devices and name not in m.KINDS:
                known = list(dict.fromkeys([*self._devices, *m.KINDS]))
                raise InputError(
                    f"seconds: no resource or kind {shown(name)}{suggestion(name, known)};"
                    f" there are: {', '.join(known)}"
                )

    def _refuse_needs(self, spec: m.TaskSpec) -> None:
        """Refuse a task that needs more than the node has, however long it waits."""
        if spec.time_limit_s == 0:
            raise InputError("time limit: expected seconds above 0")
        capacity = self._runtime.scheduler.state.needs.capacity
        if capacity.cores is not None and spec.cores > capacity.cores:
            raise InputError(
                f"{spec.app} needs {spec.cores} cores; this node has {capacity.cores}"
            )
        memory = capacity.memory_bytes
        if memory is not None and spec.memory_bytes > memory:
            raise InputError(
                f"{spec.app} needs {_gib(spec.memory_bytes)} of memory; "
                f"this node has {_gib(memory)} for tasks"
            )

    def _refuse_device_memory(self, spec: m.TaskSpec) -> None:
        """Refuse a task that needs more memory than any device for it has."""
        if not spec.device_bytes:
            return
        able = [d.spec for d in self._devices.values() if _can_run(spec, d)]
        most = [each.memory_bytes for each in able if each.memory_bytes]
        counted = most and len(most) == len(able)
        if counted and spec.device_bytes > max(most):
            raise InputError(
                f"{spec.app} needs {_gib(spec.device_bytes)} of a device's "
                f"memory; the largest has {_gib(max(most))}"
            )

    def _look_up(
        self, peer: Peer, other: int, position: int, completed: set[int]
    ) -> None:
        """Refuse a dependency that will not complete; collect completed ones."""
        if other < 0:
            _refuse_before_first(other, position)
            return
        page = self._rights.own(peer, other)
        _demand_promising(page)
        if page.state == "completed":
            completed.add(other)

    def _look_up_other(
        self,
        peer: Peer,
        other: int,
        position: int,
        ended: dict[int, EndedTask],
        inputs: Sequence[m.ResultInput],
    ) -> None:
        """Refuse a dependency on a task of another user; collect the ended ones.

        Even administrators take only results of their own tasks: to unpickle a result may
        execute its owner's code.
        """
        if other < 0:
            _refuse_before_first(other, position)
            return
        page = self._rights.own(peer, other)
        if inputs and page.owner != peer.uid:
            raise NotAllowedError(f"task {other} belongs to another user")
        if page.state in m.ENDED and other not in ended:
            ended[other] = ended_task(page, with_result=bool(inputs))

    def _anchored(self, spec: m.TaskSpec, task: int, completed: set[int]) -> m.TaskSpec:
        """Replace the dependencies of a new task by the ids of unfinished tasks."""
        if not m.dependencies(spec):
            return spec
        spec = m.renumbered(spec, lambda other: task + other if other < 0 else other)
        after = [other for other in spec.after if other not in completed]
        live = self._journal.live
        for other in after:
            if (
                other < task and other not in live
            ):  # it has ended since it was looked up
                page = self._journal.find(other)
                if page is not None:
                    _demand_promising(page)
        return structs.replace(spec, after=after)


def _refuse_before_first(other: int, position: int) -> None:
    if -other > position:
        raise InputError(f"after: {other} is before the first task of the submit")


def _demand_promising(page: TaskPage) -> None:
    if page.state in m.ENDED - {"completed"}:
        raise InputError(dependency_ended(page.id, page.state, page.reason or ""))


def _refuse_dependencies(specs: Sequence[m.TaskSpec]) -> None:
    count = 0
    for position, spec in enumerate(specs):
        if spec.after_any or spec.after_notok:
            _refuse_two_conditions(position, spec)
        count += len(spec.after) + len(spec.after_any)
        count += len(spec.after_notok) + len(spec.inputs)
    if count > m.MAX_IDS:
        text = f"after: {count} dependencies in one submit, at most {m.MAX_IDS}"
        raise InputError(text)


def _refuse_reserved(spec: m.TaskSpec) -> None:
    """Refuse a task that names snapshots to continue from, as a requeue does, or is a part."""
    if spec.resumes:
        raise InputError("resumes: only a requeue from a snapshot may set it")
    if spec.part:
        raise InputError("part: only hetd may make parts of a task")


def _refuse_strip(strip: int | None) -> None:
    if strip is not None and strip < 1:
        raise InputError(f"strip: expected 1 iteration or more, got {strip}")


def _refuse_places(spec: m.TaskSpec) -> None:
    """Refuse more places for results than a task may have: its worker visits each."""
    places = sum(len(each.places) for each in spec.inputs)
    if places > m.MAX_PLACES:
        raise InputError(
            f"inputs: {places} places for results in the parameters, at most {m.MAX_PLACES}"
        )


def _refuse_two_conditions(position: int, spec: m.TaskSpec) -> None:
    inputs = {each.task for each in spec.inputs}
    seen: set[int] = set()
    for some in ({*spec.after, *inputs}, {*spec.after_any}, {*spec.after_notok}):
        twice = seen & some
        if twice:
            text = f"after: task {min(twice)} is given with two conditions"
            raise InputError(f"tasks[{position}]: {text}")
        seen |= some


def _can_run(spec: m.TaskSpec, device: m.DeviceInfo) -> bool:
    allowed = not spec.resources or device.spec.name in spec.resources
    return allowed and device.spec.kind in spec.kinds


def _gib(amount: float) -> str:
    """Write an amount of memory."""
    return f"{round(amount / GIB, 2):,g} GiB"


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
