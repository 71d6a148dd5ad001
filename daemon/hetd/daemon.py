"""The daemon process: the loop under signals and a service manager.

It runs turn after turn, sends watchdog notifications, reloads the configuration on
SIGHUP, and stops as configured on SIGTERM, SIGINT or an administrator's request. A second
signal while stopping ends all waiting. Stopping brings running tasks to disk if the
configuration asks for it (`ShutdownDrain`); `GarbageCollector` replaces the interpreter's.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
from typing import TYPE_CHECKING

import msgspec

from hetd.config import RELOADABLE
from hetsched import events as e
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask.errors import HetError

if TYPE_CHECKING:
    from hetd.config import ActiveConfig, Config
    from hetd.loop import Loop
    from hetd.runtime import Runtime
    from hetd.systemd import Notifier
    from hetd.transport.connection_guard import ConnectionGuard
    from hetd.transport.poller import Poller
    from hetd.workers.commands import Commands
    from hetsched.ids import TaskId
    from hetsched.tasks import TaskRecord
    from libtask.messages import SnapshotInfo


log = logging.getLogger("hetd")

DRAINING_TURN_MS = 200
"""Longest wait for a message while stopping: bounds how late its time-out is noticed."""
MARGIN_S = 5.0
"""Time for stopping without the wait for tasks: the last commit and messages."""


class Serving:
    """Runs the loop until it has to stop.

    Args:
        drain: brings running tasks to disk when the daemon stops.
        config: read again on SIGHUP.

    """

    def __init__(  # noqa: PLR0913, PLR0917  it stands between the loop and the process
        self,
        loop: Loop,
        drain: ShutdownDrain,
        runtime: Runtime,
        config: ActiveConfig,
        guard: ConnectionGuard,
        notifier: Notifier,
    ) -> None:
        self._loop = loop
        self._drain = drain
        self._runtime = runtime
        self._clock = runtime.clock
        self._journal = runtime.journal
        self._config = config
        self._guard = guard
        self._notifier = notifier
        self._resources = ", ".join(runtime.scheduler.system.resources)
        self._hung_up = False
        self._signals = 0
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self, poller: Poller) -> None:
        """Serve; return when everything is durable. Running tasks go on without us."""
        self._catch_signals()
        poller.add(self._woken)
        loop = self._loop
        loop.turn([])  # with what was said while the router tested itself
        self._notifier.ready(self._status())
        collector = GarbageCollector(self._clock.now())
        while loop.running and not self._guard.exhausted:
            loop.turn(poller.wait(loop.timeout_ms()))
            self._guard.granted = self._journal.bytes()
            self._notifier.alive(self._status)
            if self._hung_up:
                self._reload()
            collector.look(self._clock.now(), len(self._journal.live))
        collector.end()
        self._notifier.stopping(MARGIN_S, "stopping")
        if self._config.value.on_stop == "preempt":
            self._wait_for_tasks(poller)
        loop.finish()

    def _status(self) -> str:
        live = len(self._journal.live)
        return f"{live} unfinished task{'s' * (live != 1)} on {self._resources}"

    # ------------------------------------------------------------ signals

    def _catch_signals(self) -> None:
        """Let signals end the wait."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._on_stop_signal())
        signal.signal(signal.SIGHUP, lambda *_: self._on_hang_up())

    def _sleep_on(self) -> None:
        """Consume the signals that arrived, so that the next one ends the wait again."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _on_stop_signal(self) -> None:
        self._signals += 1
        self._runtime.lifecycle.stop_requested = True

    def _on_hang_up(self) -> None:
        self._hung_up = True

    # ------------------------------------------------------------ reload

    def _reload(self) -> None:
        """Take up the configuration as it is now; a mistake in it changes nothing."""
        self._hung_up = False
        self._sleep_on()
        self._notifier.reloading()
        try:
            self._take_up(self._config.origins.read())
        except HetError as error:
            log.error("configuration not reloaded: %s", error)  # noqa: TRY400  one line
        self._notifier.ready(self._status())

    def _take_up(self, new: Config) -> None:
        old = self._config.value
        changed = [name for name in old.__struct_fields__ if _differs(old, new, name)]
        taken = {name: getattr(new, name) for name in changed if name in RELOADABLE}
        self._runtime.configure(msgspec.structs.replace(old, **taken))
        later = ", ".join(name for name in changed if name not in RELOADABLE)
        log.info(
            "configuration reloaded: %s%s",
            ", ".join(taken) or "nothing new",
            f"; a restart is needed for {later}" if later else "",
        )

    # ------------------------------------------------------------ stop

    def _wait_for_tasks(self, poller: Poller) -> None:
        """Bring running tasks to a checkpoint and a snapshot, as long as there is time."""
        loop, drain, now = self._loop, self._drain, self._clock.now
        limit = self._config.value.stop_timeout_s
        deadline = now() + int(limit * SECOND)
        self._notifier.draining(limit + MARGIN_S, "preempting running tasks")
        log.info("stopping: preempting running tasks, %g s at most", limit)
        drain.begin()
        asked = self._signals
        while drain.left() and now() < deadline and self._signals == asked:
            self._sleep_on()
            loop.turn(poller.wait(min(DRAINING_TURN_MS, loop.timeout_ms())))
            self._notifier.alive(lambda: f"stopping: waiting for {len(drain.left())}")
        if left := drain.left():
            log.warning("stopping: no snapshots of tasks %s in time", left)


def _differs(old: Config, new: Config, name: str) -> bool:
    return bool(getattr(old, name) != getattr(new, name))


log = logging.getLogger("hetd")


class ShutdownDrain:
    """Brings running tasks to a checkpoint and onto disk before the daemon ends."""

    def __init__(self, runtime: Runtime, commands: Commands) -> None:
        self._runtime = runtime
        self._system = runtime.scheduler.system
        self._journal = runtime.journal
        self._commands = commands
        self._awaited: set[TaskId] = set()
        self._before: dict[TaskId, SnapshotInfo | None] = {}
        """The snapshot that there was when a newer one was asked for."""

    def begin(self) -> None:
        """Ask all running tasks to yield; requests are refused from now on."""
        tasks = self._system.tasks.values()
        self._awaited = {task.id for task in tasks if _has_begun(task)}
        self._runtime.lifecycle.draining = True
        self._runtime.dispatch(e.NodeStopping())

    def left(self) -> list[int]:
        """Ask for the snapshots of those that have yielded; return what is awaited."""
        self._awaited = {task for task in self._awaited if not self._is_done(task)}
        return sorted(self._awaited)

    def _is_done(self, task: TaskId) -> bool:
        record = self._system.tasks.get(task)
        if record is None or not _has_begun(record):
            return True  # it ended, or has no worker any more
        if record.state is State.RUNNING:
            return False
        return self._is_saved(task)

    def _is_saved(self, task: TaskId) -> bool:
        page = self._journal.live[task]
        if task not in self._before:
            self._before[task] = page.snapshot
            page.snapshot_error = ""
            self._commands.want_snapshot(task)
        if page.snapshot_error:
            log.warning("task %d: no snapshot: %s", task, page.snapshot_error)
            return True
        return page.snapshot is not self._before[task]


def _has_begun(task: TaskRecord) -> bool:
    return task.bound and task.state in (State.RUNNING, State.PREEMPTED)


LOOK_NS = 10_000_000
"""Between two collections: one millisecond suffices for the objects of this time."""
FEW = 1000
"""Number of tasks up to which a full collection takes as long as some turns."""
REST_NS = 60_000_000_000
"""Between two full collections."""


class GarbageCollector:
    """Collects cyclic garbage in place of the interpreter.

    Args:
        now: nanoseconds.

    """

    def __init__(self, now: int) -> None:
        self._next = now + LOOK_NS
        self._next_full = now + REST_NS
        gc.disable()
        gc.freeze()

    def look(self, now: int, tasks: int) -> None:
        """Look, if it is time to. Called after each turn of the loop.

        Args:
            now: nanoseconds.
            tasks: those that are kept in memory.

        """
        if now < self._next:
            return
        self._next = now + LOOK_NS
        if now >= self._next_full and tasks <= FEW:
            self._next_full = now + REST_NS
            gc.unfreeze()
            gc.collect()
        else:
            gc.collect(0)
        gc.freeze()

    def end(self) -> None:
        """Let the interpreter collect again."""
        gc.unfreeze()
        gc.enable()
