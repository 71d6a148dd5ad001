"""Execution: drives one implementation strip by strip on one open device.

The worker and stand-alone programs use it. Between two strips it waits for the device,
times the strip, advances the checkpoint, sizes the next strip and calls the checkpoint
callback once. It does not use sockets, messages or daemons.
"""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from libtask.checkpoint import Checkpoint, StripSizer
from libtask.errors import DeviceError, TaskFailedError
from libtask.phase import Phase, own_page
from libtask.worker.compile_time import compiled_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from libtask.commands.context import CommandContext
    from libtask.devices import Device
    from libtask.messages import CheckpointRecord
    from libtask.task import Implementation

NANOSECONDS = 1_000_000_000

SHORT_WAIT = 16
"""A wait for the device of less than this fraction of a strip's time is none: the host sets
the pace."""


class StopRequest(Enum):
    """A request of the checkpoint callback to stop the task."""

    PREEMPT = auto()
    """Stop at this checkpoint and copy the state out, to continue elsewhere."""
    ABANDON = auto()
    """Stop at this checkpoint and discard the state."""


CheckpointCallback: TypeAlias = "Callable[[int], StopRequest | None]"
"""Called at each checkpoint except the last with `time.perf_counter_ns()`.

It must return within a microsecond if it has nothing to do.
"""


