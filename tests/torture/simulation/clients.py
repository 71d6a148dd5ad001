"""Simulated clients: a session over one connection after the other, as in libtask.

A request that gets no answer in time, or whose connection is lost, is repeated over a
new connection; a submit keeps its key. What a client asks is in `asking`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from libtask import messages as m
from torture.history import Found
from torture.simulation.network import Connection
from torture.simulation.processes import Process
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.simulation.network import Network
    from torture.simulation.processes import Machine
    from torture.simulation.users import User

TIMEOUT = 10 * SECOND
"""Time that a client waits for one reply."""

Then: TypeAlias = "Callable[[m.Request], None]"


@dataclass(slots=True)
class Asked:
    """A request that was not answered yet."""

    request: m.Request
    then: Then


class SimulatedClient:
    """One program of a user.

    Attributes:
        watch: its subscription; None: nothing.
        complaints: replies that are impossible.

    """

    def __init__(
        self, network: Network, machine: Machine, user: User, number: int
    ) -> None:
        self.user = user
        self.process = Process(machine, f"client-{number}", user.uid)
        self.watch: m.Subscribe | None = None
        self.complaints: list[str] = []
        self._network = network
        self._machine = machine
        self._world = network.world
        self._pending: dict[int, Asked] = {}
        self._number = 0
        self._welcomed = False
        self._ended: dict[int, str] = {}
        self.process.on_end.append(self._died)
        self._connect()

    def ask(self, request: m.Request, then: Then) -> None:
        """Ask, until there is an answer; `then` takes it, an `Error` too."""
        self._number += 1
        numbered = msgspec.structs.replace(request, request=self._number)
        if isinstance(numbered, m.Change) and not numbered.key:
            key = f"{self.process.name}/{self._number}"
            numbered = msgspec.structs.replace(numbered, key=key)
        self._pending[self._number] = Asked(numbered, then)
        if self._welcomed:
            self._send(numbered)

    @property
    def busy(self) -> bool:
        """Whether it waits for an answer."""
        return bool(self._pending)

    # ------------------------------------------------------------ the connection

    def _connect(self) -> None:
        self._welcomed = False
        self._connection = Connection(self._network, self.process, self._hear)
        self._connection.send(m.encode(m.Register("client", pid=self.process.pid)))
        self.process.after(TIMEOUT, self._lose_patience, self._connection)

    def _renew(self) -> None:
        self._connection.drop()
        self.process.after(self._world.some(0.05, 1.0), self._connect)

    def _lose_patience(self, connection: Connection) -> None:
        """Take a new connection where the old one brings no answer."""
        if connection is not self._connection or connection.closed:
            return
        if self._pending or not self._welcomed:
            self._renew()
        else:
            self.process.after(TIMEOUT, self._lose_patience, connection)

    def _send(self, request: m.Request) -> None:
        known = (request.verb, request.ids) if isinstance(request, m.Control) else ()
        self._world.note(self.process.name, type(request).__name__, *known)
        if isinstance(request, m.Change):
            expires = (self._world.now + TIMEOUT) / SECOND
            request = msgspec.structs.replace(request, expires=expires)
        self._connection.send(m.encode(request))

    def _hear(self) -> None:
        arrived = self._connection.arrived
        while arrived:
            self._take(m.decode_from_daemon(arrived.popleft()))
        if self._connection.lost and not self._connection.closed:
            self._renew()

    def _take(self, message: m.FromDaemon) -> None:
        match message:
            case m.Registered():
                self._on_welcome(message)
            case m.TaskChanged():
                self._on_change(message)
            case m.Request():
                asked = self._pending.pop(message.request, None)
                if asked is not None:
                    asked.then(message)
            case _:
                self.complaints.append(f"{self.process.name} was sent {message}")

    def _on_welcome(self, welcome: m.Registered) -> None:
        self._welcomed = True
        if self.user.unanswered or self._pending:
            self._demand_launcher(there=welcome.launcher)
        if self.watch is not None:
            self.ask(self.watch, lambda _reply: None)
        for asked in list(self._pending.values()):
            self._send(asked.request)

    def _demand_launcher(self, *, there: bool) -> None:
        if not there and self.user.uid:
            self.user.start_launcher(self._network, self._machine)

    def _on_change(self, change: m.TaskChanged) -> None:
        """Note how a task ended; an end is the last that is heard of it."""
        self.user.heard_of.add(change.id)
        before = self._ended.get(change.id)
        if before is not None and change.state != before:
            text = f"heard that task {change.id} is {change.state} after {before}"
            self.complaints.append(f"{self.process.name} {text}")
        if change.state in m.ENDED:
            self._ended[change.id] = change.state
            self.told(change.id, change.state, change.result)

    def told(self, task: int, state: str, result: object) -> None:
        """Note what hetd says of a task."""
        self.user.history.tell(Found(task, "", state, result))

    def submitted(self, request: m.Submit, reply: m.Request) -> None:
        """Take the answer to a submit."""
        match reply:
            case m.Submitted():
                self.user.acknowledged(request, reply.ids)
                self._demand_launcher(there=reply.launcher)
            case m.Error():
                self.user.history.refuse(request.key)
            case _:
                self.complaints.append(f"a submit was answered with {reply}")

    def submit(self, request: m.Submit) -> None:
        """Submit, maybe for another client that died before it had an answer."""
        self.ask(request, lambda reply: self.submitted(request, reply))

    def _died(self, _status: int) -> None:
        """Leave what was not answered to others of the same user."""
        for asked in self._pending.values():
            if isinstance(asked.request, m.Submit):
                self.user.unanswered.append(asked.request)
