"""Health: resources that fail are taken out of use, tried, and taken back.

Too many errors of a device in a row, none of them a task's own fault, and it is given
no task any more. Then a child process computes something small there and checks the
result (`libtask.devices.selftest`), again and again, less and less often, until it is
right. A device whose driver did not pass at the start is tested only when somebody asks.
Called by the node's watchdog; a driver never runs in this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

import msgspec

from hetsched import events as e
from hetsched.system import SECOND
from libtask.devices.discovery import describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from libtask.messages import DeviceInfo, DeviceSpec

log = logging.getLogger("hetd")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Between failure and trial; doubled after each trial that fails."""
PROGRAMS = 2
"""Programs of the box that fail on a device before that is the device's fault."""
TRIAL_S = 60.0
"""Drivers may compile at their first use."""
Holder: TypeAlias = tuple[int, str]
"""A worker that nothing ends: its user and its name."""
HOLD_S = 300.0
"""For a worker that cannot be ended to be gone. Then its slot of a CPU is used again,
whatever it does there, and an accelerator is tried: it may compute all the same."""
LOOK_S = 0.1
"""Between two looks at a trial under way."""


class Trial(Protocol):
    """A trial under way, in a process of its own."""

    def outcome(self) -> str | None:
        """Return "" when the device computed right, else why not; None: not yet."""
        ...

    def give_up(self) -> None:
        """End it, without waiting for that."""
        ...


class ChildTrial:
    """Tries a device in a child process."""

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
        # What a driver started may hold the other end open: never wait for it.
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
    """A resource out of use.

    Attributes:
        reason: what users are told.
        pause: seconds until the next trial.
        at: when to look next; None: when a test is asked for.
        unusable: whether its driver never passed: no trial comes by itself.
        trial: the one under way, and when patience with it ends.
        holder: the worker that cannot be ended, by uid and name: no trial before it is,
            or `at`.

    """

    reason: str
    pause: float
    at: Nanoseconds | None
    unusable: bool = False
    trial: Trial | None = None
    trial_ends: Nanoseconds = 0
    holder: Holder | None = None


@dataclass(slots=True)
class Check:
    """A self-test, somebody asked for, of a resource in use."""

    trial: Trial
    ends: Nanoseconds
    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class Held:
    """A slot that a worker holds on to.

    Attributes:
        reason: what users are told.
        until: when it is used again all the same.

    """

    reason: str
    until: Nanoseconds


