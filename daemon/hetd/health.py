"""Health: resources that fail are taken out of use, tried, and taken back.

Too many errors of a device in a row, none of them a task's own fault, and it is given
no task any more. Then a child process computes something small there and checks the
result (`libtask.devices.trial`), again and again, less and less often, until it is
right. Called by the node's discipline; a driver never runs in this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, cast

import msgspec

from hetd.core import events as e
from hetd.core.system import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.core.events import Event, Nanoseconds
    from libtask.messages import DeviceSpec

log = logging.getLogger("hetd")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Between failure and trial; doubled after each trial that fails."""
TRIAL_S = 60.0
"""Drivers may compile at their first use."""
Holder: TypeAlias = tuple[int, str]
"""A worker that nothing ends: its user and its name."""
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
        described = msgspec.json.encode(spec).decode()
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-m", "libtask.devices.trial", described],
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
            told = (errors.read() or b"").decode(errors="replace").splitlines()
        if status == 0:
            return ""
        return told[-1] if told else f"its trial ended with status {status}"

    def give_up(self) -> None:
        self._process.kill()


@dataclass(slots=True)
class Failing:
    """A resource out of use.

    Attributes:
        reason: what users are told.
        pause: seconds until the next trial.
        at: when to look next.
        trial: the one under way, and when patience with it ends.
        holder: the worker that cannot be ended, by uid and name: no trial before it is.

    """

    reason: str
    pause: float
    at: Nanoseconds
    trial: Trial | None = None
    trial_ends: Nanoseconds = 0
    holder: Holder | None = None


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
        self._failing: dict[str, Failing] = {}
        self._holding: dict[str, dict[Holder, str]] = {name: {} for name in specs}
        """Workers that cannot be ended and hold on to a slot, and what is told of them."""

    def reason(self, resource: str) -> str:
        """Return why a resource, or a part of it, is out of use; empty: it is not."""
        failing = self._failing.get(resource)
        if failing is not None:
            return failing.reason
        holding = self._holding[resource].values()
        return f"slots lost: {len(holding)}; {'; '.join(holding)}" if holding else ""

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

    def blocked(
        self, resource: str, holder: Holder, reason: str, now: Nanoseconds
    ) -> list[Event]:
        """Take note of a worker on a resource of one slot that cannot be ended."""
        if resource in self._failing:
            return []
        failing = Failing(reason, FIRST_PAUSE_S, now, holder=holder)
        return self._take_out(resource, failing, now)

    def slot_blocked(self, resource: str, holder: Holder, reason: str) -> list[Event]:
        """Take note of a worker on a resource of several that cannot be ended."""
        log.error("%s: a slot is lost: %s", resource, reason)
        self._holding[resource][holder] = reason
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
        waits = [each.at for each in self._failing.values() if each.holder is None]
        return min(waits, default=None)

    def tick(self, now: Nanoseconds) -> list[Event]:
        """Go on with the trials; return which resources are back."""
        events: list[Event] = []
        for name, failing in list(self._failing.items()):
            if failing.holder is None and failing.at <= now:
                events += self._look(name, failing, now)
        return events

    def close(self) -> None:
        """End the trials under way."""
        for failing in self._failing.values():
            if failing.trial is not None:
                failing.trial.give_up()

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
        failing.reason = f"tried in vain: {what}; the next trial is in"
        failing.reason += f" {failing.pause:g} s"