class AbandonedError(Exception):
    """Ends an abandoned implementation; unlike `GeneratorExit`, without copying out."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The implementation returned: all strips are done."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task stopped at a checkpoint; its state is back on the host."""

    checkpoint: CheckpointRecord


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The task was aborted; its state arrays are invalid."""


Outcome: TypeAlias = Completed | Stopped | Abandoned


class RunCheckpoint(Checkpoint):
    """The checkpoint that the runtime passes to an implementation.

    It enforces the rule "one yield after each strip": only then is every drawn strip
    finished at a checkpoint, and a migration neither loses nor repeats one.

    Args:
        record: the progress at the start.
        sizer: sizes the strips.
        situation: of a command, which computes elsewhere; None: of any other application.

    """

    def __init__(
        self,
        record: CheckpointRecord,
        sizer: StripSizer,
        context: CommandContext | None = None,
    ) -> None:
        super().__init__(record, sizer)
        self.sizer = sizer
        self.context = context
        self.drawn_iterations = 0
        """Iterations drawn since the last checkpoint."""
        self.loop_began_ns = 0
        """Earliest start of the first strip (`time.perf_counter_ns`); 0: not yet."""
        self.compiled_before_ns = 0
        """Time of all compilations before that."""

    def strips(self, granule: int = 1) -> Iterator[range]:
        """Draw strips as `Checkpoint.strips` does; raise an error for a missing yield."""
        if not self.loop_began_ns:
            self.loop_began_ns = time.perf_counter_ns()
            self.compiled_before_ns = compiled_ns()
            own_page.enter(Phase.FIRST_STRIP)
        for strip in super().strips(granule):
            if self.drawn_iterations:
                raise TaskFailedError(
                    "a second strip was drawn before the first one's `yield`; "
                    "write one `yield` after each strip"
                )
            self.drawn_iterations = strip.stop - strip.start
            yield strip

    # ------------------------------------------------------------ for commands

    def begin(self) -> None:
        """Record that the command starts now."""
        self.loop_began_ns = time.perf_counter_ns()
        own_page.enter(Phase.COMMAND)

    def advance_to(self, done: int) -> None:
        """Record the progress since the last strip as a strip that has just ended."""
        self.drawn_iterations = done - self._drawn
        self._drawn = done

    def restart(self) -> None:
        """Reset the progress, which is lost."""
        self.done = self._drawn = self.drawn_iterations = 0


@dataclass(slots=True)
class Measures:
    """Measures of one execution so far.

    Attributes:
        strips: finished strips.
        iterations: iterations in them.
        computing_ns: total time of the strips.
        first_strip_at_ns: start of the first strip since the Unix epoch; 0: not yet.
        last_strip_at_ns: end of the last finished strip since the Unix epoch.
        transfer_in: seconds copying to the device.
        transfer_out: seconds copying back.
        set_up: seconds from the start to the first strip, and those of compiling later,
            without copying.
        compiling_ns: of that, time of compiling.
        cpu_began_ns: the process's CPU time when the execution began.

    """

    strips: int = 0
    iterations: int = 0
    computing_ns: int = 0
    first_strip_at_ns: int = 0
    last_strip_at_ns: int = 0
    transfer_in: float = 0.0
    transfer_out: float = 0.0
    set_up: float = 0.0
    compiling_ns: int = 0
    cpu_began_ns: int = 0

    def cpu_ns_so_far(self) -> int:
        """Return the CPU time of this process and its descendants in this execution."""
        return cpu_time_ns() - self.cpu_began_ns if self.cpu_began_ns else 0

    def copy(self) -> Measures:
        return dataclasses.replace(self)


class Execution:
    """Drives one implementation to its end, or to a checkpoint where it must stop.

    On a pipelined device the next strip is enqueued before the wait for the previous
    one, so that the device does not idle meanwhile; a request to stop then takes effect
    one strip later. On other devices strips run synchronously. An app that ends by
    itself (no total) decides by the result of each strip, so it is not pipelined.

    Args:
        implementation: the generator function to drive.
        task: the application's object, with its state arrays.
        device: the open device.
        course: where the execution stands.
        watch: called at each checkpoint.

    """

    def __init__(
        self,
        implementation: Implementation,
        task: Any,
        device: Device,
        checkpoint: RunCheckpoint,
        watch: CheckpointCallback,
    ) -> None:
        self.checkpoint = checkpoint
        self.measures = Measures()
        self._start = implementation
        self._task = task
        self._check: Callable[[RunCheckpoint], str] = getattr(
            task, "check", _no_complaint
        )
        self.device = device
        self._watch = watch
        self._pipelined = device.pipelined and checkpoint.total is not None
        self._in_flight: tuple[Callable[[], None], int] | None = None
        self._copied_before = (device.transfer_in, device.transfer_out)
        self._accounted_ns = 0
        self._epoch_ns = 0
        self._compiled_ns = 0
        """Time of compilations that has been accounted for."""
        self._paused = False
        self._suspended_ns = 0

    def run(self) -> Outcome:
        """Run until the implementation returns or raises, or a request stops it.

        Raises:
            TaskFailedError: the implementation breaks the rules of strips.
            BaseException: raised by the implementation.

        """
        began_ns = time.perf_counter_ns()
        self.measures.cpu_began_ns = cpu_time_ns()
        self._epoch_ns = time.time_ns() - began_ns
        self._accounted_ns = began_ns
        own_page.enter(Phase.SETTING_UP)
        self._take_compiled_ns()
        generator: Any = self._start(self._task, self.device, self.checkpoint)
        if not hasattr(generator, "throw"):
            raise TaskFailedError(
                f"the implementation {_name(self._start)} is not a generator; "
                "write one `yield` after each strip"
            )
        try:
            return self._drive(generator, began_ns)
        except BaseException:
            _end_without_copies(generator)
            self._count_command(began_ns)
            raise

    def _count_command(self, began_ns: int) -> None:
        """Account for the time of a command that ended early."""
        if self.checkpoint.context is not None and self.checkpoint.loop_began_ns:
            self.checkpoint.drawn_iterations = 0
            self._account_last_strip(began_ns)

    def settle(self) -> CheckpointRecord:
        """Update the host's arrays at a checkpoint and return their record.

        Only for the checkpoint callback, during which the implementation is suspended;
        it continues afterwards, and the elapsed time counts for no strip.

        Raises:
            DeviceError: the device is lost, or its results are wrong.

        """
        self._paused = True
        self._finish_in_flight()
        self.device.refresh()
        self._validate()
        return self.checkpoint.record()

    def _drive(self, generator: Generator[None, None, None], began_ns: int) -> Outcome:
        for _ in generator:
            if not self.measures.first_strip_at_ns:
                self._note_first_strip(began_ns)
            demand = self._reach_checkpoint()
            if demand is not None and not self._stops_itself(demand):
                return self._stop(generator, demand)
        context = self.checkpoint.context
        if context is not None and context.left:
            self._count_command(began_ns)
            return Stopped(self.checkpoint.record())
        return self._complete(began_ns)

    def _stops_itself(self, demand: StopRequest) -> bool:
        """Ask a command to stop by itself; return whether this is one that can."""
        context = self.checkpoint.context
        if context is None or demand is not StopRequest.PREEMPT:
            return False
        context.leaving = True
        return True

    def suspend(self) -> None:
        """Record that its code does not compute: its time does not count from now on."""
        if self._suspended_ns == 0:
            self._suspended_ns = time.perf_counter_ns()

    def resume(self) -> None:
        """Record that its code continues."""
        if self._suspended_ns:
            self._accounted_ns += time.perf_counter_ns() - self._suspended_ns
            self._suspended_ns = 0

    def _note_first_strip(self, began_ns: int) -> None:
        loop_began_ns = self.checkpoint.loop_began_ns or began_ns
        self._accounted_ns = loop_began_ns
        if self.checkpoint.loop_began_ns:
            before, self._compiled_ns = (
                self._compiled_ns,
                self.checkpoint.compiled_before_ns,
            )
            self.measures.compiling_ns += self._compiled_ns - before
        copied = self.device.transfer_in - self._copied_before[0]
        waited = (loop_began_ns - began_ns) / NANOSECONDS
        self.measures.transfer_in = copied
        self.measures.set_up = max(0.0, waited - copied)
        self.measures.first_strip_at_ns = self._epoch_ns + loop_began_ns

    def _take_compiled_ns(self) -> int:
        """Return the time of compilations since the last call."""
        before, self._compiled_ns = self._compiled_ns, compiled_ns()
        return self._compiled_ns - before

    def _reach_checkpoint(self) -> StopRequest | None:
        """Account for the strip just enqueued, then call the checkpoint callback."""
        checkpoint = self.checkpoint
        iterations = checkpoint.drawn_iterations
        if not iterations and checkpoint.context is not None:
            return self._watch(time.perf_counter_ns())  # a sign of life without a strip
        if not iterations:
            raise TaskFailedError(
                f"the implementation {_name(self._start)} yielded without a strip; "
                "draw one from checkpoint.strips() before each `yield`"
            )
        checkpoint.drawn_iterations = 0
        mark = self.device.mark()
        if self._pipelined:
            self._finish_in_flight(iterations)
            self._in_flight = (mark, iterations)
            if checkpoint.complete:
                self._finish_in_flight()
        else:
            mark()
            elapsed = self._account(iterations)
            checkpoint.sizer.measured(iterations, elapsed)
        if checkpoint.complete:
            return None
        demand = self._watch(self._accounted_ns)
        if self._paused:
            self._paused = False
            self._accounted_ns = time.perf_counter_ns()
        return demand

    def _finish_in_flight(self, enqueued: int = 0) -> None:
        """Wait for the strip in flight; size the next one, if another has been enqueued.

        Args:
            enqueued: iterations of the strip that was enqueued after it; 0: none was.
                Where the wait is over at once, the time since the last strip is that of
                enqueueing these: the device is faster than the host can enqueue, or its
                queue was full and the host waited there. Taken for the time of the strip
                in flight, it would make long strips and short ones alternate.

        """
        if self._in_flight is None:
            return
        wait, iterations = self._in_flight
        self._in_flight = None
        before = time.perf_counter_ns()
        wait()
        waited = time.perf_counter_ns() - before
        elapsed = self._account(iterations)
        if enqueued:
            paced_by_host = waited * SHORT_WAIT < elapsed
            timed = enqueued if paced_by_host else iterations
            self.checkpoint.sizer.measured(timed, elapsed)

    def _account(self, iterations: int) -> int:
        """Account for a finished strip, timed from the end of the previous one.

        Returns:
            Its nanoseconds, without those of compilations.

        """
        if self._suspended_ns:
            self.resume()
        now = time.perf_counter_ns()
        compiled = self._take_compiled_ns()
        elapsed = now - self._accounted_ns - compiled
        self._accounted_ns = now
        self.checkpoint.done += iterations
        measures = self.measures
        measures.set_up += compiled / NANOSECONDS
        measures.compiling_ns += compiled
        measures.strips += 1
        if measures.strips == 1:
            own_page.compute()
        measures.iterations += iterations
        measures.computing_ns += elapsed
        measures.last_strip_at_ns = self._epoch_ns + now
        return elapsed

    def _stop(
        self, generator: Generator[None, None, None], demand: StopRequest
    ) -> Outcome:
        self._finish_in_flight()
        if demand is StopRequest.ABANDON:
            _end_without_copies(generator)
            return Abandoned()
        generator.close()
        self._note_transfers()
        self._validate()
        return Stopped(self.checkpoint.record())

    def _complete(self, began_ns: int) -> Completed:
        self._finish_in_flight()
        checkpoint = self.checkpoint
        if checkpoint.drawn_iterations:
            self._account_last_strip(began_ns)
        if not (checkpoint.complete or checkpoint.end is None or self._may_end_early()):
            raise TaskFailedError(
                f"the implementation {_name(self._start)} returned after "
                f"{checkpoint.done} of {checkpoint.end} iterations; one that may end "
                "before `total()` calls checkpoint.end_early() first"
            )
        self._note_transfers()
        self._validate()
        return Completed()

    def _may_end_early(self) -> bool:
        """Whether it may do fewer iterations than all; those of a command are what it reports."""
        return self.checkpoint.ends_early or self.checkpoint.context is not None

    def _validate(self) -> None:
        """Let the application check its results, which the host holds now.

        Raises:
            DeviceError: they are wrong.

        """
        complaint = self._check(self.checkpoint)
        if complaint:
            name = self.device.spec.name
            raise DeviceError(f"{name}: computes wrong numbers: {complaint}")

    def _account_last_strip(self, began_ns: int) -> None:
        """Account for the last strip of an app that returned without a yield."""
        if not self.measures.first_strip_at_ns:
            self._note_first_strip(began_ns)
        self.device.mark()()
        self._account(self.checkpoint.drawn_iterations)
        self.checkpoint.drawn_iterations = 0

    def _note_transfers(self) -> None:
        copied_in, copied_out = self._copied_before
        self.measures.transfer_in = self.device.transfer_in - copied_in
        self.measures.transfer_out = self.device.transfer_out - copied_out


def _end_without_copies(generator: Any) -> None:
    """Unwind a suspended implementation by an exception.

    Closing it instead would let its `with` blocks copy data out.
    """
    with contextlib.suppress(BaseException):
        generator.throw(AbandonedError())
    with contextlib.suppress(BaseException):
        generator.close()


def cpu_time_ns() -> int:
    """Return the CPU time of this process and of its exited descendants, all threads."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + int((ended.ru_utime + ended.ru_stime) * NANOSECONDS)


def _no_complaint(_checkpoint: RunCheckpoint) -> str:
    """Check nothing, for objects that are not `Task`s."""
    return ""


def _name(implementation: Implementation) -> str:
    return getattr(implementation, "__qualname__", repr(implementation))
