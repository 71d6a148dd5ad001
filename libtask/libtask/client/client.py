"""The client: submit tasks to hetd and follow them. Safe to share between threads."""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from libtask import messages
from libtask.apps import (
    Options,
    check_job,
    class_of,
    describe,
    drafted,
    goes_by_value,
    name_of,
    resolve,
    value_name,
)
from libtask.client.batches import (
    BATCH,
    LINGER_S,
    anchored,
    checked_tasks,
    chunks,
    is_application,
    key_of_part,
    results,
    size_of,
    tasks_of,
)
from libtask.client.control import ControlRequests
from libtask.client.handles import Registry, TaskHandle
from libtask.client.options import Sending, options_of, sending_of
from libtask.client.origins import EVERYTHING, OriginFiles
from libtask.client.session import Session
from libtask.client.subscription import ResourceChanges, TaskChanges, watch_of
from libtask.endpoint import default_socket, launcher_folder
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    NotFoundError,
)
from libtask.messages import (
    MAX_TYPES,
    DeviceInfo,
    DeviceList,
    Estimated,
    Explained,
    Registered,
    TaskInfo,
    TaskList,
    TaskSpec,
    TypeLoad,
)
from libtask.task import Task
from libtask.wording import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from libtask.apps import LateTask
    from libtask.client.display import Schedule
    from libtask.client.executor import TaskExecutor
    from libtask.client.options import OptionFields, SubmitFields
    from libtask.client.origins import Export
    from libtask.messages import Kind, TaskState
    from libtask.snapshots import SnapshotSummary

LAUNCHER_SECONDS = 5.0
"""Seconds before a launcher that has not registered is started again."""
PAGE = 1000
DETAIL_PAGE = 100
COUNT_S = 300.0
"""Limit for counting tasks, seconds."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of tasks to list.

    Attributes:
        ids: only these tasks; None: all visible ones.
        mine: only the caller's own tasks.
        limit: maximum number of tasks, the newest.
        detail: include segments and parameters.
        states: only tasks in one of these states; empty: in any.
        since: only unfinished tasks and those that ended after this (epoch seconds).
        user: only tasks of the user with this uid; administrators may name others.
        name: only tasks with this name, of the array with this name, or whose names match
            this pattern.
        job: only tasks of the job with this name, or of jobs that match this pattern.
        before: only ids below this one.

    """

    ids: tuple[int, ...] | None = None
    mine: bool = False
    limit: int = PAGE
    detail: bool = False
    states: tuple[TaskState, ...] = ()
    since: float | None = None
    user: int | None = None
    name: str = ""
    job: str = ""
    before: int | None = None


