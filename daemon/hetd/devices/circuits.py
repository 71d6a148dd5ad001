"""Circuits: saves, logs and lists which applications avoid which resources.

The scheduler's breaker (`hetsched.breaker`) decides. Its changes are saved here, so that
they survive a restart, and logged. Two bundled programs that fail on one accelerator make
that accelerator suspect. The node calls this module.
"""

from __future__ import annotations

import logging
import signal
from functools import cache
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

import hetd
from hetsched.breaker import LONGEST_NS, Circuit, Fault, Pair
from hetsched.events import Cause
from hetsched.system import SECOND
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.clock import Clock
    from hetd.devices.health import Health
    from hetd.tasks.journal import Journal
    from hetsched.actions import KeepCircuit
    from hetsched.events import Event
    from hetsched.system import System

log = logging.getLogger("hetd")

OWN_FAULT = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""Signals that a faulty process causes itself; others come from outside."""
SUSPICIOUS: frozenset[Cause] = frozenset({"crash", "hang", "program"})
"""Failures of bundled programs that may be the device's fault."""
COMPUTES_NOTHING = frozenset({"synthetic"})
"""Bundled applications that do not test a device."""

MOST_TOLD = 200
"""Most pairs in one answer; an administrator may see those of many users."""


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored state of a pair. Times are seconds since the epoch.

    Attributes:
        release: of hetd: another release bundles other programs.

    """

    version: str
    failures: int
    cause: Cause
    reason: str
    retry: float
    release: str


_encode = msgspec.msgpack.Encoder().encode
decode_circuit = msgspec.msgpack.Decoder(Page).decode


def cause_of_exit(status: int) -> Cause | None:
    """Return why a worker with a task ended, from its exit status; None: unknown.

    Compilers in drivers may also exit the process when they fail, but not with 0.
    """
    if not status:
        return None
    return "killed" if status < 0 and -status not in OWN_FAULT else "crash"


@cache
def programs_of_the_box() -> frozenset[str]:
    """Return the names of the applications that come with hetd; their code is not loaded."""
    found = entry_points(group="libtask.apps")
    names = {point.name for point in found if point.value.startswith("hetapps.")}
    return frozenset(names - COMPUTES_NOTHING)


class Circuits:
    """Saves, logs and lists the pairs that are avoided."""

    def __init__(
        self, system: System, journal: Journal, health: Health, clock: Clock
    ) -> None:
        self._system = system
        self._breaker = system.breaker
        self._journal = journal
        self._health = health
        self._clock = clock

    def recall(self) -> None:
        """Load the pairs that were avoided when the daemon stopped."""
        known = {Pair(*key): page for key, page in self._journal.circuits().items()}
        for pair, stored in known.items():
            page = decode_circuit(stored)
            if page.release != hetd.__version__ and pair.app in programs_of_the_box():
                self._journal.batch.circuits[pair] = None
            else:
                self._breaker.restore(pair, self._restored(page))

    def keep(self, action: KeepCircuit) -> list[Event]:
        """Save a change; return the events for the resource."""
        pair, circuit = action.pair, action.circuit
        if circuit is None:
            self._journal.batch.circuits[pair] = None
            self._health.program_worked(pair.resource, pair.app)
            log.info("%s of uid %d may use %s", pair.app, pair.owner, pair.resource)
            return []
        fault, seconds = circuit.fault, self._seconds_to(circuit)
        page = Page(
            fault.version,
            circuit.failures,
            fault.cause,
            fault.reason,
            self._clock.wall() + seconds,
            hetd.__version__,
        )
        self._journal.batch.circuits[pair] = _encode(page)
        text = "%s of uid %d avoids %s for %.3g s, after %d failures in a row: %s"
        names = pair.app, pair.owner, pair.resource
        log.warning(text, *names, seconds, circuit.failures, fault.reason)
        return self._suspect(pair, fault)

    def told(
        self, owner: int | None, chosen: Callable[[Pair], bool] = lambda _pair: True
    ) -> list[m.AvoidedPair]:
        """List avoided pairs, `MOST_TOLD` at most.

        Args:
            owner: uid of the owner; None: all users.
            chosen: filter.

        """
        found = (
            self._told(pair, circuit)
            for pair, circuit in self._breaker
            if owner in (None, pair.owner) and chosen(pair)
        )
        return list(islice(found, MOST_TOLD))

    # ------------------------------------------------------------ parts

    def _suspect(self, pair: Pair, fault: Fault) -> list[Event]:
        """Count a failure of a bundled program against its resource."""
        if fault.cause not in SUSPICIOUS or pair.app not in programs_of_the_box():
            return []
        if self._system.serves_others(pair.resource, pair.owner):
            return []
        why = pair.owner, fault.reason
        now = self._clock.now()
        return self._health.program_failed(pair.resource, pair.app, why, now)

    def _seconds_to(self, circuit: Circuit) -> float:
        """Seconds until the next trial."""
        return max(0, circuit.retry_at - self._clock.now()) / SECOND

    def _restored(self, page: Page) -> Circuit:
        """Convert a stored pair to the monotonic clock; jumps of wall time do not prolong it."""
        now = self._clock.now()
        left = int(max(0.0, page.retry - self._clock.wall()) * SECOND)
        fault = Fault(page.version, page.cause, page.reason)
        return Circuit(fault, page.failures, now, now + min(left, LONGEST_NS))

    def _told(self, pair: Pair, circuit: Circuit) -> m.AvoidedPair:
        return m.AvoidedPair(
            app=pair.app,
            resource=pair.resource,
            owner=f"uid:{pair.owner}",
            failures=circuit.failures,
            cause=circuit.fault.cause,
            reason=circuit.fault.reason,
            until=self._clock.wall() + self._seconds_to(circuit),
            on_trial=circuit.half_open,
            task=circuit.trial,
            version=circuit.fault.version,
        )
