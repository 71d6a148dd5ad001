"""The worker: executes tasks one at a time on commands from hetd.

    staged ── Run ──> running ── Finished | Failed | Aborted ──> free for the next task
                      │     ^
                Preempt     Run, perhaps on another device
                      v     │
                      yielded: keeps the task's object with its host arrays

There is no control thread. The main thread owns the socket and polls it between tasks
and at checkpoints, at most once a millisecond (`checkpoint_hook`): a checkpoint then
costs less than taking a lock, an empty task needs no hand-over between threads, and no
second thread contends for the interpreter while a task computes. The price is that a
command waits for the next checkpoint, which is when it takes effect anyway.
"""

from __future__ import annotations

import os
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.apps import part_granule_of
from libtask.checkpoint import StripSizer
from libtask.commands.context import CommandContext
from libtask.devices.null import NullDevice
from libtask.documents import ALL_CORES
from libtask.endpoint import launcher_folder
from libtask.errors import DeviceError, TaskFailedError
from libtask.faultpoints import reach
from libtask.file_parts import recorded
from libtask.inputs import put_in
from libtask.messages import (
    CALL,
    COMMAND,
    RESULT_INLINE,
    Abort,
    Aborted,
    DropResidents,
    Error,
    Failed,
    Finished,
    Leaving,
    Parked,
    Ready,
    Register,
    Registered,
    Retire,
    Run,
    Stage,
    TakeSnapshot,
    Yielded,
)
from libtask.phase import Phase, own_page
from libtask.result_files import FOLDER, ResultFiles
from libtask.results import EncodedResult, ResultEncoder
from libtask.task_waits import set_reporter
from libtask.worker.call_interruption import CallInterruption
from libtask.worker.checkpoint_hook import CheckpointHook
from libtask.worker.environment import AppCache, DeviceCache, Folder
from libtask.worker.execution import (
    NANOSECONDS,
    Abandoned,
    Completed,
    Execution,
    Measures,
    RunCheckpoint,
    Stopped,
)
from libtask.worker.link import Link
from libtask.worker.loaded_task import LoadedTask, staging_of
from libtask.worker.options import Lifetime
from libtask.worker.pending_report import PendingReport
from libtask.worker.segment_output import SegmentOutput
from libtask.worker.snapshot_writer import SnapshotWriter
from libtask.worker.wait_reports import WaitReports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from libtask.devices import Device
    from libtask.messages import FromDaemon, Message, PartResult
    from libtask.task import Implementation, Task
    from libtask.worker.execution import Outcome
    from libtask.worker.imported_code import ImportedCode
    from libtask.worker.options import WorkerOptions

INTERVAL_NS = 50_000_000
"""Target interval between checkpoints, until hetd sets another."""
IDLE_MS = 5000
"""Interval at which an idle worker checks whether it is still needed."""
JOIN_SECONDS = 10.0
"""Timeout of the registration of a user's own program."""
PATIENCE = 60.0
"""Seconds that an idle worker waits for a lost hetd; the launcher's value."""
NEWS_PATIENCE = 86_400.0
"""The same for a worker with a pending report or a task, while the socket's folder
exists; without the folder no hetd can return."""
RESIDENT_S = 60.0
"""Seconds after a task for which an idle worker keeps what stays on its devices."""
NO_STRIPS = Measures()
"""Measures of a segment that has not started to run; nothing writes to it."""