class Client(ControlRequests):
    """A connection to the daemon of this machine.

    Args:
        socket: the daemon's socket; None: `$HETD_SOCKET`, the user's, the system's.
        timeout: seconds to wait for one reply.
        patience: seconds to wait for a lost daemon (a restart); `math.inf`: until it is
            back. Then requests, waits and watches raise `DaemonUnreachableError`; repeated
            when the daemon is back, they continue.

    Raises:
        DaemonUnreachableError: no daemon answers at the socket; gives the reason.

    """

    def __init__(
        self,
        socket: str | Path | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 30.0,
    ) -> None:
        self.path = Path(socket) if socket else default_socket()
        self._patience = patience
        self._registry = Registry(self)
        self._origins = OriginFiles(self.path)
        self._session = Session(
            self.path, self._registry, timeout=timeout, patience=patience
        )
        self._launcher_lock = threading.Lock()
        self._launcher_there = self.welcome.launcher
        self._launcher_due = 0.0
        self._job: ContextVar[str] = ContextVar("job", default="")
        # the registry refers to this client, so that this runs at exit at the latest
        self._finalizer = weakref.finalize(self, self._session.close)

    # ------------------------------------------------------------ submit

    def submit(
        self,
        app: Task | str | type[Task] | Callable[..., Any],
        *arguments: Any,
        **options: Unpack[SubmitFields],
    ) -> TaskHandle:
        """Submit a task: an application with parameters, or a call of a function.

        A handle among the parameters or arguments stands for the result of its task: the
        new task starts when that one has completed, and gets the result.

        With a `key` of at most 120 characters, the task is accepted once however often it
        is submitted, also by another client and after a restart of hetd: a repetition
        returns the first task, with `TaskHandle.known`, and gets its result although it
        may have ended. The environment of a repetition may differ. hetd keeps a key for 24
        hours, and until its task has ended.

        With `lease_s` of 1 to 86,400, hetd holds the task if neither `renew` nor a submit
        with the same `lease` (a name, empty by default) comes in that time: its submitter
        counts as dead. The next renewal releases it.

        Args:
            app: a `Task` object, an application's name or class, or a function.
            arguments: of an application: a map of its parameters; of a function: its
                positional arguments.
            options: see `OptionFields` and `SubmitFields`.

        Raises:
            InputError: a parameter, option or input is invalid.
            ConflictError: another task was submitted with this key.

        """
        sending = sending_of(options)
        return self._submit_specs([self._spec(app, arguments, options)], sending)[0]

    def estimate(
        self,
        app: Task | str | type[Task] | Callable[..., Any],
        *arguments: Any,
        **options: Unpack[SubmitFields],
    ) -> Estimated:
        """Estimate when a task would start and end on each resource; it is not submitted.

        It is taken to wait behind all that waits now. Tasks that it comes after, and its
        time to begin, are not counted.

        Args:
            app, arguments, options: as for `submit`.

        Raises:
            InputError: a submit of it would be refused, with this reason.

        """
        sending_of(options)
        return self.estimate_spec(self._spec(app, arguments, options))

    def estimate_spec(self, spec: TaskSpec) -> Estimated:
        """Estimate a task from its specification, as `estimate` does."""
        found: Estimated = self._session.request(messages.Estimate(0, spec))
        return found

    def _spec(
        self, app: Any, arguments: tuple[Any, ...], options: SubmitFields
    ) -> TaskSpec:
        task = self._drafted(app, arguments)
        name = app if isinstance(app, str) else ""
        return next(self._described([task], name, self._options(options)))

    def _drafted(self, app: Any, arguments: tuple[Any, ...]) -> Task | LateTask:
        if not (isinstance(app, str | Task) or is_application(app)):
            from libtask.client.call import alone  # it imports cloudpickle

            return alone(self.path, app, arguments)
        if len(arguments) > 1 or (arguments and isinstance(app, Task)):
            raise InputError("submit: give the parameters of an application as one map")
        if isinstance(app, Task):
            return app
        app_class = resolve(app) if isinstance(app, str) else app
        return drafted(app_class, _map_of(arguments))

    def _described(
        self, tasks: Iterable[Task | LateTask], app: str, options: Options
    ) -> Iterator[TaskSpec]:
        """Describe tasks for submission as they are taken, with classes that go by value.

        Args:
            tasks: the tasks.
            app: their application's name; empty: those of their classes.
            options: scheduling options.

        """
        names: dict[type[Task], tuple[str, list[str]]] = {}
        for task in tasks:
            app_class = class_of(task)
            if app_class not in names:
                names[app_class] = (app, []) if app else self._named(app_class)
            name, attachments = names[app_class]
            spec = describe(task, name, options)
            if attachments:
                attachments = [*attachments, *spec.attachments]
                spec = msgspec.structs.replace(spec, attachments=attachments)
            yield spec

    def _named(self, app_class: type[Task]) -> tuple[str, list[str]]:
        """Return the name of a class, and the attachment with it if it goes by value."""
        if not goes_by_value(app_class):
            return name_of(app_class), []
        from libtask.classes import keep_class  # it imports cloudpickle

        attachment = keep_class(app_class, self.path)
        return value_name(app_class, attachment), [attachment]

    def submit_many(
        self, tasks: Iterable[Task | LateTask], **options: Unpack[SubmitFields]
    ) -> list[TaskHandle]:
        """Submit many tasks with the same options, in few messages.

        They are taken from `tasks` and sent some at a time, at most 500 and, without a
        `key`, what came in 0.2 s, so that the first ones run while others are taken. When
        it returns, hetd has stored all of them.

        If one is invalid, or refused by hetd, those that were sent before are cancelled,
        and a note of the error says so. With a `key`, that of all of them in this order,
        they stay: a repetition with the key submits the rest. They also stay if the
        daemon is away for longer than the client's `patience`.

        `at_once` limits how many of them run at once, as with `map`.

        Raises:
            InputError: an option or input is invalid, or one of `tasks` is not a task.
            NotAllowedError: they exceed a limit of the user.

        """
        sending = sending_of(options)
        chosen = self._options(options)
        return self._submit_all(
            self._described(checked_tasks(tasks), "", chosen), sending
        )

    def map(
        self,
        app: str | Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        **options: Unpack[SubmitFields],
    ) -> Iterator[Any]:
        """Run a task for each group of arguments; iterate over their results in order.

        All are submitted before it returns, as by `submit_many`: the first ones run while
        the arguments of others are taken. What an iterable raises, or an invalid argument,
        cancels those before it. A failed task raises when its result is due, which
        cancels the others; closing the iterator cancels them too.

        The function is pickled once, with what it refers to at the call.

        Args:
            app: an application's name or class, whose parameters are the arguments in
                order of declaration, or a function that takes them.
            iterables: as for the built-in `map`; handles stand for results of tasks.
            timeout: seconds from this call within which each result must be available.
            options: of every task, as for `submit`.

        Raises:
            InputError: a parameter, option or input is invalid.
            NotAllowedError: they exceed a limit of the user.

        """
        deadline = None if timeout is None else time.monotonic() + timeout
        tasks = tasks_of(self.path, app, iterables)
        name = app if isinstance(app, str) else ""
        sending = sending_of(options)
        specs = self._described(tasks, name, self._options(options))
        return results(self, self._submit_all(specs, sending), deadline)

    @contextmanager
    def graph(self, name: str) -> Iterator[None]:
        """Name a job: all tasks that this client submits in the block belong to it.

        In another thread, and for options with a `job`, it has no effect.

        Raises:
            InputError: the name is too long, or has spaces or commas.

        """
        token = self._job.set(check_job(name))
        try:
            yield
        finally:
            self._job.reset(token)

    def _options(self, fields: OptionFields) -> Options:
        return options_of(fields, self._job.get())

    def submit_specs(
        self, specs: Sequence[TaskSpec], export: Export = EVERYTHING
    ) -> list[TaskHandle]:
        """Submit task specs; `after: -k` counts within `specs`.

        If hetd refuses some of more than 500, those that were sent before stay.

        Args:
            specs: the tasks, which run with the interpreter of this process.
            export: the variables that they get from its environment.

        """
        return self._submit_specs(specs, Sending(export))

    def described(self, tasks: Iterable[Task | LateTask]) -> list[TaskSpec]:
        """Describe tasks for `submit_described`, as a submit by this thread now would.

        They get its job, the current folder, the environment and the path of modules.

        Raises:
            InputError: a parameter or input is invalid.

        """
        specs = self._described(tasks, "", self._options({}))
        return list(self._origins.stamped(specs, EVERYTHING))

    def spec_for_submit(
        self, app: Any, arguments: tuple[Any, ...], options: SubmitFields
    ) -> TaskSpec:
        """Describe a task for `submit_specs`, where others may go in the same message.

        Args:
            app, arguments, options: as for `submit`, without a `key`.

        Raises:
            InputError: a parameter, option or input is invalid.

        """
        sending = sending_of(options)
        specs = [self._spec(app, arguments, options)]
        spec = next(self._origins.stamped(specs, sending.export))
        size_of(spec)  # what cannot be sent is refused alone
        return anchored(0, spec, [])  # `after=-1` would be a task of another submit

    def submit_described(self, specs: Iterable[TaskSpec]) -> list[TaskHandle]:
        """Submit tasks that were described before, at whatever time, as `submit_many` does."""
        return self._submit_all(specs, Sending())

    def _submit_specs(
        self, specs: Iterable[TaskSpec], sending: Sending
    ) -> list[TaskHandle]:
        handles: list[TaskHandle] = []
        stamped = self._origins.stamped(specs, sending.export)
        self._send(chunks(stamped), sending.key, handles)
        return handles

    def _submit_all(
        self, specs: Iterable[TaskSpec], sending: Sending
    ) -> list[TaskHandle]:
        """Submit tasks as they are described; give up those before one that is refused."""
        handles: list[TaskHandle] = []
        stamped = self._origins.stamped(specs, sending.export)
        # with a key, a repetition must make the same messages
        parts = chunks(stamped) if sending.key else chunks(stamped, LINGER_S)
        try:
            self._send(parts, sending.key, handles)
        except BaseException as error:
            if handles:
                error.add_note(self._give_up(handles, sending, error))
            raise
        return handles

    def _give_up(
        self, handles: list[TaskHandle], sending: Sending, error: BaseException
    ) -> str:
        """Cancel the first tasks of a submission that failed; say what became of them."""
        some = f"{len(handles)} tasks had been submitted before"
        if sending.key:
            return f"{some}, and stay: repeat it with its key to submit the others"
        if isinstance(error, DaemonUnreachableError):
            return f"{some}, and go on"
        try:
            self.cancel(*(each.id for each in handles))
        except HetError as other:
            return f"{some}, and could not be cancelled: {other}"
        return f"{some}, and are cancelled"

    def _send(
        self, parts: Iterable[list[TaskSpec]], key: str, handles: list[TaskHandle]
    ) -> None:
        """Send the parts of a submission as they come; add handles as hetd accepts them."""
        if not self._launcher_there:
            self._start_launcher()
        for number, part in enumerate(parts):
            message = messages.Submit(
                request=0,
                tasks=[anchored(*each, handles) for each in enumerate(part)],
                part_of=handles[0].id if handles else 0,
                key=key_of_part(key, number),
                lasting=bool(key),
            )
            handles += self._followed(message)

    def _followed(self, message: messages.Change) -> list[TaskHandle]:
        """Request new tasks and follow them from their first change."""
        handles: list[TaskHandle] = []

        def follow(reply: messages.Submitted) -> None:
            # in the connection's thread, so that no change of these tasks is missed
            handles[:] = [self._registry.submitted(task_id) for task_id in reply.ids]
            for handle in handles:
                handle.known = reply.known

        before = self._session.connection()
        reply = self._session.request(message, follow)
        after = self._session.connection()
        # else pushes go to a closed connection, contain only the ends, or came before
        if after is not before or self._registry.wants_progress or reply.known:
            self._registry.subscribe(after, reply.ids)
        self._launcher_there = reply.launcher
        if reply.launcher:
            self._launcher_due = 0.0
        else:  # not started yet, or exited when idle
            self._start_launcher()
        return handles

    def requeue(self, *ids: int, from_snapshot: bool = False) -> list[TaskHandle]:
        """Submit ended tasks again with their original options.

        Dependencies among them are kept. The new tasks restart and are not held.

        Args:
            ids: the ended tasks.
            from_snapshot: whether they continue from their last snapshots.

        Returns:
            The new tasks, in the order of the old ones' ids.

        Raises:
            InputError: one of them has not ended, or has no snapshot.

        """
        left = sorted(set(ids))
        done: list[messages.RequeuedTask] = []
        handles: list[TaskHandle] = []
        while left:
            message = messages.Requeue(
                request=0, ids=left[:BATCH], done=done, from_snapshot=from_snapshot
            )
            made = self._followed(message)
            pairs = zip(left, made, strict=False)
            done += [messages.RequeuedTask(old, each.id) for old, each in pairs]
            left = left[len(made) :]
            handles += made
        return handles

    def _start_launcher(self) -> None:
        """Start the launcher unless it was started a moment ago."""
        with self._launcher_lock:
            now = time.monotonic()
            if now < self._launcher_due:
                return
            self._launcher_due = now + LAUNCHER_SECONDS
        from libtask.launcher.launcher import start_launcher

        start_launcher(self.path)

    # ------------------------------------------------------------ look

    @property
    def welcome(self) -> Registered:
        """The daemon's last reply to the registration, with its version and pid."""
        return self._session.welcome

    def handle(self, task_id: int) -> TaskHandle:
        """Follow a task that was submitted elsewhere."""
        return self.handles([task_id])[0]

    def handles(self, ids: Iterable[int]) -> list[TaskHandle]:
        """Follow tasks that were submitted elsewhere."""
        handles = [self._registry.follow(task_id) for task_id in ids]
        self._registry.subscribe(
            self._session.connection(), [each.id for each in handles]
        )
        return handles

    def follow_again(self, timeout: float | None = None) -> None:
        """Follow again all tasks that were lost when the daemon was given up.

        Handles call it when somebody waits for such a task. It does not wait for the
        daemon.

        Args:
            timeout: seconds to wait while another thread waits for the daemon.

        Raises:
            DaemonUnreachableError: the daemon is not back; gives the reason.

        """
        self._registry.follow_again(self._session.reconnected(timeout))

    def tasks(self, selection: Selection | None = None) -> list[TaskInfo]:
        """List tasks, newest first."""
        return list(self.iterate(selection or Selection()))

    def listed(self, ids: Iterable[int]) -> list[TaskInfo]:
        """List tasks by their ids, newest first."""
        return self.tasks(Selection(ids=tuple(ids)))

    def iterate(self, selection: Selection) -> Iterator[TaskInfo]:
        """List tasks, newest first, page by page."""
        if selection.ids is not None:
            yield from self._those(selection, sorted(selection.ids, reverse=True))
            return
        yield from self._pages(selection, selection.limit)

    def _pages(self, selection: Selection, left: int) -> Iterator[TaskInfo]:
        """List up to `limit` tasks page by page."""
        before = selection.before
        while left > 0:
            page = self._page(selection, min(left, _page_size(selection)), before)
            yield from page.tasks
            left -= len(page.tasks)
            before = page.next
            if before is None:
                return

    def _those(self, selection: Selection, ids: list[int]) -> Iterator[TaskInfo]:
        size = _page_size(selection)
        for start in range(0, len(ids), size):
            some = dataclasses.replace(selection, ids=tuple(ids[start : start + size]))
            yield from self._pages(some, size)

    def _page(self, selection: Selection, limit: int, before: int | None) -> TaskList:
        message = messages.ListTasks(
            request=0,
            ids=None if selection.ids is None else list(selection.ids),
            mine=selection.mine,
            limit=limit,
            before=before,
            detail=selection.detail,
            states=list(selection.states),
            since=selection.since,
            user=selection.user,
            name=selection.name,
            job=selection.job,
        )
        found: TaskList = self._session.request(message)
        return found

    def count(self, selection: Selection | None = None) -> int:
        """Count the tasks of a selection, ignoring its limit.

        By name, job or state this takes a second for each 100,000 ended tasks that have a
        name or a job, or did not complete: hetd reads each of these.
        """
        chosen = selection or Selection()
        if chosen.ids is not None:
            return len(self.tasks(dataclasses.replace(chosen, detail=False)))
        message = messages.ListTasks(
            request=0,
            mine=chosen.mine,
            states=list(chosen.states),
            since=chosen.since,
            user=chosen.user,
            name=chosen.name,
            job=chosen.job,
            count=True,
        )
        found: TaskList = self._session.request(message, timeout=COUNT_S)
        return found.count

    def show(self, task_id: int) -> TaskInfo:
        """Return the full record of a task.

        Raises:
            NotFoundError: there is no such task.

        """
        found = self.tasks(Selection(ids=(task_id,), detail=True))
        if not found:
            raise NotFoundError(f"no task {task_id}")
        return found[0]

    def adopt(self, task_id: int, path: Path | str) -> SnapshotSummary:
        """Let a task continue from a snapshot of another one; see `TaskHandle.adopt`."""
        from libtask import snapshots  # NumPy takes a fifth of a command's start

        info = self.show(task_id)
        if not (info.state == "held" and info.resume and info.started is None):
            raise InputError(
                f"task {task_id} cannot adopt a snapshot: it is {info.state}; expected "
                "one that has not begun, submitted with hold=True and resume=True"
            )
        owner = snapshots.Identity(info.snapshots, info.id, info.app, info.version)
        folder = launcher_folder(self.path.absolute()) / "snapshots" / info.snapshots
        return snapshots.adopt(path, owner, folder)

    def explain(self, task_id: int) -> Explained:
        """Explain why a task waits, or runs on its resource, with figures.

        Raises:
            NotFoundError: there is no such task.

        """
        message = messages.Explain(request=0, id=task_id)
        found: Explained = self._session.request(message)
        return found

    def schedule(self, *ids: int) -> Schedule:
        """Return the schedule of these tasks (none named: all) for a notebook."""
        from libtask.client.display import Schedule

        selection = Selection(ids=ids or None, detail=True)
        return Schedule(self.tasks(selection), time.time_ns() / 1e9)

    def follow_progress(self) -> None:
        """Subscribe to progress too, which keeps the `progress` of handles current."""
        self._registry.follow_progress(self._session.connection())

    def watch(self, *ids: int, progress: bool = True) -> TaskChanges:
        """Iterate over the changes of these tasks (none named: all visible) from now on."""
        watch = watch_of(*ids, progress=progress)
        return TaskChanges(self.path, watch, patience=self._patience)

    def watch_all(
        self, name: str = "", *, job: str = "", progress: bool = True
    ) -> TaskChanges:
        """Iterate over the changes of the caller's own tasks, also of later ones.

        It begins with the present state of each unfinished task (`what` is `seen`), and so
        it continues after changes were missed, because hetd was restarted or the reader
        was slow. hetd keeps no list of ids for it.

        Args:
            name: only tasks whose names match, such as `pool/*`; empty: any.
            job: only tasks of this job; empty: any.
            progress: whether to include progress.

        """
        watch = messages.Subscribe(
            request=0, mine=True, name=name, job=job, progress=progress
        )
        return TaskChanges(self.path, watch, patience=self._patience, present=True)

    def watch_resources(self) -> ResourceChanges:
        """Iterate over the states of the resources: all present ones, then each new one.

        After a restart of hetd it continues with all present ones.
        """
        watch = messages.Subscribe(request=0, ids=[], resources=True)
        return ResourceChanges(self.path, watch, patience=self._patience)

    def devices(self) -> list[DeviceInfo]:
        """List the resources."""
        return self.node_load().devices

    def node_load(self) -> DeviceList:
        """Return the resources, and the believed load of other programs on what they share."""
        found: DeviceList = self._session.request(messages.Devices(request=0))
        return found

    def type_loads(self, types: Sequence[str]) -> list[TypeLoad]:
        """Return what tasks of some types are taken to load of what the resources share."""
        found: list[TypeLoad] = []
        for begin in range(0, len(types), MAX_TYPES):
            some = list(types[begin : begin + MAX_TYPES])
            request = messages.Devices(request=0, types=some)
            found += self._session.request(request).loads
        return found

    # ------------------------------------------------------------ life

    def executor(
        self, kind: Kind = "cpu", max_workers: int | None = None
    ) -> TaskExecutor:
        """Return a `concurrent.futures.Executor` whose calls run as tasks.

        Args:
            kind: kind of resource that each call uses.
            max_workers: maximum number of submitted calls; None: unlimited.

        """
        from libtask.client.executor import TaskExecutor

        return TaskExecutor(self, kind, max_workers)

    def close(self) -> None:
        """End the session; tasks continue, but who waits for one here gets an error."""
        self._finalizer()
        self._registry.close(DaemonUnreachableError("the client was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _map_of(arguments: tuple[Any, ...]) -> Mapping[str, Any]:
    """Return the parameters of an application, which may be left out.

    Raises:
        InputError: they are not a map.

    """
    params = arguments[0] if arguments else None
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InputError(
            "submit: give the parameters of an application as one map,"
            f" such as {{'n': 1}}; got {shown(params)}"
        )
    return params


def _page_size(selection: Selection) -> int:
    return DETAIL_PAGE if selection.detail else PAGE
