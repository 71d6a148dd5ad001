"""Leases: tasks whose submitter falls silent are held until it is heard of again.

A submitter that has lost its network or died cannot stop its tasks; hetd does it for it.
A lease is a name of a user's, and a period; a submit and `Renew` begin the period again. At
its end hetd holds the tasks of the lease that are not held, in slices, and marks them as
*fenced*; the next renewal releases those, and no others. A hold by the user replaces the
mark; a release takes a fenced task out of its lease.

The time of the last renewal is stored, so that a restart of hetd does not begin the period
again. Requests call this, and the runtime at its start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.system import SECOND
from hetsched.tasks import State
from libtask.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.timers import Timers
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from libtask.messages import TaskSpec

log = logging.getLogger("hetd")

LeaseKey: TypeAlias = tuple[int, str]
"""uid, name."""
STORED = "lease"
"""Kind of the stored settings; the subject is `UID/NAME`."""
MOST_LEASES = 64
"""Leases of a user with unfinished tasks."""
SLICE = 100
"""Tasks that one turn of the loop holds or releases."""
STORED_AGAIN = 0.25
"""Share of the period after which a renewal is stored again: each costs a write."""


class StoredLease(msgspec.Struct, frozen=True):
    """A lease in the store.

    Attributes:
        period_s: the period, in seconds.
        renewed: time of the last renewal, seconds since the epoch.

    """

    period_s: float
    renewed: float


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(StoredLease).decode


@dataclass(slots=True)
class SubmitterLease:
    """A lease.

    Attributes:
        period_s: seconds of silence after which its tasks are held.
        due: the instant of that.
        stored: instant of the last renewal that was stored.
        over: whether the submitter is silent, and its tasks are held.
        left: tasks that are still to be held, or released.

    """

    period_s: float
    due: Nanoseconds = 0
    stored: Nanoseconds | None = None
    over: bool = False
    left: list[int] = field(default_factory=list)


class SubmitterLeases:
    """The leases of all users with unfinished tasks."""

    def __init__(self, journal: Journal, timers: Timers) -> None:
        self._journal = journal
        self._timers = timers
        self._clock = timers.clock
        self._leases: dict[LeaseKey, SubmitterLease] = {}

    # ------------------------------------------------------------ requests

    def check(self, owner: int, specs: Sequence[TaskSpec]) -> None:
        """Refuse tasks that would give a user too many leases.

        Raises:
            NotAllowedError: says how many there may be.

        """
        names = {spec.lease for spec in specs if spec.lease_s}
        if not names:
            return
        self._drop_unused()
        own = {name for uid, name in self._leases if uid == owner}
        if len(own | names) > MOST_LEASES:
            raise NotAllowedError(
                f"lease: a user has {MOST_LEASES} leases with unfinished tasks at most"
            )

    def submitted(self, owner: int, specs: Sequence[TaskSpec]) -> None:
        """Begin the periods of the leases of new tasks; a lease gets the newest period."""
        periods = {spec.lease: spec.lease_s for spec in specs if spec.lease_s}
        for name, period_s in periods.items():
            lease = self._leases.setdefault((owner, name), SubmitterLease(period_s))
            if lease.period_s != period_s:
                lease.period_s, lease.stored = period_s, None
            self._renew((owner, name), lease)

    def renew(self, owner: int, name: str) -> tuple[int, int]:
        """Begin the period of a lease again, and release the tasks that it held.

        Returns:
            The number of its unfinished tasks, and of those that are released.

        """
        key = (owner, name)
        tasks = self._journal.leased.get(key, {})
        lease = self._leases.get(key)
        if lease is None:
            return 0, 0
        fenced = sum(page.fenced for page in tasks.values()) if lease.over else 0
        self._renew(key, lease)
        return len(tasks), fenced

    def ordered(self, page: TaskPage, verb: str) -> None:
        """Note that a user holds or releases a task: the lease does so no longer."""
        if not page.fenced:
            return
        page.fenced, page.reason = False, None
        if verb == "release":
            self._journal.leave_lease(page)

    def left_s(self, page: TaskPage) -> float | None:
        """Return the seconds until a task is held; None: it has no lease, or is over."""
        lease = self._leases.get((page.owner, page.spec.lease))
        if not page.spec.lease_s or lease is None or lease.over:
            return None
        return max((lease.due - self._clock.now()) / SECOND, 0.0)

    # ------------------------------------------------------------ periods

    def recall(self) -> None:
        """Continue the periods that ran when hetd stopped; called once at its start."""
        for (what, subject), stored in self._journal.settings().items():
            if what != STORED:
                continue
            uid, _, name = subject.partition("/")
            if (int(uid), name) in self._journal.leased:
                self._continue((int(uid), name), decode(stored))
            else:
                self._journal.batch.settings[STORED, subject] = None
        for key, tasks in self._journal.leased.items():
            if key not in self._leases:
                period_s = next(iter(tasks.values())).spec.lease_s
                self._continue(key, StoredLease(period_s, self._clock.wall()))

    def _continue(self, key: LeaseKey, stored: StoredLease) -> None:
        silent_s = max(self._clock.wall() - stored.renewed, 0.0)
        left_s = max(stored.period_s - silent_s, 0.0)
        now = self._clock.now()
        lease = SubmitterLease(stored.period_s, now + int(left_s * SECOND), now)
        self._leases[key] = lease
        self._await(key, lease)

    def _renew(self, key: LeaseKey, lease: SubmitterLease) -> None:
        now = self._clock.now()
        period = int(lease.period_s * SECOND)
        lease.due = now + period
        stored = lease.stored
        if stored is None or lease.over or now - stored >= STORED_AGAIN * period:
            self._store(key, lease)
        if lease.over:
            log.info("%s is renewed; its tasks are released", _named(key))
            lease.over = False
            lease.left = list(self._journal.leased.get(key, ()))
            self._timers.set(f"{_named(key)}: release", now, partial(self._free, key))
        self._await(key, lease)

    def _store(self, key: LeaseKey, lease: SubmitterLease) -> None:
        lease.stored = self._clock.now()
        row = StoredLease(lease.period_s, self._clock.wall())
        self._journal.batch.settings[STORED, _subject(key)] = _encode(row)

    def _await(self, key: LeaseKey, lease: SubmitterLease) -> None:
        self._timers.set(_named(key), lease.due, partial(self._end, key))

    def _end(self, key: LeaseKey, now: Nanoseconds) -> Sequence[Event]:
        """Hold some tasks of a lease that is over, and the others in later turns."""
        lease = self._leases[key]
        if key not in self._journal.leased:
            self._drop(key)
            return ()
        if not lease.over:
            lease.over, lease.left = True, list(self._journal.leased[key])
            text = "%s is over: its submitter was silent for %g s; its tasks are held"
            log.info(text, _named(key), lease.period_s)
        some = self._some_of(key, lease)
        if lease.left:
            self._timers.set(_named(key), now, partial(self._end, key))
        why = f"held: its submitter was silent for {lease.period_s:g} s"
        return [self._held(page, why) for page in some if _runs_freely(page)]

    def _held(self, page: TaskPage, why: str) -> Event:
        page.fenced, page.reason = True, why
        self._journal.save(page)
        return e.TaskHeld(TaskId(page.id))

    def _free(self, key: LeaseKey, now: Nanoseconds) -> Sequence[Event]:
        """Release some of the tasks that a lease held, and the others in later turns."""
        lease = self._leases.get(key)
        if lease is None or lease.over:
            return ()
        some = self._some_of(key, lease)
        if lease.left:
            self._timers.set(f"{_named(key)}: release", now, partial(self._free, key))
        return [self._freed(page) for page in some if page.fenced]

    def _freed(self, page: TaskPage) -> Event:
        page.fenced, page.reason = False, None
        self._journal.save(page)
        return e.TaskReleased(TaskId(page.id))

    def _some_of(self, key: LeaseKey, lease: SubmitterLease) -> list[TaskPage]:
        """Take the next tasks of a lease that are left to hold or release."""
        some, lease.left = lease.left[:SLICE], lease.left[SLICE:]
        tasks = self._journal.leased.get(key, {})
        return [tasks[task] for task in some if task in tasks]

    def _drop_unused(self) -> None:
        for key in [key for key in self._leases if key not in self._journal.leased]:
            self._drop(key)

    def _drop(self, key: LeaseKey) -> None:
        """Forget a lease without unfinished tasks."""
        del self._leases[key]
        self._timers.remove(_named(key))
        self._journal.batch.settings[STORED, _subject(key)] = None


def _runs_freely(page: TaskPage) -> bool:
    """Whether nobody holds a task, and it is not about to end."""
    runtime = page.runtime
    held = runtime.state is State.HELD or runtime.holding
    return not (page.fenced or held or runtime.cancelling is not None)


def _subject(key: LeaseKey) -> str:
    return f"{key[0]}/{key[1]}"


def _named(key: LeaseKey) -> str:
    """Name a lease for the log, and its timer."""
    return f"lease {key[1]!r} of uid {key[0]}"