class Worker:
    """A worker process; `run` is its main loop.

    Args:
        options: its options.
        find_app: finds the class of an application by name; None: by the usual lookup.
        connect: opens the link to hetd; a simulation passes one without a socket.
        end_processes: ends the processes that a task leaves; returns whether all are gone.
        code: the users' code that it has imported; None: it need not be fresh.
        limit_memory: limits the bytes of memory of this process and its children; 0: no limit.
        interrupts: whether a call of a function is interrupted when it is cancelled: only in
            the main thread of a process, and not in a user's program.

    Attributes:
        ended: the final report of the last task.

    """

    def __init__(  # noqa: PLR0913  what differs between workers, by keyword
        self,
        options: WorkerOptions,
        find_app: Callable[[str], type[Task]] | None = None,
        connect: Callable[[Path, Callable[[], list[Message]]], Link] = Link,
        *,
        end_processes: Callable[[], bool] = lambda: True,
        code: ImportedCode | None = None,
        limit_memory: Callable[[int], None] = lambda _bytes: None,
        interrupts: bool = False,
    ) -> None:
        self.ended: Finished | Failed | Aborted | None = None
        self._options = options
        self._find_app = find_app or AppCache(options.socket).find
        self._end_processes = end_processes
        self._code = code
        self._limit_memory = limit_memory
        self._parent = os.getppid()
        self._loaded: LoadedTask | None = None
        self._latest: tuple[str, type[Task], int] | None = None
        """Name and class of the application that was found last, and after how many arrivals
        of messages."""
        self._runs_on = ""
        self._pending = PendingReport()
        self._leaving = False
        self._folder = Folder()
        self._devices = DeviceCache()
        self._last_task_at = self._now()
        self._output = SegmentOutput(options.log)
        self._measures = NO_STRIPS
        self._lifetime = Lifetime(options)
        self._link = connect(options.socket, self._registration)
        self._snapshot_writer = SnapshotWriter(self._link, options.snapshots)
        self._interrupts = interrupts
        self._interruption = CallInterruption(self._link)

    def join(self) -> None:
        """Wait until hetd has registered this worker.

        Raises:
            DaemonUnreachableError: hetd does not answer.

        """
        self._link.await_welcome(JOIN_SECONDS)

    def run(self) -> None:
        """Handle commands from hetd until the worker must exit."""
        try:
            while not self._leaving:
                message = self._link.receive(IDLE_MS)
                if message is None:
                    self._leaving = self._is_unneeded()
                    self._park_if_memory_is_low()
                    self._drop_old_residents()
                elif self._is_outdated_for(message):
                    self._leaving = True
                elif isinstance(message, DropResidents):
                    self._devices.give_way(message.resource)
                else:
                    self._handle(message)
            # hetd assigns commands that arrived meanwhile to another worker.
            self._link.send(Leaving())
        finally:
            self.close()

    def close(self) -> None:
        """Close the devices and the link."""
        self._devices.close()
        self._link.close()

    def _registration(self) -> list[Message]:
        task, epoch = self._pending_task()
        hello = Register(
            role="worker",
            pid=os.getpid(),
            worker=self._options.name,
            task=task,
            epoch=epoch,
            own=self._options.own,
            resource=self._runs_on,
            origin=self._options.origin,
        )
        # no message before the first connection
        lost_at = self._link.silent_since if self._pending.message else 0.0
        return self._pending.after(hello, lost_at)

    def _pending_task(self) -> tuple[int | None, int]:
        """Return the loaded task, or the one whose end hetd may not know."""
        if self._loaded is not None:
            return self._loaded.task, self._loaded.epoch
        return self._pending.concerns()

    def _handle(self, message: FromDaemon) -> None:
        match message:
            case Stage():
                self._stage(message)
            case Run():
                self._run(message)
            case Abort():
                self._abort(message)
            case TakeSnapshot():
                self._take_snapshot(message)
            case Retire():
                self._leaving = True
            case Registered():
                self._pending.heard(self._now())
                self._devices.drop_residents()  # of which a new hetd does not know
            case Error():
                sys.stderr.write(f"libtask: hetd refuses: {message.text}\n")
                self._leaving = message.request == 0
            case _:
                # A Preempt that arrived too late, or a message for clients.
                pass

    def _is_outdated_for(self, order: FromDaemon) -> bool:
        """Return whether a fresh process would run other code for a task than this one."""
        if self._code is None or not isinstance(order, Stage | Run):
            return False
        loaded = self._loaded
        if order.spec is None or order.spec.app == COMMAND:
            return False
        if loaded is not None and loaded.is_for(order):
            return False
        if isinstance(order, Run) and self._found_for(order.spec.app, order.follows):
            return False
        return not self._code.serves(order.spec.app)

    def _found_for(self, app: str, follows: bool) -> type[Task] | None:  # noqa: FBT001  as in the order
        """Return the class of the task that this one follows, if theirs is the same.

        If a file was changed before this one was submitted, the first one has noticed it:
        nothing has arrived since it looked.
        """
        latest = self._latest
        if not follows or latest is None:
            return None
        name, found, arrivals = latest
        return found if (name, arrivals) == (app, self._link.arrivals) else None

    # ------------------------------------------------------------ staging

    def _stage(self, order: Stage, *, tell: bool = True, follows: bool = False) -> None:
        loaded = self._loaded
        if loaded and loaded.is_for(order):
            self._pending.repeat(self._link)
            return
        if loaded:
            self._unload()
        if not follows:
            self._pending.take_back()
        self._begin_segment(order, Phase.LOADING)
        try:
            self._loaded = self._load(order, follows)
        except BaseException as error:  # noqa: BLE001  whatever an app raises is its own failure, the worker lives on
            self._fail(order, error)
            return
        own_page.enter(Phase.WAITING)
        if self._loaded is not None:
            self._snapshot_writer.take_in(self._loaded, order)
        if tell:
            self._report_ready(order)

    def _begin_segment(self, order: Stage | Run | LoadedTask, phase: Phase) -> None:
        self._output.begin()
        self._measures = NO_STRIPS
        spec = order.spec or (self._loaded.spec if self._loaded else None)
        limit = spec.memory_bytes if spec else 0
        if limit:
            self._devices.drop_residents(emulated=True)
        own_page.limit_memory(limit)
        self._limit_memory(limit)
        own_page.begin(order.task, order.epoch, self._output.start, phase)

    def _load(self, order: Stage, follows: bool) -> LoadedTask:  # noqa: FBT001  as in the order
        app = order.spec.app
        self._folder.enter(order.spec.cwd)
        app_class = self._found_for(app, follows)
        if app_class is None:
            self._latest = None  # what follows fails, too, if it is not found
            app_class = self._find_app(app)
            self._latest = (app, app_class, self._link.arrivals)
        params: Mapping[str, Any] = order.spec.params
        if order.spec.inputs:
            folder = self._result_files.path
            params = put_in(params, order.spec.inputs, order.inputs, folder)
        return LoadedTask.load(order, app_class, params)

    def _report_ready(self, order: Stage) -> None:
        """Report that the task is loaded, unless hetd has already sent `Run` for it."""
        following = self._link.receive(0)
        if following is not None:
            self._link.put_back([following])
        if isinstance(following, Run) and following.task == order.task:
            return
        loaded = self._loaded
        total = loaded.record.total if loaded else None
        ready = Ready(task=order.task, epoch=order.epoch, total=total)
        self._pending.say(ready, self._link, self._now())

    # ------------------------------------------------------------ running

    def _run(self, order: Run) -> None:
        unstaged = staging_of(order)
        if unstaged is not None:
            self._stage(unstaged, tell=False, follows=order.follows)
        loaded = self._loaded
        if loaded is None or not loaded.is_for(order):
            self._refuse(order)
            return
        if not order.follows:
            self._pending.take_back()
        began = time.monotonic()
        try:
            self._execute(loaded, order)
        except BaseException as error:  # noqa: BLE001  whatever an app raises is its own failure, the worker lives on
            self._devices.note_failure(order.device, error)
            self._fail(order, error)
        if self._loaded is None:
            spec = loaded.spec
            self._lifetime.begin_disposal()
            del loaded  # releases the arrays of an ended task
            self._leaving |= self._lifetime.is_over(spec, time.monotonic() - began)

    def _refuse(self, order: Run) -> None:
        ended = self.ended
        if ended and (ended.task, ended.epoch) == (order.task, order.epoch):
            return  # it failed while it was staged, and that report is on its way
        text = f"worker {self._options.name} does not hold task {order.task}"
        lost = Failed(task=order.task, epoch=order.epoch, error=text, code="not-held")
        self._link.send(lost)

    def _execute(self, loaded: LoadedTask, order: Run) -> None:
        implementation = loaded.implementation(order.device)
        own_page.open(order.device.name)
        needs_device = loaded.app.needs_device
        device: Device = (
            self._devices.open(order.device, loaded.app.libraries_on(order.device.kind))
            if needs_device
            else NullDevice(order.device)
        )
        device.begin(self._resident_share())
        try:
            self._execute_on(device, implementation, loaded, order)
        finally:
            device.withdraw()

    def _execute_on(
        self,
        device: Device,
        implementation: Implementation,
        loaded: LoadedTask,
        order: Run,
    ) -> None:
        checkpoint = self._checkpoint(loaded, order)
        hook = CheckpointHook(
            self._link,
            loaded.task,
            loaded.epoch,
            self._output,
            self._snapshot_writer.current,
            part_granule_of(loaded.app) if loaded.spec.parallel else 1,
            self._devices,
        )
        execution = Execution(implementation, loaded.app, device, checkpoint, hook)
        self._measures = execution.measures
        hook.follow(execution, time.perf_counter_ns())
        set_reporter(self._wait_reports(loaded, execution))
        self._runs_on = order.device.name
        copies_out = device.copies_out
        try:
            outcome = self._outcome(loaded, execution)
        except DeviceError:
            # The device's memory is lost; the host still has the input if nothing was copied out.
            if copies_out is not None and device.copies_out == copies_out:
                self._snapshot_writer.save_before_failure(loaded)
            raise
        finally:
            set_reporter(None)
            self._runs_on = ""
            hook.leave()
        if isinstance(outcome, Completed) and _is_shared(loaded, checkpoint):
            device.withdraw()  # parts compute some of its results
            # strips given up in this segment are in no piece
            is_whole = checkpoint.limit == order.limit
            self._end_share(loaded, execution, order.pieces if is_whole else [])
        else:
            self._report(loaded, execution, outcome, hook)

    def _outcome(self, loaded: LoadedTask, execution: Execution) -> Outcome:
        """Run a task; a call of a function may be interrupted meanwhile."""
        if not self._interrupts or loaded.spec.app != CALL:
            return execution.run()
        interruption = self._interruption
        try:
            try:
                interruption.begin(loaded.task, loaded.epoch)
                return execution.run()
            finally:
                interruption.end()
        except BaseException:
            # whatever the function made of it
            if interruption.interrupted:
                return Abandoned()
            raise

    def _wait_reports(self, loaded: LoadedTask, execution: Execution) -> WaitReports:
        return WaitReports(
            self._link,
            self._options.socket,
            loaded.task,
            loaded.epoch,
            execution,
            self._interruption,
        )

    def _resident_share(self) -> float:
        """Return the share of a device's memory for what stays there for the next task."""
        welcome = self._link.welcome
        return welcome.resident_share if welcome and not self._options.own else 0.0

    def _checkpoint(self, loaded: LoadedTask, order: Run) -> RunCheckpoint:
        """Return the checkpoint at which the task continues, with its strip sizer."""
        welcome = self._link.welcome
        interval_ns = welcome.interval_ns if welcome else INTERVAL_NS
        sizer = StripSizer(interval_ns, fixed=loaded.spec.strip, first=order.strip)
        context = None
        if not loaded.app.needs_device:
            context = CommandContext(
                loaded.task,
                order.attempt,
                order.slot,
                self._link.wait_for,
                _cores(loaded.spec.cores),
                adopts=True,
            )
        checkpoint = RunCheckpoint(loaded.record, sizer, context)
        checkpoint.limit = order.limit
        return checkpoint

    def _drop_old_residents(self) -> None:
        """Free what stays on devices after a while without a task."""
        if self._now() - self._last_task_at > RESIDENT_S:
            self._devices.drop_residents()

    def _report(
        self,
        loaded: LoadedTask,
        execution: Execution,
        outcome: Outcome,
        hook: CheckpointHook,
    ) -> None:
        match outcome:
            case Completed():
                hook.report_complete()
                self._finish(loaded, execution)
            case Stopped(checkpoint):
                loaded.record = checkpoint
                self._yield_task(loaded, execution)
            case Abandoned():
                account = self._output.account(execution.measures)
                self._end(Aborted(task=loaded.task, epoch=loaded.epoch, **account))

    def _end_share(
        self, loaded: LoadedTask, execution: Execution, pieces: list[PartResult]
    ) -> None:
        """End a part, or a task whose last strips its parts do.

        A part leaves its result in its snapshots. The task merges the pieces if all are
        there, and otherwise yields until they are: `pieces` is empty then.
        """
        checkpoint, snapshots = execution.checkpoint, self._snapshot_writer.current
        loaded.record = checkpoint.record()
        if loaded.spec.part is not None:
            own_page.enter(Phase.SAVING)
            if not self._snapshot_writer.snapshot(loaded):
                raise TaskFailedError("the result of a part cannot be written")
            totals = self._output.account(execution.measures)
            self._end(Finished(task=loaded.task, epoch=loaded.epoch, **totals))
        elif not pieces or snapshots is None:
            self._yield_task(loaded, execution)
        else:
            for piece in pieces:
                snapshots.merge(piece)
            checkpoint.take_back()
            self._finish(loaded, execution)

    def _finish(self, loaded: LoadedTask, execution: Execution) -> None:
        own_page.enter(Phase.SAVING)
        with recorded() as written:
            result = loaded.app.save(execution.checkpoint)
            # read-only arrays would be read-only for the next task, too
            execution.device.thaw()
            kept = self._encoded(loaded, result)
            execution.device.keep_results(written)
            del result
        for warning in kept.warnings:
            sys.stderr.write(f"libtask: {warning}\n")
        finished = Finished(
            task=loaded.task,
            epoch=loaded.epoch,
            result=kept.value,
            warnings=kept.warnings,
            exit_code=0 if loaded.spec.app == COMMAND else None,
            **self._output.account(execution.measures),
        )
        self._end(finished)

    def _encoded(self, loaded: LoadedTask, result: Any) -> EncodedResult:
        """Encode a result as plain values; most short tasks have none.

        A large one is also written to a file, for tasks that take it as a parameter.
        """
        if result is None:
            return EncodedResult(None, [])
        name = loaded.stored_as or f"{loaded.task}-{loaded.epoch:x}"
        files = self._result_files
        kept = ResultEncoder(files.path / name).keep(result)
        if len(kept.packed) > RESULT_INLINE:
            try:
                files.write(name, kept.packed)
            except OSError as error:
                text = f"result: not written for other tasks: {error.strerror}"
                kept.warnings.append(text)
        return kept

    @cached_property
    def _result_files(self) -> ResultFiles:
        """The folder for results that are too large for a message."""
        if self._options.snapshots:
            return ResultFiles(Path(self._options.snapshots).parent / FOLDER)
        return ResultFiles(launcher_folder(self._options.socket) / FOLDER)

    def _yield_task(self, loaded: LoadedTask, execution: Execution) -> None:
        yielded = Yielded(
            task=loaded.task,
            epoch=loaded.epoch,
            checkpoint=loaded.record,
            last_strip=execution.measures.last_strip_at_ns / NANOSECONDS,
            at_risk=self._snapshot_writer.end_segment(execution.measures),
            **self._output.account(execution.measures),
        )
        self._pending.say(yielded, self._link, self._now())
        self._link.abort_followers()
        self._begin_segment(loaded, Phase.WAITING)

    def _take_snapshot(self, order: TakeSnapshot) -> None:
        loaded = self._loaded
        if loaded is not None and loaded.is_for(order):
            self._snapshot_writer.snapshot(loaded)

    def _park_if_memory_is_low(self) -> None:
        """Write a preempted task to disk and release its memory, if memory is low."""
        loaded = self._loaded
        waits = self._pending.is_yield()
        if loaded is None or not waits or not self._snapshot_writer.should_park():
            return
        if self._snapshot_writer.snapshot(loaded):
            parked = Parked(loaded.task, loaded.epoch)
            self._pending.say(parked, self._link, self._now())
            spec = loaded.spec
            del loaded
            self._unload()
            self._leaving |= self._lifetime.is_over(spec, 0.0)

    def _abort(self, order: Abort) -> None:
        """Abort a task; hetd expects a reply even for an unknown task."""
        loaded = self._loaded
        aborted = Aborted(task=order.task, epoch=order.epoch)
        if loaded and loaded.is_for(order):
            spec = loaded.spec
            del loaded
            self._end(aborted)
            self._leaving |= self._lifetime.is_over(spec, 0.0)
        else:
            self._link.send(aborted)

    # ------------------------------------------------------------ reports

    def _fail(self, order: Stage | Run, error: BaseException) -> None:
        failed = self._output.failed(order.task, order.epoch, error, self._measures)
        self._end(failed)

    def _end(self, ended: Finished | Failed | Aborted) -> None:
        # First, because the report frees the resource for the next task.
        self._leaving |= not self._end_processes()
        # the task is not to blame for a death of the worker from here on
        own_page.enter(Phase.IDLE)
        self._pending.say(ended, self._link, self._now())
        reach("worker.end-told")
        self.ended = ended
        self._unload()
        self._leaving |= self._options.own

    def _unload(self) -> None:
        """Drop the task and all references to its arrays."""
        own_page.enter(Phase.IDLE)
        self._last_task_at = self._now()
        self._loaded = None
        self._snapshot_writer.let_go()

    # ------------------------------------------------------------ housekeeping

    def _is_unneeded(self) -> bool:
        """Return whether this idle worker must exit."""
        if self._options.own:
            return False
        alone = self._link.welcome is None
        if alone and not self._may_return():
            return self._disconnected_s() > PATIENCE
        if self._loaded is not None:
            return False
        word = self._pending
        has_news = alone and word.message is not None and not word.settled
        if self._is_orphan() and not has_news:
            return True
        patience = NEWS_PATIENCE if has_news else PATIENCE
        return alone and self._disconnected_s() > patience

    def _may_return(self) -> bool:
        """Return whether a hetd can return to the socket, whose folder must exist."""
        return self._options.socket.parent.is_dir()

    def _disconnected_s(self) -> float:
        """Return the seconds since hetd was lost."""
        return self._now() - self._link.silent_since

    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _now(self) -> float:
        return time.monotonic()


def _is_shared(loaded: LoadedTask, checkpoint: RunCheckpoint) -> bool:
    """Return whether others do some of the strips of a task that has done its own."""
    return loaded.spec.part is not None or checkpoint.end != checkpoint.total


def _cores(needed: int) -> int:
    """Return the cores that a task needs of this machine."""
    return len(os.sched_getaffinity(0)) if needed == ALL_CORES else needed
