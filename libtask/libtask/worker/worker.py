"""The worker: executes tasks, one at a time, as hetd orders.

    staged ── Run ──> running ── Finished | Failed | Aborted ──> free for the next
                      │     ^
                Preempt     Run, perhaps on another device
                      v     │
                      yielded: keeps the task's object with its host arrays

There is no control thread. The main thread owns the socket and looks at it between
tasks and at checkpoints, once a millisecond at most (`lookout`): a checkpoint then
costs less than taking a lock, a task that does nothing needs no hand-over between
threads, and no second thread contends for the interpreter while a task computes. The
price is that an order waits for the next checkpoint, which is when it takes effect
anyway.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.checkpoint import StripSizer
from libtask.commands.context import Situation
from libtask.devices.null import NullDevice
from libtask.endpoint import launcher_folder
from libtask.errors import DeviceError
from libtask.faultpoints import reach
from libtask.messages import (
    Abort,
    Aborted,
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
from libtask.results import Keeping as Results
from libtask.results import Kept
from libtask.worker.checkpoint_hook import Lookout
from libtask.worker.environment import Folder, KnownApps, OpenDevices
from libtask.worker.execution import (
    NANOSECONDS,
    Abandoned,
    Completed,
    Course,
    Execution,
    Measures,
    Stopped,
)
from libtask.worker.link import Link
from libtask.worker.loaded_task import Holding, staging_of
from libtask.worker.options import Age
from libtask.worker.pending_report import LastWord
from libtask.worker.segment_output import Output
from libtask.worker.snapshot_writer import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.devices import Device
    from libtask.messages import FromDaemon, Message
    from libtask.task import Task
    from libtask.worker.execution import Outcome
    from libtask.worker.options import Terms

INTERVAL_NS = 50_000_000
"""Target interval between checkpoints, until hetd says another."""
IDLE_MS = 2000
"""How often an idle worker looks whether anybody still needs it."""
JOIN_SECONDS = 10.0
"""How long hetd may take to answer the hello of a user's own program."""
PATIENCE = 60.0
"""Seconds that an idle worker waits for a hetd that went away, as its launcher does."""
NEWS_PATIENCE = 86_400.0
"""Seconds that one waits which has to tell how its last task ended, or holds one; if
the folder of the socket is gone, too, nobody comes back for it."""
COMMAND = "command"
"""The application whose tasks have an exit status."""
NO_STRIPS = Measures()
"""Of a stretch that has not begun to run; nothing writes to it."""