class Health:
    """Which resources fail.

    Args:
        specs: how each resource is opened, by name.
        most: errors in a row after which a resource is taken out of use.
        try_device: begins a trial.

    """

    def __init__(
        self,
        specs: dict[str, DeviceSpec],
        most: int,
        try_device: Callable[[DeviceSpec], Trial] = ChildTrial,
    ) -> None:
        self._specs = specs
        self._most = most
        self.try_device = try_device
        self._errors = dict.fromkeys(specs, 0)
        self._suspicions: dict[str, dict[str, str]] = {name: {} for name in specs}
        """Programs of the box that failed on each accelerator, and why."""
        self._failing: dict[str, Failing] = {}
        self._checks: dict[str, Check] = {}
        self._holding: dict[str, dict[Holder, Held]] = {name: {} for name in specs}
        """Workers that cannot be ended and hold on to a slot."""

    def reason(self, resource: str) -> str:
        """Return why a resource, or a part of it, is out of use; empty: it is not."""
        failing = self._failing.get(resource)
        if failing is not None:
            return failing.reason
        holding = [held.reason for held in self._holding[resource].values()]
        return f"slots lost: {len(holding)}; {'; '.join(holding)}" if holding else ""

    def unusable(self, resource: str) -> bool:
        """Whether its driver did not pass its self-test, at the start or since."""
        failing = self._failing.get(resource)
        return failing is not None and failing.unusable

    def testing(self, resource: str) -> bool:
        """Whether a self-test is under way, or about to begin."""
        failing = self._failing.get(resource)
        begun = failing is not None and (failing.trial or failing.at is not None)
        return resource in self._checks or bool(begun and self.unusable(resource))

    def take_out_unusable(self, devices: Iterable[DeviceInfo]) -> list[Event]:
        """Take the resources out of use that discovery found unusable."""
        events: list[Event] = []
        for device in devices:
            if device.state == "unusable":
                failing = Failing(device.reason, FIRST_PAUSE_S, None, unusable=True)
                self._failing[device.spec.name] = failing
                events.append(e.ResourceLost(device.spec.name, device.reason))
        return events

    def test(self, resource: str, now: Nanoseconds) -> None:
        """Begin a self-test, unless one is under way or a worker is in its way."""
        failing = self._failing.get(resource)
        if failing is not None:
            if failing.trial is None and failing.holder is None:
                failing.at = now
        elif resource not in self._checks:
            self._begin_check(resource, now)

    def worked(self, resource: str) -> None:
        """Take note that a task ended well on a resource: its errors are forgotten."""
        self._errors[resource] = 0

    def failed(self, resource: str, error: str, now: Nanoseconds) -> list[Event]:
        """Take note of a device's error; return what that means for the resource."""
        self._errors[resource] += 1
        number = self._errors[resource]
        if number < self._most or resource in self._failing:
            return []
        reason = f"{number} device errors in a row, the last one: {error}"
        return self._take_out(resource, Failing(reason, FIRST_PAUSE_S, now), now)

    def program_failed(
        self, resource: str, app: str, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Take note that a program of the box failed; two of them are the device's fault.

        A CPU has no driver that could be tried; all tasks would be lost with it.
        """
        spec = self._specs.get(resource)
        if spec is None or spec.kind == "cpu" or resource in self._failing:
            return []
        known = self._suspicions[resource]
        known[app] = reason
        if len(known) < PROGRAMS:
            return []
        each = "; ".join(f"{name}: {why}" for name, why in known.items())
        known.clear()
        text = f"{PROGRAMS} programs of hetd failed on it: {each}"
        return self._take_out(resource, Failing(text, FIRST_PAUSE_S, now), now)

    def program_worked(self, resource: str, app: str) -> None:
        """Take note that nothing is known any more against a program on a resource."""
        self._suspicions.get(resource, {}).pop(app, None)

    def blocked(
        self, resource: str, holder: Holder, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Take note of a worker on a resource of one slot that cannot be ended."""
        if resource in self._failing:
            return []
        failing = Failing(reason, FIRST_PAUSE_S, now, holder=holder)
        lost = self._take_out(resource, failing, now)
        failing.at = now + int(HOLD_S * SECOND)
        return lost

    def slot_blocked(
        self, resource: str, holder: Holder, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Take note of a worker on a resource of several that cannot be ended."""
        log.error("%s: a slot is lost for %g s: %s", resource, HOLD_S, reason)
        until = now + int(HOLD_S * SECOND)
        self._holding[resource][holder] = Held(reason, until)
        return [self._slots_of(resource)]

    def worker_left(self, uid: int, name: str, now: Nanoseconds) -> list[Event]:
        """Take what this worker held on to back; a whole resource is tried first."""
        for failing in self._failing.values():
            if failing.holder == (uid, name):
                failing.holder = None
                failing.at = now
        return [
            self._slots_of(resource)
            for resource, holding in self._holding.items()
            if holding.pop((uid, name), None) is not None
        ]

    def trust(self, resource: str) -> None:
        """Forget what was wrong: an administrator says that a resource works."""
        self._errors[resource] = 0
        failing = self._failing.pop(resource, None)
        if failing is not None and failing.trial is not None:
            failing.trial.give_up()

    def next_look(self) -> Nanoseconds | None:
        """When `tick` has something to do; None: never."""
        waits = [each.at for each in self._checks.values()]
        waits += [each.at for each in self._failing.values() if each.at is not None]
        for holding in self._holding.values():
            waits += [held.until for held in holding.values()]
        return min(waits, default=None)

    def tick(self, now: Nanoseconds) -> list[Event]:
        """Go on with the trials; return which resources and slots are back."""
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
                log.warning("%s: a slot is used again: %s", name, holding.pop(holder))
            if over:
                events.append(self._slots_of(name))
        return events

    def close(self) -> None:
        """End the trials under way."""
        for failing in self._failing.values():
            if failing.trial is not None:
                failing.trial.give_up()
        for check in self._checks.values():
            check.trial.give_up()

    # ------------------------------------------------------------ steps

    def _slots_of(self, resource: str) -> Event:
        holding = len(self._holding[resource])
        return e.SlotsBlocked(resource, holding, self.reason(resource))

    def _take_out(
        self, resource: str, failing: Failing, now: Nanoseconds
    ) -> list[Event]:
        failing.at = now + int(failing.pause * SECOND)
        self._failing[resource] = failing
        log.warning("%s is out of use: %s", resource, failing.reason)
        return [e.ResourceLost(resource, failing.reason)]

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
            self._errors[name] = 0
            log.info("%s computes right again, and is used again", name)
            return [e.ResourceRecovered(name)]
        self._note_failure(failing, outcome, now)
        log.warning("%s: %s", name, failing.reason)
        return []

    def _begin_check(self, name: str, now: Nanoseconds) -> None:
        try:
            trial = self.try_device(self._specs[name])
        except OSError as error:  # no process for it: that says nothing of the device
            log.warning("%s cannot be tested: %s", name, error.strerror)
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
        except OSError as error:  # no process for it: that says nothing of the device
            self._note_failure(failing, f"no trial: {error.strerror}", now)
            return
        failing.trial_ends = now + int(TRIAL_S * SECOND)
        failing.at = now + int(LOOK_S * SECOND)

    def _note_failure(
        self, failing: Failing, outcome: str | None, now: Nanoseconds
    ) -> None:
        """Wait longer for the next trial."""
        if outcome is None and failing.trial is not None:
            failing.trial.give_up()
        failing.trial = None
        failing.pause = min(LONGEST_PAUSE_S, 2 * failing.pause)
        failing.at = now + int(failing.pause * SECOND)
        what = outcome or f"gave no answer in {TRIAL_S:g} s"
        if failing.unusable:
            failing.reason, failing.at = what, None
            return
        failing.reason = f"tried in vain: {what}; the next trial is in"
        failing.reason += f" {failing.pause:g} s"
