"""Health: takes failing resources out of service and tests them until they work again.

After several consecutive device errors, none of them caused by a task, a resource gets
no more tasks. A child process then runs a small computation there and checks the result
(`libtask.devices.selftest`), with exponential backoff, until it is correct. A device
whose driver failed its test at the start is tested only on request. The node's watchdog
calls this module; a driver never runs in this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

import msgspec

from hetd.backoff import Backoff
from hetd.users import TRUSTED
from hetsched import events as e
from hetsched.system import SECOND
from libtask.devices.discovery import describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetd.timers import Timers
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from libtask.messages import DeviceInfo, DeviceSpec

log = logging.getLogger("hetd")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Between failure and self-test; doubled after each self-test that fails."""
PROGRAMS = 2
"""Bundled programs that fail on a device before it is taken out of service."""
TRIAL_S = 60.0
"""Drivers may compile at their first use."""
Suspicion: TypeAlias = tuple[int, str]
"""The user whose task failed, and why."""
Holder: TypeAlias = tuple[int, str]
"""A worker that cannot be killed: its user and its name."""
HOLD_S = 300.0
"""Limit for a worker that cannot be killed. After that its slot of a CPU is used again,
and an accelerator is tested: it may work nevertheless."""
LOOK_S = 0.1
"""Between two checks of a running self-test."""
IGNORED_S, LONGEST_IGNORED_S = 60, 86_400
"""Seconds for which the errors of a user's tasks on a resource do not count, after they took
it out of service and it passed its self-test; doubled with each time. Any user can make their
own workers report errors or crash, at any rate."""
MOST_IGNORED = 1000
"""Pairs of a user and a resource that are kept."""


class Trial(Protocol):
    """A running self-test, in a process of its own."""

    def outcome(self) -> str | None:
        """Return "" if the device passed, else the error; None: still running."""
        ...

    def give_up(self) -> None:
        """Kill it, without waiting."""
        ...


class ChildTrial:
    """Tests a device in a child process."""

    def __init__(self, spec: DeviceSpec) -> None:
        self._name = spec.name
        described = msgspec.json.encode(spec).decode()
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-m", "libtask.devices.selftest", described, "--forget"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._errors = cast("IO[bytes]", self._process.stderr)
        # A process of the driver may hold the other end open: never wait for it.
        os.set_blocking(self._errors.fileno(), False)

    def outcome(self) -> str | None:
        status = self._process.poll()
        if status is None:
            return None
        with self._errors as errors:
            told = errors.read() or b""
        fault = describe_failure(status, told) if status else ""
        return fault.removeprefix(f"{self._name}: ")

    def give_up(self) -> None:
        self._process.kill()


@dataclass(slots=True)
class Failing:
    """A resource out of service.

    Attributes:
        reason: shown to users.
        pause: seconds until the next self-test.
        at: when to look next; None: when a test is requested.
        unusable: whether its driver failed a test: tests run only on request.
        trial: the running self-test; `trial_ends`: its deadline.
        holder: uid and name of the worker that cannot be killed: no self-test before
            it has ended, or `at`.
        reporters: users whose tasks failed there.

    """

    reason: str
    pause: float
    at: Nanoseconds | None
    unusable: bool = False
    trial: Trial | None = None
    trial_ends: Nanoseconds = 0
    holder: Holder | None = None
    reporters: frozenset[int] = frozenset()


@dataclass(slots=True)
class Check:
    """A requested self-test of a resource in service."""

    trial: Trial
    ends: Nanoseconds
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Held:
    """A slot that a worker blocks.

    Attributes:
        reason: shown to users.
        until: when it is used again nevertheless.

    """

    reason: str
    until: Nanoseconds


