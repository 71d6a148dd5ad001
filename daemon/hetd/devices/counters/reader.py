"""Reads the counters of what the node's resources share, while the policy uses the belief.

The samples of an interval become one `CountersRead` for the scheduler. The progress of the
own tasks, the first source of all, needs no reading: it comes with the reports of the
workers (`hetsched.crowding`).
"""

from __future__ import annotations

import logging
import math
import statistics
from typing import TYPE_CHECKING, Literal

from hetd.devices.counters.find import SAMPLES
from hetd.devices.counters.source import CounterError
from hetsched import events as e
from hetsched.policy import uses_belief
from hetsched.system import SECOND
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.devices.counters.find import FoundCounters
    from hetd.devices.counters.source import CounterName, CounterSource
    from hetd.timers import Timers
    from hetsched.events import CounterReading, Event
    from hetsched.ids import Nanoseconds
    from hetsched.scheduler import Scheduler

log = logging.getLogger("hetd")

LEAST_DEVIATION = {"waiting": 0.3}
USUAL_DEVIATION = 0.15
"""Standard deviation of a counter at least: what it says is not quite what the model
means by it. A thread that is ready now is not there all the time, and a short wait counts
as one."""


class CounterReader:
    """Reads the counters at a bounded rate, as long as the policy uses the belief.

    Args:
        found: the counters of the node.
        scheduler: whose policy is asked.
        timers: of the daemon.
        every_s: seconds between two events.
        now: the present instant.

    """

    def __init__(
        self,
        found: FoundCounters,
        scheduler: Scheduler,
        timers: Timers,
        every_s: float,
        now: Nanoseconds,
    ) -> None:
        self._sources = list(found.sources)
        self._missing = {each.name: each.reason for each in found.missing}
        self._read_once: set[CounterName] = set()
        self._scheduler = scheduler
        self._timers = timers
        self._every = int(every_s * SECOND)
        self._samples: dict[tuple[str, str], list[float]] = {}
        self._taken = 0
        for name, reason in self._missing.items():
            log.info("no counter %s from %s: %s", name.counter, name.source, reason)
        if self._sources:
            timers.at(now + self._every, self._read)

    def describe(self) -> list[m.CounterState]:
        """Describe which counters are read, and why others are not."""
        known = [source.name for source in self._sources]
        return [
            *(m.CounterState(*_named(name), self._state(name)) for name in known),
            *(
                m.CounterState(*_named(name), "missing", reason)
                for name, reason in self._missing.items()
            ),
        ]

    def close(self) -> None:
        """Give back what the sources hold."""
        for source in self._sources:
            source.rest()

    def _state(self, name: CounterName) -> Literal["read", "starting", "unused"]:
        if not uses_belief(self._scheduler.policy):
            return "unused"
        return "read" if name in self._read_once else "starting"

    def _read(self, now: Nanoseconds) -> Sequence[Event]:
        """Take a sample of each counter; after the last of an interval, report them."""
        if not self._sources:
            return ()
        if not uses_belief(self._scheduler.policy):
            self._rest()
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

    def _rest(self) -> None:
        """Forget what was sampled: nobody asks until the policy changes."""
        self.close()
        self._samples.clear()
        self._read_once.clear()
        self._taken = 0

    def _take(self, source: CounterSource, now: Nanoseconds) -> None:
        name = source.name
        try:
            value = source.sample(now)
        except CounterError as error:
            self._drop(source, str(error))
            return
        if value is not None and math.isfinite(value):
            self._read_once.add(name)
            self._samples.setdefault((name.shared, name.counter), []).append(value)

    def _drop(self, source: CounterSource, reason: str) -> None:
        """Read a counter no more: others go on."""
        name = source.name
        lost = name in self._read_once
        text = (
            "lost the counter %s from %s: %s" if lost else "no counter %s from %s: %s"
        )
        level = logging.WARNING if lost else logging.INFO
        log.log(level, text, name.counter, name.source, reason)
        self._sources.remove(source)
        self._missing[name] = reason

    def _report(self) -> Sequence[Event]:
        """Report counters with enough samples; a child prints less often than it is asked."""
        enough = {key: found for key, found in self._samples.items() if len(found) > 1}
        for key in enough:
            del self._samples[key]
        readings = [_reading(*key, values) for key, values in enough.items()]
        return (e.CountersRead(tuple(readings)),) if readings else ()


def _named(name: CounterName) -> tuple[str, str, str]:
    return name.source, name.shared, name.counter


def _reading(shared: str, counter: str, values: list[float]) -> CounterReading:
    least = LEAST_DEVIATION.get(counter, USUAL_DEVIATION)
    deviation = max(statistics.stdev(values), least)
    mean = statistics.fmean(values)
    # neighbouring samples see the same threads: they count as two
    return e.CounterReading(shared, counter, mean, deviation, 2)