class Worker:
    """A worker process; `run` is its life.

    Args:
        terms: what it is told at its start.
        find_app: finds the class of an application by name; None: as everybody does.
        connect: makes the line to hetd; a simulation gives one without a socket.
        clear_away: ends what a task leaves running; says whether all of it is gone.

    Attributes:
        ended: how the last task ended.

    """

    def __init__(
        self,
        terms: Terms,
        find_app: Callable[[str], type[Task]] | None = None,
        connect: Callable[[Path, Callable[[], list[Message]]], Link] = Link,
        clear_away: Callable[[], bool] = lambda: True,
    ) -> None:
        self.ended: Finished | Failed | Aborted | None = None
        self._terms = terms
        self._find_app = find_app or KnownApps().find
        self._clear_away = clear_away
        self._parent = os.getppid()
        self._held: Holding | None = None
        self._runs_on = ""
        self._last_word = LastWord()
        self._leaving = False
        self._folder = Folder()
        self._devices = OpenDevices()
        self._output = Output(terms.log)
        self._measures = NO_STRIPS
        self._age = Age(terms)
        self._link = connect(terms.socket, self._greeting)
        self._keeper = Keeper(self._link, terms.snapshots)

    def join(self) -> None:
        """Wait until hetd knows this worker.

        Raises:
            DaemonUnreachableError: it does not answer.

        """
        self._link.await_welcome(JOIN_SECONDS)

    def run(self) -> None:
        """Obey hetd until it is time to leave."""
        try:
            while not self._leaving:
                message = self._link.receive(IDLE_MS)
                if message is None:
                    self._leaving = self._is_forsaken()
                    self._park_if_memory_is_low()
                else:
                    self._obey(message)
            # hetd may have ordered something meanwhile: another is to do it.
            self._link.send(Leaving())
        finally:
            self.close()

    def close(self) -> None:
        """Give devices and socket back."""
        self._devices.close()
        self._link.close()

    def _greeting(self) -> list[Message]:
        reach("worker.greeting")
        task, epoch = self._concerns()
        hello = Register(
            role="worker",
            pid=os.getpid(),
            worker=self._terms.name,
            task=task,
            epoch=epoch,
            own=self._terms.own,
            resource=self._runs_on,
        )
        # no message before the first connection
        lost_at = self._link.silent_since if self._last_word.message else 0.0
        return self._last_word.after(hello, lost_at)

    def _concerns(self) -> tuple[int | None, int]:
        """Return the task held, or else the one whose end hetd may not know."""
        if self._held is not None:
            return self._held.task, self._held.epoch
        return self._last_word.concerns()

    def _obey(self, message: FromDaemon) -> None:
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
                self._last_word.heard(self._now())
            case Error():
                sys.stderr.write(f"libtask: hetd refuses: {message.text}\n")
                self._leaving = message.request == 0
            case _:
                # A Preempt that came too late, or a client's message: nothing to do.
                pass

    # ------------------------------------------------------------ staging

    def _stage(self, order: Stage, *, tell: bool = True, follows: bool = False) -> None:
        held = self._held
        if held and held.is_for(order):
            self._last_word.repeat(self._link)
            return
        self._let_go()
        if not follows:
            self._last_word.take_back()
        self._begin_stretch(order, Phase.LOADING)
        reach("worker.loading")
        try:
            self._held = self._load(order)
        except BaseException as error:  # noqa: BLE001  whatever an app raises is its own failure, the worker lives on
            self._fail(order, error)
            return
        reach("worker.loaded")
        own_page.enter(Phase.WAITING)
        if self._held is not None:
            self._keeper.take_in(self._held, order)
        if tell:
            self._tell_ready(order)

    def _begin_stretch(self, order: Stage | Run | Holding, phase: Phase) -> None:
        self._output.begin()
        self._measures = NO_STRIPS
        own_page.begin(order.task, order.epoch, self._output.start, phase)

    def _load(self, order: Stage) -> Holding:
        self._folder.enter(order.spec.cwd)
        app_class = self._find_app(order.spec.app)
        return Holding.load(order, app_class)

    def _tell_ready(self, order: Stage) -> None:
        """Say that the task is loaded, unless hetd has already said to run it."""
        following = self._link.receive(0)
        if following is not None:
            self._link.put_back([following])
        if isinstance(following, Run) and following.task == order.task:
            return
        held = self._held
        total = held.record.total if held else None
        ready = Ready(task=order.task, epoch=order.epoch, total=total)
        self._last_word.say(ready, self._link, self._now())

    # ------------------------------------------------------------ running

    def _run(self, order: Run) -> None:
        unstaged = staging_of(order)
        if unstaged is not None:
            self._stage(unstaged, tell=False, follows=order.follows)
        held = self._held
        if held is None or not held.is_for(order):
            self._refuse(order)
            return
        if not order.follows:
            self._last_word.take_back()
        began = time.monotonic()
        reach("worker.running")
        try:
            self._execute(held, order)
        except BaseException as error:  # noqa: BLE001  whatever an app raises is its own failure, the worker lives on
            self._devices.note_failure(order.device, error)
            self._fail(order, error)
        if self._held is None:
            spec = held.spec
            self._age.begin_disposal()
            del held  # and with it the arrays of an ended task
            self._leaving |= self._age.is_over(spec, time.monotonic() - began)

    def _refuse(self, order: Run) -> None:
        ended = self.ended
        if ended and (ended.task, ended.epoch) == (order.task, order.epoch):
            return  # it failed while it was staged; hetd learns that just now
        text = f"worker {self._terms.name} does not hold task {order.task}"
        lost = Failed(task=order.task, epoch=order.epoch, error=text, code="not-held")
        self._link.send(lost)

    def _execute(self, held: Holding, order: Run) -> None:
        self._folder.enter(held.spec.cwd)
        implementation = held.implementation(order.device)
        own_page.open(order.device.name)
        needs_device = held.app.needs_device
        device: Device = (
            self._devices.open(order.device)
            if needs_device
            else NullDevice(order.device)
        )
        course = self._course(held, order)
        lookout = Lookout(
            self._link, held.task, held.epoch, self._output, self._keeper.keeping
        )
        execution = Execution(implementation, held.app, device, course, lookout)
        self._measures = execution.measures
        lookout.follow(execution, time.perf_counter_ns())
        self._runs_on = order.device.name
        copies_out = device.copies_out
        try:
            outcome = execution.run()
        except DeviceError:
            # The device's memory is lost; the host's holds what went in, if none came out.
            if copies_out is not None and device.copies_out == copies_out:
                self._keeper.salvage(held)
            raise
        finally:
            self._runs_on = ""
            lookout.leave()
        self._report(held, execution, outcome, lookout)

    def _course(self, held: Holding, order: Run) -> Course:
        """Return the checkpoint from which the task goes on, and its strips' sizes."""
        welcome = self._link.welcome
        interval_ns = welcome.interval_ns if welcome else INTERVAL_NS
        sizer = StripSizer(interval_ns, fixed=held.spec.strip, first=order.strip)
        situation = None
        if not held.app.needs_device:
            situation = Situation(
                held.task, order.attempt, order.slot, self._link.wait_beside
            )
        return Course(held.record, sizer, situation)

    def _report(
        self, held: Holding, execution: Execution, outcome: Outcome, lookout: Lookout
    ) -> None:
        match outcome:
            case Completed():
                lookout.tell_complete()
                self._finish(held, execution)
            case Stopped(checkpoint):
                held.record = checkpoint
                self._yield_task(held, execution)
            case Abandoned():
                account = self._output.account(execution.measures)
                self._end(Aborted(task=held.task, epoch=held.epoch, **account))

    def _finish(self, held: Holding, execution: Execution) -> None:
        reach("worker.computed")
        own_page.enter(Phase.SAVING)
        kept = self._kept(held, held.app.save(execution.course))
        for warning in kept.warnings:
            sys.stderr.write(f"libtask: {warning}\n")
        finished = Finished(
            task=held.task,
            epoch=held.epoch,
            result=kept.value,
            warnings=kept.warnings,
            exit_code=0 if held.spec.app == COMMAND else None,
            **self._output.account(execution.measures),
        )
        reach("worker.saved")
        self._end(finished)

    def _kept(self, held: Holding, result: Any) -> Kept:
        """Make plain values of a result; there is none of the shortest tasks."""
        if result is None:
            return Kept(None, [])
        return Results(self._result_file(held)).keep(result)

    def _result_file(self, held: Holding) -> Path:
        """Name the file that a result goes to which no message holds."""
        if self._terms.snapshots:
            folder = Path(self._terms.snapshots).parent
        else:
            folder = launcher_folder(self._terms.socket)
        return folder / "results" / f"{held.task}-{held.epoch}"

    def _yield_task(self, held: Holding, execution: Execution) -> None:
        yielded = Yielded(
            task=held.task,
            epoch=held.epoch,
            checkpoint=held.record,
            last_strip=execution.measures.last_strip_at_ns / NANOSECONDS,
            at_risk=self._keeper.end_stretch(execution.measures),
            **self._output.account(execution.measures),
        )
        reach("worker.stopped")
        self._last_word.say(yielded, self._link, self._now())
        reach("worker.yielded")
        self._link.give_back_followers()
        self._begin_stretch(held, Phase.WAITING)

    def _take_snapshot(self, order: TakeSnapshot) -> None:
        held = self._held
        if held is not None and held.is_for(order):
            self._keeper.snapshot(held)

    def _park_if_memory_is_low(self) -> None:
        """Let a preempted task wait on disk, and give its memory back."""
        held = self._held
        waits = self._last_word.is_yield()
        if held is None or not waits or not self._keeper.should_park():
            return
        if self._keeper.snapshot(held):
            parked = Parked(held.task, held.epoch)
            self._last_word.say(parked, self._link, self._now())
            spec = held.spec
            del held
            self._let_go()
            self._leaving |= self._age.is_over(spec, 0.0)

    def _abort(self, order: Abort) -> None:
        """Give a task up; hetd awaits an answer also for one that is not held."""
        held = self._held
        aborted = Aborted(task=order.task, epoch=order.epoch)
        if held and held.is_for(order):
            spec = held.spec
            del held
            self._end(aborted)
            self._leaving |= self._age.is_over(spec, 0.0)
        else:
            self._link.send(aborted)

    # ------------------------------------------------------------ what is said

    def _fail(self, order: Stage | Run, error: BaseException) -> None:
        failed = self._output.failed(order.task, order.epoch, error, self._measures)
        self._end(failed)

    def _end(self, ended: Finished | Failed | Aborted) -> None:
        # First, as with the last word the resource is the next task's.
        self._leaving |= not self._clear_away()
        # what kills the worker from here on has nothing to do with the task
        own_page.enter(Phase.IDLE)
        self._last_word.say(ended, self._link, self._now())
        reach("worker.last-word")
        self.ended = ended
        self._let_go()
        self._leaving |= self._terms.own

    def _let_go(self) -> None:
        """Hold no task any more: nothing may refer to its arrays."""
        own_page.enter(Phase.IDLE)
        self._held = None
        self._keeper.let_go()

    # ------------------------------------------------------------ housekeeping

    def _is_forsaken(self) -> bool:
        """Say whether nobody needs this idle worker any more."""
        if self._terms.own:
            return False
        alone = self._link.welcome is None
        if alone and not self._may_come_back():
            return self._silence() > PATIENCE
        if self._held is not None:
            return False
        word = self._last_word
        has_news = alone and word.message is not None and not word.settled
        if self._is_orphan() and not has_news:
            return True
        patience = NEWS_PATIENCE if has_news else PATIENCE
        return alone and self._silence() > patience

    def _may_come_back(self) -> bool:
        """Whether there can be a hetd at the socket again: its folder is there."""
        return self._terms.socket.parent.is_dir()

    def _silence(self) -> float:
        """Return for how long there has been no hetd, seconds."""
        return self._now() - self._link.silent_since

    def _is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _now(self) -> float:
        return time.monotonic()
