"""The line of a simulated worker or launcher to the daemon: `Link` without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.worker.interval_thread import IntervalThread
from libtask.worker.link import RECALL_S, Link
from torture.simulation.network import Connection, Network
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import FromDaemon, Message
    from torture.simulation.processes import Process


class SimulatedRecallThread(IntervalThread):
    """Serves the link of a process as its simulated time goes by."""

    def __init__(self, process: Process, serve: Callable[[], bool]) -> None:
        # not as a thread: the process is called when it is time
        self._process = process
        self._serve = serve
        self._waits = False

    def wake(self) -> None:
        if not self._waits:
            self._waits = True
            self._process.after(int(RECALL_S * SECOND), self._look)

    def _look(self) -> None:
        self._waits = False
        if self._serve():
            self.wake()


class SimulatedLink(Link):
    """Registers with every daemon first; drops the orders of a lost connection.

    Args:
        process: whose line it is.
        heard: called when there may be something to receive.

    """

    def __init__(
        self,
        network: Network,
        process: Process,
        registration: Callable[[], list[Message]],
        heard: Callable[[], None],
    ) -> None:
        # not as a socket: what `Link` opens is not there
        self.welcome = None
        self.connections = 0
        self.silent_since = network.world.now / SECOND
        self._network = network
        self._process = process
        self._registration = registration
        self._heard = heard
        self._begin_empty()
        self._recall_thread = SimulatedRecallThread(process, self.serve)
        self._connect()

    def receive(self, timeout_ms: int) -> FromDaemon | None:
        """Return what has come; never waits, as its owner is called when there is more."""
        if not self._inbox:
            self._flush()
            if not self._take() and timeout_ms:
                self._batch_runs = False
        self._take_recalls()
        return self._next()

    def send_validated(self, message: Message) -> None:
        self.send(message)

    def close(self, linger_ms: int = 0) -> None:
        self._flush()
        self._connection.close()

    def _put(self, frame: bytes) -> None:
        self._connection.send(frame)

    def _now(self) -> float:
        return self._network.world.now / SECOND

    def _take(self) -> bool:
        if self._read_all():
            return True
        self._renew_if_lost()
        return False

    def _read_all(self) -> bool:
        arrived = self._connection.arrived
        if not arrived:
            return False
        while arrived:
            self._accept(arrived.popleft())
        return True

    def _renew_if_lost(self) -> None:
        if not self._connection.lost:
            return
        self._inbox.clear()
        self._batched.clear()
        if self.welcome is not None:
            self.welcome = None
            self.silent_since = self._network.world.now / SECOND
        self._connection.drop()
        self._connect()

    def _connect(self) -> None:
        self.connections += 1
        self._connection = Connection(self._network, self._process, self._heard)
        for message in self._registration():
            self.send(message)