class Health:
    """Tracks failing resources.

    Args:
        specs: how each resource is opened, by name.
        most: consecutive errors after which a resource is taken out of service.
        timers: of the daemon.
        try_device: starts a self-test.

    """

    def __init__(
        self,
        specs: dict[str, DeviceSpec],
        most: int,
        timers: Timers,
        try_device: Callable[[DeviceSpec], Trial] = ChildTrial,
    ) -> None:
        self._specs = specs
        self._most = most
        self._timers = timers
        self.try_device = try_device
        self._errors = dict.fromkeys(specs, 0)
        self._reporters: dict[str, set[int]] = {name: set() for name in specs}
        """Users whose tasks had these errors."""
        self._suspicions: dict[str, dict[str, Suspicion]] = {name: {} for name in specs}
        """Accelerator -> bundled programs that failed there, and why."""
        self._ignored = Backoff[tuple[int, str]](
            IGNORED_S * SECOND, LONGEST_IGNORED_S * SECOND, MOST_IGNORED
        )
        """Users whose errors on a resource do not count."""
        self._failing: dict[str, Failing] = {}
        self._checks: dict[str, Check] = {}
        self._holding: dict[str, dict[Holder, Held]] = {name: {} for name in specs}
        """Workers that cannot be killed and block a slot."""

    def reason(self, resource: str) -> str:
        """Return why a resource, or a part of it, is out of service; empty: it is in service."""
        failing = self._failing.get(resource)
        if failing is not None:
            return failing.reason
        holding = [held.reason for held in self._holding[resource].values()]
        return f"slots lost: {len(holding)}; {'; '.join(holding)}" if holding else ""

    def unusable(self, resource: str) -> bool:
        """Whether its driver failed its self-test, at the start or since."""
        failing = self._failing.get(resource)
        return failing is not None and failing.unusable

    def testing(self, resource: str) -> bool:
        """Whether a self-test is running or about to start."""
        failing = self._failing.get(resource)
        begun = failing is not None and (failing.trial or failing.at is not None)
        return resource in self._checks or bool(begun and self.unusable(resource))

    def take_out_unusable(self, devices: Iterable[DeviceInfo]) -> list[Event]:
        """Take the resources out of service that discovery found unusable."""
        events: list[Event] = []
        for device in devices:
            if device.state == "unusable":
                failing = Failing(device.reason, FIRST_PAUSE_S, None, unusable=True)
                self._failing[device.spec.name] = failing
                events.append(e.ResourceLost(device.spec.name, device.reason))
        return events

    def test(self, resource: str, now: Nanoseconds) -> None:
        """Start a self-test, unless one is running or a worker blocks the resource."""
        failing = self._failing.get(resource)
        if failing is not None:
            if failing.trial is None and failing.holder is None:
                failing.at = now
        elif resource not in self._checks:
            self._begin_check(resource, now)
        self._set_timer()

    def worked(self, resource: str) -> None:
        """Reset the errors of a resource, as a task succeeded there."""
        self._errors[resource] = 0
        self._reporters[resource].clear()

    def failed(
        self, resource: str, error: str, uid: int, now: Nanoseconds
    ) -> list[Event]:
        """Count a device's error in a task of a user; return the events for the resource."""
        if self._is_ignored(uid, resource, now):
            return []
        self._errors[resource] += 1
        self._reporters[resource].add(uid)
        number = self._errors[resource]
        if number < self._most or resource in self._failing:
            return []
        reason = f"{number} device errors in a row, the last one: {error}"
        return self._take_out_for(resource, reason, self._reporters[resource], now)

    def program_failed(
        self, resource: str, app: str, why: Suspicion, now: Nanoseconds
    ) -> list[Event]:
        """Record that a bundled program failed; two of them are the device's fault.

        A CPU stays in service: it has no driver to test, and tasks need it.
        """
        spec = self._specs.get(resource)
        if spec is None or spec.kind == "cpu" or resource in self._failing:
            return []
        if self._is_ignored(why[0], resource, now):
            return []
        known = self._suspicions[resource]
        known[app] = why
        if len(known) < PROGRAMS:
            return []
        each = "; ".join(f"{name}: {reason}" for name, (_, reason) in known.items())
        reporters = {uid for uid, _ in known.values()}
        known.clear()
        text = f"{PROGRAMS} programs of hetd failed on it: {each}"
        return self._take_out_for(resource, text, reporters, now)

    def program_worked(self, resource: str, app: str) -> None:
        """Forget the failure of a program on a resource."""
        self._suspicions.get(resource, {}).pop(app, None)

    def blocked(
        self, resource: str, holder: Holder, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Record that a worker on a resource with one slot cannot be killed."""
        if resource in self._failing:
            return []
        failing = Failing(reason, FIRST_PAUSE_S, now, holder=holder)
        lost = self._take_out(resource, failing, now)
        failing.at = now + int(HOLD_S * SECOND)
        self._set_timer()
        return lost

    def slot_blocked(
        self, resource: str, holder: Holder, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Record that a worker on a resource with several slots cannot be killed."""
        log.error("%s: a slot is lost for %g s: %s", resource, HOLD_S, reason)
        until = now + int(HOLD_S * SECOND)
        self._holding[resource][holder] = Held(reason, until)
        self._set_timer()
        return [self._slots_of(resource)]

    def worker_left(self, uid: int, name: str, now: Nanoseconds) -> list[Event]:
        """Free the resources that a worker blocked; test a whole resource first."""
        for failing in self._failing.values():
            if failing.holder == (uid, name):
                failing.holder = None
                failing.at = now
                self._set_timer()
        return [
            self._slots_of(resource)
            for resource, holding in self._holding.items()
            if holding.pop((uid, name), None) is not None
        ]

    def trust(self, resource: str) -> None:
        """Put a resource back into service, as an administrator asserts that it works."""
        self.worked(resource)
        failing = self._failing.pop(resource, None)
        if failing is not None and failing.trial is not None:
            failing.trial.give_up()

    def tick(self, now: Nanoseconds) -> list[Event]:
        """Continue the self-tests; return events of resources and slots that are back."""
        events: list[Event] = []
        for name, failing in list(self._failing.items()):
            if failing.at is not None and failing.at <= now:
                failing.holder = None
                events += self._look(name, failing, now)
        for name, check in list(self._checks.items()):
            if check.at <= now:
                events += self._look_at_check(name, check, now)
        for name, holding in self._holding.items():
            over = [holder for holder, held in holding.items() if held.until <= now]
            for holder in over:
                log.warning(
                    "%s: a slot is back in service: %s", name, holding.pop(holder)
                )
            if over:
                events.append(self._slots_of(name))
        self._set_timer()
        return events

    def close(self) -> None:
        """Kill the running self-tests."""
        for failing in self._failing.values():
            if failing.trial is not None:
                failing.trial.give_up()
        for check in self._checks.values():
            check.trial.give_up()

    # ------------------------------------------------------------ steps

    def _set_timer(self) -> None:
        """Continue at the earliest instant at which something is due."""
        waits = [each.at for each in self._checks.values()]
        waits += [each.at for each in self._failing.values() if each.at is not None]
        for holding in self._holding.values():
            waits += [held.until for held in holding.values()]
        self._timers.set("health", min(waits, default=None), self.tick)

    def _slots_of(self, resource: str) -> Event:
        holding = len(self._holding[resource])
        return e.SlotsBlocked(resource, holding, self.reason(resource))

    def _take_out(
        self, resource: str, failing: Failing, now: Nanoseconds
    ) -> list[Event]:
        failing.at = now + int(failing.pause * SECOND)
        self._failing[resource] = failing
        self._set_timer()
        log.warning("%s is out of service: %s", resource, failing.reason)
        return [e.ResourceLost(resource, failing.reason)]

    def _take_out_for(
        self, resource: str, reason: str, reporters: Iterable[int], now: Nanoseconds
    ) -> list[Event]:
        """Take a resource out of service on which users' tasks failed."""
        users = frozenset(reporters)
        failing = Failing(reason, FIRST_PAUSE_S, now, reporters=users)
        return self._take_out(resource, failing, now)

    def _is_ignored(self, uid: int, resource: str, now: Nanoseconds) -> bool:
        """Whether the errors of a user's tasks on a resource do not count now."""
        return self._ignored.lasts((uid, resource), now)

    def _ignore(self, users: Iterable[int], resource: str, now: Nanoseconds) -> None:
        """Let errors of users' tasks on a resource not count for a while: it passed its self-test.

        Those of root and of the daemon's own user always count.
        """
        for uid in sorted(frozenset(users) - TRUSTED):
            pause = self._ignored.begin((uid, resource), now)
            if pause is not None:
                log.warning(
                    "%s: errors of tasks of uid %d there do not count for %g s, as it "
                    "passed its self-test",
                    *(resource, uid, pause / SECOND),
                )

    def _look(self, name: str, failing: Failing, now: Nanoseconds) -> list[Event]:
        if failing.trial is None:
            self._begin_trial(name, failing, now)
            return []
        outcome = failing.trial.outcome()
        if outcome is None and now < failing.trial_ends:
            failing.at = now + int(LOOK_S * SECOND)
            return []
        if outcome == "":
            del self._failing[name]
            self.worked(name)
            self._ignore(failing.reporters, name, now)
            log.info("%s passed its self-test and is back in service", name)
            return [e.ResourceRecovered(name)]
        self._note_failure(failing, outcome, now)
        log.warning("%s: %s", name, failing.reason)
        return []

    def _begin_check(self, name: str, now: Nanoseconds) -> None:
        try:
            trial = self.try_device(self._specs[name])
        except OSError as error:  # no process for it: not the fault of the device
            log.warning("cannot test %s: %s", name, error.strerror)
            return
        self._checks[name] = Check(trial, now + int(TRIAL_S * SECOND), now)

    def _look_at_check(self, name: str, check: Check, now: Nanoseconds) -> list[Event]:
        outcome = check.trial.outcome()
        if outcome is None and now < check.ends:
            check.at = now + int(LOOK_S * SECOND)
            return []
        del self._checks[name]
        if outcome == "" or name in self._failing:
            return []
        if outcome is None:
            check.trial.give_up()
        reason = outcome or f"no answer in {TRIAL_S:g} s"
        events = self._take_out(name, Failing(reason, 0, now, unusable=True), now)
        self._failing[name].at = None
        return events

    def _begin_trial(self, name: str, failing: Failing, now: Nanoseconds) -> None:
        try:
            failing.trial = self.try_device(self._specs[name])
        except OSError as error:  # no process for it: not the fault of the device
            self._note_failure(failing, f"cannot start: {error.strerror}", now)
            return
        failing.trial_ends = now + int(TRIAL_S * SECOND)
        failing.at = now + int(LOOK_S * SECOND)

    def _note_failure(
        self, failing: Failing, outcome: str | None, now: Nanoseconds
    ) -> None:
        """Double the pause before the next self-test; the users who reported errors were right."""
        failing.reporters = frozenset()
        if outcome is None and failing.trial is not None:
            failing.trial.give_up()
        failing.trial = None
        failing.pause = min(LONGEST_PAUSE_S, 2 * failing.pause)
        failing.at = now + int(failing.pause * SECOND)
        what = outcome or f"no answer in {TRIAL_S:g} s"
        if failing.unusable:
            failing.reason, failing.at = what, None
            return
        failing.reason = f"self-test failed: {what}; retrying in {failing.pause:g} s"
