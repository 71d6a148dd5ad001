"""The loop: receive, handle, commit, answer. One thread, one turn after another.

Messages of peers become events; commands to workers are sent at once; replies to clients
wait for the commit of the turn, which a writer thread does meanwhile.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hetd
from hetd.transport.poller import WatchedProcess
from libtask import messages as m
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetd.config import ActiveConfig
    from hetd.reports.worker_reports import Report, WorkerReports
    from hetd.requests.publication import Publication
    from hetd.requests.turns import RequestTurns
    from hetd.runtime import Runtime
    from hetd.transport.poller import Poller
    from hetd.transport.router import Envelope, Peer, Router
    from hetd.workers.pool import WorkerPool

TURN_NS = 10_000_000
"""Time limit for receiving messages in a turn, before other work and commits."""
TICK_AFTER_NS = 5_000_000
"""Time for the messages of one turn above which the turn does no other due work."""


class Loop:
    """Receives messages and passes each to the part that handles it, turn by turn.

    `Serving` calls `turn` while `running`, then `finish`; a simulation calls them at times
    of its own.

    Args:
        registration: takes peers that register.
        requests: takes what users ask.
        reports: takes what workers and launchers report.
        publication: commits the changes of a turn, and publishes them.

    """

    def __init__(  # noqa: PLR0913, PLR0917  it calls all of them
        self,
        router: Router,
        runtime: Runtime,
        registration: Registration,
        requests: RequestTurns,
        reports: WorkerReports,
        publication: Publication,
    ) -> None:
        self._router = router
        self._runtime = runtime
        self._now = runtime.clock.now
        self._registration = registration
        self.requests = requests
        self._reports = reports
        self.publication = publication
        self._tick_deferred = False

    def finish(self) -> None:
        """Commit the changes of the last turn, and send the replies.

        Requests under way are dropped: their clients repeat them to the next daemon.
        """
        self.publication.finish()

    @property
    def running(self) -> bool:
        """Whether another turn is to follow."""
        return not self._runtime.lifecycle.stop_requested

    def turn(self, ended: Iterable[WatchedProcess]) -> None:
        """Do all pending work.

        Args:
            ended: processes that have ended since the last turn.

        """
        for watched in ended:
            self._on_exit(watched)
        began = self._now()
        self._receive(began)
        self._tick(began)
        pending = bool(self.requests.queues)
        if pending:
            self.requests.carry_on()
        if self._runtime.pool.assigned:
            self._runtime.watch_assigned()
        self.publication.turn(may_hold=not pending)

    def _tick(self, began: int) -> None:
        """Do the work that is due; in the next turn, if messages took long in this one.

        The timer that a drain of a long queue sets is due at once: the drain and its first
        part in one turn would hold the loop for twice as long.
        """
        long = self._now() - began > TICK_AFTER_NS
        self._tick_deferred = long and not self._tick_deferred
        if not self._tick_deferred:
            self._runtime.tick()

    def _receive(self, began: int) -> None:
        """Handle received messages, up to the time limit of the turn.

        The rest is handled in the next turn: a list of all tasks may take ten
        milliseconds, while small requests wait for the commit.
        """
        then = began
        for envelope in self._router.receive(self.requests.is_put_off):
            self._handle(envelope)
            now = self._now()
            self.requests.budget.charge(envelope.peer.uid, now - then, now)
            then = now
            if now - began > TURN_NS:
                return

    @property
    def busy(self) -> bool:
        """Whether requests are under way or answers wait to be sent."""
        return bool(self.requests.queues or self.publication.outbox.count)

    def timeout_ms(self) -> int:
        """Return the longest wait for the next turn, milliseconds."""
        longest = self.publication.timeout_ms()
        if longest and self.requests.queues:
            longest = min(longest, self.requests.timeout_ms())
        deadline = self._runtime.next_deadline()
        if deadline is None or not longest:
            return longest
        return min(longest, max(0, (deadline - self._now()) // 1_000_000 + 1))

    # ------------------------------------------------------------ messages

    def _handle(self, envelope: Envelope) -> None:
        peer, message = envelope.peer, envelope.message
        if peer.uid < 0 or isinstance(message, InputError):
            self._refuse(peer, message)
        elif isinstance(message, m.Request):
            self.requests.take(envelope)
        else:
            try:
                self._dispatch(peer, message)
            except Exception as error:  # noqa: BLE001  the daemon survives a bug; it is logged
                excuse = self._runtime.excuse(peer, message, error)
                self._router.send(peer.route, excuse)

    def _refuse(self, peer: Peer, message: m.ToDaemon | m.Request | InputError) -> None:
        """Answer what cannot be understood, or comes from nobody that the kernel knows."""
        self._runtime.counters.refused += 1
        text = str(message) if isinstance(message, InputError) else "unknown peer"
        request = message.request if isinstance(message, m.MalformedError) else 0
        self._router.send(peer.route, m.Error(request, "bad-input", text))

    def _dispatch(
        self,
        peer: Peer,
        message: m.Register
        | m.WorkerExited
        | m.AttachmentsHeld
        | m.ResultsHeld
        | m.SnapshotsHeld
        | m.Leaving
        | Report,
    ) -> None:
        match message:
            case m.Register():
                self._registration.register(peer, message)
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

    # ------------------------------------------------------------ processes

    def _on_exit(self, watched: WatchedProcess) -> None:
        if watched.worker is not None:
            self._reports.process_ended(watched.peer, watched.worker)
        else:
            self._reports.launcher_left(watched.peer)


class Registration:
    """Welcomes the peers that register, and watches for the ends of their processes."""

    def __init__(
        self,
        router: Router,
        poller: Poller,
        config: ActiveConfig,
        pool: WorkerPool,
        reports: WorkerReports,
    ) -> None:
        self._router = router
        self._poller = poller
        self._config = config
        self._pool = pool
        self._reports = reports

    def register(self, peer: Peer, hello: m.Register) -> None:
        """Welcome a client, launcher or worker; refuse one of another protocol."""
        if hello.protocol != m.PROTOCOL:
            text = f"protocol {hello.protocol} is not spoken here; hetd speaks {m.PROTOCOL}"
            self._router.send(peer.route, m.Error(0, "protocol", text))
            return
        config = self._config.value
        welcome = m.Registered(
            m.PROTOCOL,
            hetd.__version__,
            os.getpid(),
            self._pool.has_launcher(peer.uid),
            int(config.interval_ms * 1e6),
            config.snapshots.terms(),
            config.resident_share,
            log_bytes=config.log_mb << 20,
            processes=config.processes_per_user,
            hung_launcher=self._pool.of_user(peer.uid).hung_launcher,
        )
        self._router.send(peer.route, welcome)
        if hello.role == "launcher":
            # one that has ended may be heard after its successor
            if self._poller.watch(WatchedProcess(peer, None)):
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
