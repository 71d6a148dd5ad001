"""Policies of other packages: what they may break, and how the daemon goes on without them.

Such a policy runs in hetd's process and gets the scheduler's state to read. If it changes it, the
records of tasks contradict each other, and no decision can follow from them. The runtime checks
them now and then while such a policy decides. Where they do not agree, hetd starts again from its
store, with `FALLBACK` in place of the policy (`hetd.__main__`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.policy import StateChangedError, is_foreign
from libtask.errors import BugError, HetError
from libtask.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.timers import Timers
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from hetsched.policy import Policy
    from hetsched.scheduler import Scheduler

FALLBACK = "finish-time"
"""Policy that replaces one of another package after an error."""
CHECK_SHARE = 20
"""The checks take one part in this many of the time: each looks at all tasks."""


class ForeignPolicy:
    """Checks the scheduler's state while a policy of another package decides.

    Attributes:
        decides: whether the present policy comes from another package.

    """

    def __init__(self, scheduler: Scheduler, timers: Timers) -> None:
        self._scheduler = scheduler
        self._timers = timers
        self._next: Nanoseconds = 0
        """Instant of the next check, at the earliest."""
        self._suspect = ""
        """Class of the last one that decided since the start: what it did may show later."""
        self.decides = False
        self.adopt(scheduler.policy)

    def adopt(self, policy: Policy) -> None:
        """Note whose policy decides from now on."""
        self.decides = is_foreign(policy)
        if self.decides:
            self._suspect = type(policy).__name__
            self._next = 0

    def check(self) -> None:
        """Check the state if it is time to, or else later. Called after each decision.

        Raises:
            BugError: an invariant does not hold.

        """
        began = self._timers.clock.now()
        if began < self._next:
            self._timers.set("check of a policy", self._next, self._check_later)
            return
        self._scheduler.check()
        now = self._timers.clock.now()
        self._next = now + CHECK_SHARE * (now - began)

    def _check_later(self, _now: Nanoseconds) -> Sequence[Event]:
        if self.decides:
            self.check()
        return ()

    def fault_in(self, error: Exception) -> str:
        """Return what such a policy did, if that explains an error which ends the daemon.

        Empty: no such policy has decided, or the error is another one.
        """
        if isinstance(error, StateChangedError):
            return one_line(error)
        expected = isinstance(error, HetError) and not isinstance(error, BugError)
        if expected or not self._suspect:
            return ""
        kind = "" if isinstance(error, BugError) else f"{type(error).__name__}: "
        found = f"{kind}{one_line(error)}".rstrip(": ")
        return f"{self._suspect}: the state that it may only read is contradictory: {found}"

    def demand_blameless(self, error: Exception) -> None:
        """Check the state after an error that may come from what a policy changed.

        Raises:
            BugError: it is not consistent.

        """
        if isinstance(error, StateChangedError):
            raise error
        if self._suspect:
            self._scheduler.check()
