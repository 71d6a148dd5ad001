"""Counters of what the node's resources share, read while the policy uses the belief.

Each source is tried at the start, and left out where the machine does not have it: none
needs privileges. The samples of an interval become one `CountersRead` for the scheduler.
The progress of the own tasks, the first source of all, needs no reading: it comes with
the reports of the workers (`hetsched.crowding`).
"""

from __future__ import annotations

import logging
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hetsched import events as e
from hetsched.policy import uses_belief
from hetsched.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.timers import Timers
    from hetsched.contention import ContentionModel
    from hetsched.events import CounterReading, Event
    from hetsched.ids import Nanoseconds
    from hetsched.scheduler import Scheduler

log = logging.getLogger("hetd")

PROC = Path("/proc")
SAMPLES = 8
"""Samples that make up a reading."""
LEAST_DEVIATION = {"offered": 0.15, "waiting": 0.3}
"""Standard deviation of a counter at least: what it says is not quite what the model
means by it. A thread that is ready now is not there all the time, and a short wait counts
as one."""


class CounterError(Exception):
    """A counter cannot be read: absent, forbidden or of an unknown form."""


class CounterSource(Protocol):
    """One counter of a shared resource.

    Attributes:
        shared: the shared resource; `counter`: name in `hetsched.belief.COUNTERS`.

    """

    shared: str
    counter: str

    def sample(self, now: Nanoseconds) -> float | None:
        """Return the value now; None: it takes another call.

        Raises:
            CounterError: it cannot be read any more; it is not asked again.

        """
        ...


class RunnableThreads:
    """The load that all programs offer to the cores: threads that are ready to run.

    Args:
        shared: the shared resource.
        cores: of the machine.
        file: `/proc/stat`.

    """

    counter = "offered"

    def __init__(self, shared: str, cores: int, file: Path = PROC / "stat") -> None:
        self.shared = shared
        self._cores = cores
        self._file = file

    def sample(self, now: Nanoseconds) -> float | None:
        for line in _text(self._file).splitlines():
            if line.startswith("procs_running "):
                # the thread that reads this is ready, too
                return max(0, _number(line.split()[1]) - 1) / self._cores
        raise CounterError(f"{self._file}: no line procs_running")


class WaitingForCores:
    """The share of time in which some thread waits for a core: pressure stall information.

    Args:
        shared: the shared resource.
        file: `/proc/pressure/cpu`.

    """

    counter = "waiting"

    def __init__(self, shared: str, file: Path = PROC / "pressure/cpu") -> None:
        self.shared = shared
        self._file = file
        self._last: tuple[Nanoseconds, int] | None = None

    def sample(self, now: Nanoseconds) -> float | None:
        total = self._total_us()
        last, self._last = self._last, (now, total)
        if last is None or now <= last[0]:
            return None
        share = (total - last[1]) * 1e3 / (now - last[0])
        return min(1.0, max(0.0, share))

    def _total_us(self) -> int:
        for line in _text(self._file).splitlines():
            if line.startswith("some "):
                return _number(line.rpartition("total=")[2])
        raise CounterError(f"{self._file}: no line some")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise CounterError(f"{file}: {error.strerror}") from error


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CounterError(f"expected a number, got {text[:20]!r}") from error


def find_sources(model: ContentionModel, cores: int) -> list[CounterSource]:
    """Return the counters of the shared resources that this machine has."""
    wanted: list[CounterSource] = []
    for each in model.shared.values():
        if each.kind == "cores":
            wanted += [RunnableThreads(each.name, cores), WaitingForCores(each.name)]
    return [source for source in wanted if _is_there(source)]


def _is_there(source: CounterSource) -> bool:
    try:
        source.sample(0)
    except CounterError as error:
        log.info("no counter %s of %s: %s", source.counter, source.shared, error)
        return False
    return True


class CounterReader:
    """Reads the counters at a bounded rate, as long as the policy uses the belief.

    Args:
        sources: of the shared resources.
        scheduler: whose policy is asked.
        timers: of the daemon.
        every_s: seconds between two events.
        now: the present instant.

    """

    def __init__(
        self,
        sources: Sequence[CounterSource],
        scheduler: Scheduler,
        timers: Timers,
        every_s: float,
        now: Nanoseconds,
    ) -> None:
        self._sources = list(sources)
        self._scheduler = scheduler
        self._timers = timers
        self._every = int(every_s * SECOND)
        self._samples: dict[tuple[str, str], list[float]] = {}
        self._taken = 0
        if self._sources:
            timers.at(now + self._every, self._read)

    def _read(self, now: Nanoseconds) -> Sequence[Event]:
        """Take a sample of each counter; after the last of an interval, report them."""
        if not self._sources:
            return ()
        if not uses_belief(self._scheduler.policy):
            self._samples.clear()
            self._taken = 0
            self._timers.at(now + self._every, self._read)
            return ()
        self._timers.at(now + self._every // SAMPLES, self._read)
        for source in tuple(self._sources):
            self._take(source, now)
        self._taken += 1
        if self._taken < SAMPLES:
            return ()
        self._taken = 0
        return self._report()

    def _take(self, source: CounterSource, now: Nanoseconds) -> None:
        try:
            value = source.sample(now)
        except CounterError as error:
            text = "lost the counter %s of %s: %s"
            log.warning(text, source.counter, source.shared, error)
            self._sources.remove(source)
            return
        if value is not None and math.isfinite(value):
            self._samples.setdefault((source.shared, source.counter), []).append(value)

    def _report(self) -> Sequence[Event]:
        readings = [
            _reading(shared, counter, values)
            for (shared, counter), values in self._samples.items()
            if len(values) > 1
        ]
        self._samples.clear()
        return (e.CountersRead(tuple(readings)),) if readings else ()


def _reading(shared: str, counter: str, values: list[float]) -> CounterReading:
    deviation = max(statistics.stdev(values), LEAST_DEVIATION[counter])
    mean = statistics.fmean(values)
    # neighbouring samples see the same threads: they count as two
    return e.CounterReading(shared, counter, mean, deviation, 2)
