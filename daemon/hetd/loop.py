"""The loop: receive, handle, commit, answer. One thread, one turn after another.

Messages of peers become events; commands to workers are sent at once; replies to clients
wait for the commit of the turn, which a writer thread does meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import hetd
from hetd.requests.budget import RequestBudget
from hetd.requests.pending import RequestQueue
from hetd.requests.subscriptions import MOST_WATCHED, MOST_WATCHES
from hetd.transport.outbox import Outbox
from hetd.transport.poller import WatchedProcess
from libtask import messages as m
from libtask.errors import BugError, InputError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetd.clock import Clock
    from hetd.config import ActiveConfig
    from hetd.lifecycle import Lifecycle
    from hetd.reports.worker_reports import WorkerReports
    from hetd.requests import Service
    from hetd.requests.out_of_space import OutOfSpace
    from hetd.requests.pending import PendingRequest
    from hetd.requests.subscriptions import Subscriptions
    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from hetd.transport.poller import Poller
    from hetd.transport.router import Envelope, Peer, Router
    from hetd.workers.pool import WorkerPool
    from hetsched.scheduler import Scheduler

log = logging.getLogger("hetd")

IDLE_MS = 2000
"""Longest wait for a message: bounds how late a missed wake-up is noticed."""

SPACE_MS = 1000
"""Between two checks for space while the disk is full."""
LAGGING_MS = 100
TELLING_NS = LAGGING_MS * 1_000_000
"""Between two attempts to reach peers that did not read, nanoseconds."""
TURN_NS = 10_000_000
"""Time limit for receiving messages in a turn, before other work and commits."""
TICK_AFTER_NS = 5_000_000
"""Time for the messages of one turn above which the turn does no other due work."""
STEPS = 4
"""Steps of requests under way in one turn, at most; each takes some milliseconds."""
STEPS_NS = 5_000_000
"""Time limit for these steps together."""
TELL_NS = 8_000_000
"""Time limit for sending durable messages in a turn; the rest follows in the next."""
GATHER_NS = 2_000_000
"""Under load, commits come at most this often: each costs some 0.1 ms of processor time
and a wait for the disk. Without load nobody waits for it."""


SOON_S = 0.0005
"""A commit waits for tasks that are expected to take less, seconds."""
HOLD_NS = 1_000_000
"""Longest wait of a commit for tasks that end soon, if there is no other work: one commit
then serves both the acknowledgement and the end. If they do not end, the acknowledgement
is late by this time."""


class Loop:
    """Receives messages, handles them, commits the changes and answers.

    `Serving` calls `turn` while `running`, then `finish`; a simulation calls them at times
    of its own.
    """

    def __init__(  # noqa: PLR0913  it calls all of them
        self,
        *,
        router: Router,
        store: Store,
        poller: Poller,
        clock: Clock,
        config: ActiveConfig,
        lifecycle: Lifecycle,
        scheduler: Scheduler,
        journal: Journal,
        pool: WorkerPool,
        runtime: Runtime,
        subscriptions: Subscriptions,
        service: Service,
        reports: WorkerReports,
        out_of_space: OutOfSpace,
    ) -> None:
        self._router = router
        self._store = store
        self._poller = poller
        self._now = clock.now
        self._config = config
        self._lifecycle = lifecycle
        self._scheduler = scheduler
        self._system = scheduler.system
        self._journal = journal
        self._pool = pool
        self._runtime = runtime
        self._counters = runtime.counters
        self._subscriptions = subscriptions
        self._service = service
        self._reports = reports
        self._out_of_space = out_of_space
        self._budget = RequestBudget()
        self._requests = RequestQueue()
        self._outbox = Outbox()
        self._tick_deferred = False
        self._askers: dict[bytes, int] = {}
        """Route -> user that waits for an answer."""
        self._next_commit = self._ordered = self._next_telling = 0
        self._held_since = 0
        """When the commit began to wait for the ends of tasks; 0: it does not wait."""

    def finish(self) -> None:
        """Commit the changes of the last turn, and send the replies.

        Requests under way are dropped: their clients repeat them to the next daemon.
        """
        self._outbox.put(self._store.flush())
        self._commit()
        self._outbox.put(self._store.flush())
        while self._outbox:
            self._answer()

    @property
    def running(self) -> bool:
        """Whether another turn is to follow."""
        return not self._lifecycle.stop_requested

    def turn(self, ended: Iterable[WatchedProcess]) -> None:
        """Do all pending work.

        Args:
            ended: processes that have ended since the last turn.

        """
        for watched in ended:
            self._on_exit(watched)
        began = self._now()
        self._receive()
        self._tick(began)
        self._carry_on()
        if self._subscriptions.lagging and self._now() >= self._next_telling:
            self._tell_laggards()
        self._runtime.watch_assigned()
        self._outbox.put(self._committed())
        if self._store.stuck is not None:
            self._out_of_space.turn()
        elif self._journal.dirty and self._store.idle and not self._may_wait():
            # before the answers leave: the disk is at work meanwhile
            self._commit()
        self._answer()

    def _tick(self, began: int) -> None:
        """Do the work that is due; in the next turn, if messages took long in this one.

        The timer that a drain of a long queue sets is due at once: the drain and its first
        part in one turn would hold the loop for twice as long.
        """
        self._tick_deferred = (
            not self._tick_deferred and self._now() - began > TICK_AFTER_NS
        )
        if not self._tick_deferred:
            self._runtime.tick()

    def _receive(self) -> None:
        """Handle received messages, up to the time limit of the turn.

        The rest is handled in the next turn: a list of all tasks may take ten
        milliseconds, while small requests wait for the commit.
        """
        began = then = self._now()
        for envelope in self._router.receive(self._is_not_read):
            self._handle(envelope)
            now = self._now()
            self._budget.charge(envelope.peer.uid, now - then, now)
            then = now
            if now - began > TURN_NS:
                return

    def _carry_on(self) -> None:
        """Continue requests about many tasks, in the order of their users' budgets."""
        began = then = self._now()
        for _ in range(STEPS):
            if self._outbox.full:
                return
            uid = self._requests.next(lambda uid: not self._is_put_off(uid))
            if uid is None:
                return
            self._step(uid)
            now = self._now()
            self._budget.charge(uid, now - then, now)
            then = now
            if now - began > STEPS_NS:
                return

    def _step(self, uid: int) -> None:
        """Do one step of a user's request, or the first of one that waited behind it."""
        line = self._requests.line(uid)
        if line.first is not None:
            self._go_on(line.first)
        else:
            envelope = line.waiting.popleft()
            self._try(envelope.peer, envelope.message)
        self._requests.drop_if_empty(uid)

    def _go_on(self, found: PendingRequest) -> None:
        """Do one step of a request; answer at its end."""
        reply: m.Message
        try:
            next(found.work)
        except StopIteration as end:
            reply = end.value
        except Exception as error:  # noqa: BLE001  as in `_try`
            reply = self._excuse(found.peer, found.request, error)
        else:
            return
        self._requests.end(found.peer.uid)
        self._reply(found.peer, found.request, reply)

    def _committed(self) -> list[tuple[bytes, m.Message]]:
        """Return what the commit that has just ended makes durable, if one has."""
        waited = not self._store.idle
        replies = self._store.committed()
        if waited and self._store.idle:
            self._service.storage_quota.apply_removals()
            self._counters.commits += 1
            self._counters.commit_ns += self._now() - self._ordered
        return replies

    def _answer(self) -> None:
        """Send durable messages, up to the time limit of the turn."""
        began = then = self._now()
        for route, messages in self._outbox.take():
            reach("loop.durable")
            self._tell(route, *messages)
            reach("loop.answered")
            then = self._charge_asker(route, then)
            if then - began > TELL_NS:
                return

    def _charge_asker(self, route: bytes, then: int) -> int:
        """Charge the time of an answer: a long list costs more than its request."""
        uid, now = self._askers.pop(route, None), self._now()
        if uid is not None:
            self._budget.charge(uid, now - then, now)
        return now

    def _tell(self, route: bytes, *messages: m.Message) -> None:
        """Send; record a peer that is gone or has too much unread."""
        if self._router.send(route, *messages):
            return
        if route in self._router.full:
            self._subscriptions.lag(route, messages)
            self._next_telling = self._now() + TELLING_NS
        else:
            self._subscriptions.remove(route)

    def _tell_laggards(self) -> None:
        """Tell lagging peers that read again how many messages they have missed."""
        self._next_telling = self._now() + TELLING_NS
        for route, missed in list(self._subscriptions.lagging.items()):
            if self._router.send(route, m.Lagged(missed)):
                del self._subscriptions.lagging[route]
            elif route not in self._router.full:
                self._subscriptions.remove(route)

    @property
    def busy(self) -> bool:
        """Whether requests are under way or answers wait to be sent."""
        return bool(self._requests or self._outbox)

    def timeout_ms(self) -> int:
        """Return the longest wait for the next turn, milliseconds."""
        commits = self._store.idle and self._journal.dirty
        if self._outbox or commits:
            return 1 if self._held_since and not self._outbox else 0
        if any(not self._is_put_off(uid) for uid in self._requests.users()):
            return 0
        if self._requests:  # their users have had their shares for now
            return self._budget.remaining_ms(self._now())
        longest = self._longest_wait_ms()
        deadline = self._runtime.next_deadline()
        if deadline is None:
            return longest
        return min(longest, max(0, (deadline - self._now()) // 1_000_000 + 1))

    def _longest_wait_ms(self) -> int:
        if self._subscriptions.lagging:
            return LAGGING_MS
        return IDLE_MS if self._store.stuck is None else SPACE_MS

    def _may_wait(self) -> bool:
        """Whether the next commit may wait for more."""
        return self._may_gather() or self._may_hold()

    def _may_gather(self) -> bool:
        """Whether the next commit may wait for more: it is early, and messages wait."""
        return self._now() < self._next_commit and self._router.waiting()

    def _may_hold(self) -> bool:
        """Whether the next commit may wait for the end of what has just been ordered."""
        if self._lifecycle.stop_requested:
            return False
        now = self._now()
        if self._held_since and now - self._held_since >= HOLD_NS:
            return False
        if self._requests or not self._system.ends_within(SOON_S):
            return False
        self._held_since = self._held_since or now
        return True

    def _commit(self) -> None:
        """Hand the changes of this turn to the writer, with the replies to send afterwards."""
        self._held_since = 0
        if not self._journal.dirty:
            return
        self._ordered = self._now()
        self._next_commit = self._ordered + GATHER_NS
        told = self._subscriptions.address(
            self._journal.changes, self._service.rights.is_admin
        )
        self._journal.batch.replies.extend(told)
        self._journal.changes.clear()
        self._journal.watched = bool(self._subscriptions)
        batch = self._journal.take_batch()
        self._service.storage_quota.cut(
            {row[3] for row in batch.tasks} | {k[0] for k in batch.keys}
        )
        self._store.submit(batch)
        self._journal.forget_oldest()

    # ------------------------------------------------------------ messages

    def _handle(self, envelope: Envelope) -> None:
        peer, message = envelope.peer, envelope.message
        if peer.uid < 0 or isinstance(message, InputError):
            self._counters.refused += 1
            text = str(message) if isinstance(message, InputError) else "unknown peer"
            request = message.request if isinstance(message, m.MalformedError) else 0
            self._router.send(peer.route, m.Error(request, "bad-input", text))
            return
        if isinstance(message, m.Request) and self._waits(envelope, message):
            return
        self._try(peer, message)

    def _try(self, peer: Peer, message: Any) -> None:
        """Handle a message; the daemon survives an error in hetd."""
        try:
            self._dispatch(peer, message)
        except Exception as error:  # noqa: BLE001  any error is logged
            self._router.send(peer.route, self._excuse(peer, message, error))

    def _excuse(self, peer: Peer, message: m.Message, error: Exception) -> m.Error:
        """Log a bug, and make sure that the daemon may continue."""
        kind = type(message).__name__
        log.error("a %s from uid %d failed", kind, peer.uid, exc_info=error)
        self._demand_whole()
        number = message.request if isinstance(message, m.Request) else 0
        return m.Error(number, "bug", "internal error of hetd; its log has the story")

    def _waits(self, envelope: Envelope, message: m.Request) -> bool:
        """Let a request wait for the end of another of its user, or put it off."""
        uid = envelope.peer.uid
        # a bare request is one that was not even read
        if type(message) is not m.Request:
            if self._requests.is_blocked(uid) and self._requests.put(envelope):
                return True
            if not self._requests.is_blocked(uid) and not self._is_put_off(uid):
                return False
        self._put_off(envelope.peer, message)
        return True

    def _put_off(self, peer: Peer, message: Any) -> None:
        text = "busy: rate limit for your user reached, retry"
        if self._router.strained:
            text = "busy: not enough memory for large requests, retry later"
        self._router.send(peer.route, m.Error(message.request, "busy", text))

    def _is_not_read(self, uid: int) -> bool:
        """Whether a large request of a user is put off unread."""
        return self._requests.is_blocked(uid) or self._is_put_off(uid)

    def _is_put_off(self, uid: int) -> bool:
        """Whether a user has used up their request budget."""
        return self._budget.is_exhausted(uid, self._now())

    def _demand_whole(self) -> None:
        """Check that a failed message left a consistent state.

        Raises:
            BugError: it did not; hetd has to restart from the durable state.

        """
        self._scheduler.check()
        known, live = self._system.tasks, self._journal.live
        if known.keys() != live.keys():
            odd = sorted(known.keys() ^ live.keys())[:10]
            raise BugError(f"scheduler and journal differ about tasks {odd}")

    def _dispatch(self, peer: Peer, message: m.ToDaemon | m.Request) -> None:
        match message:
            case m.Register():
                self._on_hello(peer, message)
            case m.Subscribe():
                reply = self._on_watch(peer, message)
                self._journal.batch.replies.append((peer.route, reply))
            case m.Request():
                self._ask(peer, message)
            case m.WorkerExited():
                self._reports.worker_exited(peer, message)
            case m.AttachmentsHeld() | m.ResultsHeld():
                self._reports.files_held(peer, message)
            case m.SnapshotsHeld():
                self._reports.snapshots.held(peer, message)
            case m.Leaving():
                self._reports.worker_leaves(peer)
            case _:
                self._reports.report(peer, message)

    def _ask(self, peer: Peer, request: m.Request) -> None:
        """Answer a request, or do its first step; the others follow between messages."""
        made = self._service.begin(peer, request)
        if isinstance(made, Generator):
            try:
                next(made)
            except StopIteration as end:
                made = end.value
            else:
                self._requests.add(peer, request, made)
                return
        self._reply(peer, request, made)

    def _on_watch(self, peer: Peer, message: m.Subscribe) -> m.Message:
        if self._subscriptions.is_full_for(peer, message):
            for route in self._subscriptions.routes_of(peer.uid):
                # failed sends reveal closed connections
                self._tell(route, m.Lagged())
        if self._subscriptions.is_full_for(peer, message):
            text = (
                f"a user has {MOST_WATCHES} watches at most, of {MOST_WATCHED} tasks; "
                "watch all, or close some"
            )
            return m.Error(message.request, "bad-input", text)
        self._subscriptions.add(peer, message)
        self._journal.watched = True
        return m.Done(message.request)

    def _reply(self, peer: Peer, request: m.Request, reply: m.Message) -> None:
        """Answer with the next commit; or at once, where that waits for room."""
        promises = isinstance(request, m.Change) and not isinstance(reply, m.Error)
        if self._store.stuck is not None and not promises:
            self._tell(peer.route, reply)
        else:
            route = peer.route
            self._askers[route] = peer.uid
            self._journal.batch.replies.append((route, reply))

    def _on_hello(self, peer: Peer, hello: m.Register) -> None:
        if hello.protocol != m.PROTOCOL:
            text = f"protocol {hello.protocol} is not spoken here; hetd speaks {m.PROTOCOL}"
            self._router.send(peer.route, m.Error(0, "protocol", text))
            return
        interval = int(self._config.value.interval_ms * 1e6)
        launcher = self._pool.has_launcher(peer.uid)
        welcome = m.Registered(
            m.PROTOCOL,
            hetd.__version__,
            os.getpid(),
            launcher,
            interval,
            self._config.value.snapshots.terms(),
            log_bytes=self._config.value.log_mb << 20,
            processes=self._config.value.processes_per_user,
            hung_launcher=self._pool.of_user(peer.uid).hung_launcher,
        )
        self._router.send(peer.route, welcome)
        if hello.role == "launcher":
            self._poller.watch(WatchedProcess(peer, None))
            self._reports.launcher_came(peer, hello.workers, yields=hello.yields)
        elif hello.role == "worker" and self._has_room_for(peer, hello):
            self._poller.watch(WatchedProcess(peer, hello.worker))
            self._reports.worker_came(peer, hello)

    def _has_room_for(self, peer: Peer, hello: m.Register) -> bool:
        """Whether a worker is known, or one more is not too many for one user."""
        pool, most = self._pool, self._config.value.connections_per_user
        if pool.holds(peer.uid, hello.worker) or len(pool.workers_of(peer.uid)) < most:
            return True
        text = f"a user has {most} workers at most"
        self._router.send(peer.route, m.Error(0, "not-allowed", text))
        return False

    # ------------------------------------------------------------ processes

    def _on_exit(self, watched: WatchedProcess) -> None:
        if watched.worker is not None:
            self._reports.process_ended(watched.peer, watched.worker)
        else:
            self._reports.launcher_left(watched.peer)
