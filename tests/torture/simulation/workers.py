"""Simulated workers: the real `Worker`, with its line, its strips and its end modelled.

The protocol of a worker is libtask's own code. A task computes by
adding up numbers, in the order of its iterations: a strip that is left out, repeated or
begun without the state before it gives a wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libtask.checkpoint import StripSizer
from libtask.devices.null import NullDevice
from libtask.errors import DeviceError, TaskFailedError
from libtask.messages import CheckpointRecord, Leaving, Run
from libtask.task import Task
from libtask.worker.checkpoint_hook import CheckpointHook
from libtask.worker.execution import (
    Abandoned,
    Completed,
    Execution,
    Measures,
    Outcome,
    RunCheckpoint,
    Stopped,
    StopRequest,
)
from libtask.worker.options import WorkerOptions
from libtask.worker.worker import IDLE_MS, INTERVAL_NS, Worker
from torture.simulation.fake_link import SimulatedLink
from torture.simulation.fake_snapshots import SimulatedKeeper
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.checkpoint import Checkpoint
    from libtask.messages import FromDaemon, Message
    from libtask.worker.link import Link
    from libtask.worker.loaded_task import LoadedTask
    from torture.simulation.fake_snapshots import FakeSnapshots
    from torture.simulation.network import Network
    from torture.simulation.processes import Process

IDLE = 2 * SECOND
"""Interval at which an idle worker checks whether it is still needed."""
ENDLESS = 1_000_000
"""Iterations of a task that only an order ends."""
CRASHED = -6
"""Exit status of a worker whose task crashes: SIGABRT."""
MODULUS = 2_147_483_647


def folded(state: int, iteration: int) -> int:
    """Return the state after one more iteration; the order of iterations matters."""
    return (state * 31 + iteration + 1) % MODULUS


def result_of(token: int, iterations: int) -> int:
    """Return what a task must compute."""
    state = token
    for iteration in range(iterations):
        state = folded(state, iteration)
    return state


@dataclass
class Sum(Task):
    """The one application there is.

    Attributes:
        token: where its sum begins.
        iterations: of its loop.
        strip_s: seconds that an iteration takes.
        fails_on: kinds of resources where its device fails, at its first strip.
        crashes_on: kinds of resources where its worker dies, before its first strip.
        raises_at: iteration at which the application itself fails; -1: never.
        input: result of another task; no task runs without it.

    """

    token: int
    iterations: int
    strip_s: float = 0.01
    fails_on: list[str] = field(default_factory=list)
    crashes_on: list[str] = field(default_factory=list)
    raises_at: int = -1
    input: int = 0

    def load(self) -> None:
        self.state = self.token

    def total(self) -> int:
        return self.iterations

    def save(self, checkpoint: Checkpoint) -> int:
        return self.state


def _never(_task: Sum, _device: Any, _checkpoint: Checkpoint) -> Iterator[None]:
    raise NotImplementedError  # strips are modelled, not run


for _kind in ("cpu", "gpu", "fpga"):
    Sum.on(_kind)(_never)


class SimulatedSegment(Execution):
    """A run of a task in a worker, strip by strip as time goes by."""

    def __init__(
        self, loaded: LoadedTask, order: Run, checkpoint: RunCheckpoint
    ) -> None:
        # not as an execution: what computes is the model
        self.loaded = loaded
        self.order = order
        self.device = NullDevice(order.device)
        self.checkpoint = checkpoint
        self.measures = Measures()
        self.app: Sum = loaded.app  # type: ignore[assignment]  # there is no other

    def compute(self, began: int, now: int) -> None:
        """Do the strip that ends now.

        Raises:
            TaskFailedError: the application fails; a `DeviceError`: its device does.

        """
        if self.order.device.kind in self.app.fails_on:
            raise DeviceError(f"{self.order.device.name} failed")
        iteration = self.checkpoint.done
        if iteration == self.app.raises_at:
            raise TaskFailedError("as ordered")
        self.app.state = folded(self.app.state, iteration)
        self.checkpoint.done += 1
        self._book(began, now)

    def settle(self) -> CheckpointRecord:
        return self.checkpoint.record()

    @property
    def over(self) -> bool:
        return self.checkpoint.done >= (self.checkpoint.total or 0)

    def _book(self, began: int, now: int) -> None:
        measures = self.measures
        measures.strips += 1
        measures.iterations += 1
        measures.computing_ns += now - began
        measures.last_strip_at_ns = now
        measures.first_strip_at_ns = measures.first_strip_at_ns or max(began, 1)


class SimulatedWorker(Worker):
    """A worker process.

    Args:
        process: it is one.
        terms: as for `Worker`.

    Attributes:
        segment: the segment it computes; None: nothing.

    """

    def __init__(
        self, network: Network, process: Process, name: str, snapshots: FakeSnapshots
    ) -> None:
        self.process = process
        self.segment: SimulatedSegment | None = None
        self._network = network
        self._world = network.world
        self._hook: CheckpointHook | None = None
        options = WorkerOptions(name, Path("simulated"), growth=1 << 50)
        super().__init__(options, lambda _app: Sum, self._line)
        self._snapshot_writer = SimulatedKeeper(self._link, snapshots)
        process.after(IDLE, self._look_around)

    @property
    def told(self) -> tuple[int, int, str] | None:
        """Its current task, epoch and resource, for checks."""
        if self.segment is None:
            return None
        order = self.segment.order
        return order.task, order.epoch, order.device.name

    @property
    def welcomed(self) -> bool:
        """Whether it has a hetd that knows it."""
        return self._link.welcome is not None

    def _line(self, _path: Path, registration: Callable[[], list[Message]]) -> Link:
        return SimulatedLink(self._network, self.process, registration, self._wake)

    # ------------------------------------------------------------ between tasks

    def _wake(self) -> None:
        """Handle received messages, unless a strip is being computed."""
        while self.segment is None and not self._leaving:
            message = self._link.receive(IDLE_MS)
            if message is None:
                return
            self._handle(message)
        if self._leaving:
            self._link.send(Leaving())
            self.close()
            self.process.end(0)

    def _handle(self, message: FromDaemon) -> None:
        details = [getattr(message, name, None) for name in ("task", "epoch")]
        self._world.note(self.process.name, type(message).__name__, *details)
        super()._handle(message)

    def _look_around(self) -> None:
        if self.segment is None:
            self._leaving = self._leaving or self._is_unneeded()
            self._park_if_memory_is_low()
            self._wake()
        self.process.after(IDLE, self._look_around)

    def _is_orphan(self) -> bool:
        return self.process.parent is None or not self.process.parent.alive

    def _now(self) -> float:
        return self._world.now / SECOND

    # ------------------------------------------------------------ a task

    def _execute(self, loaded: LoadedTask, order: Run) -> None:
        """Begin to compute; what follows happens as time goes by."""
        loaded.implementation(order.device)
        sizer = StripSizer(INTERVAL_NS, fixed=1)
        segment = self.segment = SimulatedSegment(
            loaded, order, RunCheckpoint(loaded.record, sizer)
        )
        self._hook = CheckpointHook(
            self._link,
            loaded.task,
            loaded.epoch,
            self._output,
            self._snapshot_writer.current,
        )
        self._hook.follow(segment, self._world.now)
        self._runs_on = order.device.name
        self._world.note(
            self.process.name, "computes", loaded.task, loaded.epoch, order.device.name
        )
        self._begin_strip(segment)

    def _begin_strip(self, segment: SimulatedSegment) -> None:
        seconds = segment.app.strip_s
        delay = self._world.some(seconds / 2, seconds * 2)
        self.process.after(delay, self._end_strip, segment, self._world.now)

    def _end_strip(self, segment: SimulatedSegment, began: int) -> None:
        if segment.order.device.kind in segment.app.crashes_on:
            self._world.note(self.process.name, "crashes", segment.order.task)
            self.process.end(CRASHED)
            return
        try:
            segment.compute(began, self._world.now)
        except (DeviceError, TaskFailedError) as error:
            self._leave()
            if isinstance(error, DeviceError):
                self._snapshot_writer.save_before_failure(segment.loaded)
            self._fail(segment.order, error)
            self._wake()
            return
        self._at_checkpoint(segment)

    def _at_checkpoint(self, segment: SimulatedSegment) -> None:
        demand = None
        if not segment.over and self._hook is not None:
            demand = self._hook(self._world.now)
        if demand is not None:
            self._conclude(segment, _outcome(demand, segment))
        elif segment.over:
            self._conclude(segment, Completed())
        else:
            self._begin_strip(segment)

    def _conclude(self, segment: SimulatedSegment, outcome: Outcome) -> None:
        loaded, hook = segment.loaded, self._hook
        self._leave()
        self._world.note(
            self.process.name, type(outcome).__name__.lower(), loaded.task, loaded.epoch
        )
        if hook is not None:
            self._report(loaded, segment, outcome, hook)
        self._wake()

    def _leave(self) -> None:
        self.segment = None
        self._runs_on = ""
        if self._hook is not None:
            self._hook.leave()


def _outcome(demand: StopRequest, segment: SimulatedSegment) -> Outcome:
    if demand is StopRequest.ABANDON:
        return Abandoned()
    return Stopped(segment.checkpoint.record())
