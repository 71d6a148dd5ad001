"""The scene of a run: the machine, the daemon, the users and their clients."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hettorture.history import History
from hettorture.simulation.asking import Asking
from hettorture.simulation.clients import SimulatedClient
from hettorture.simulation.daemon import SimulatedDaemon
from hettorture.simulation.disk import Disk
from hettorture.simulation.invariants import Inspector
from hettorture.simulation.launchers import Records
from hettorture.simulation.network import Network
from hettorture.simulation.processes import Machine
from hettorture.simulation.shelf import SimulatedShelf
from hettorture.simulation.users import Promises, User
from hettorture.simulation.weather import drawn_config, drawn_devices, drawn_weather
from hettorture.simulation.world import SECOND, World

if TYPE_CHECKING:
    from hettorture.simulation.workers import SimulatedWorker

FIRST_USER = 5001
"""Uids of users; nobody's of the machine that simulates, who might rule."""


class Scene:
    """Everything that there is in a run.

    Args:
        seed: decides everything.

    Attributes:
        ruler: root, who drains resources and sets policies.

    """

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        chance = random.Random(f"weather {seed}")
        self.weather = drawn_weather(chance)
        devices = drawn_devices(chance)
        self.resources = [device.spec.name for device in devices]
        self.network = Network(self.world)
        self.machine = Machine(self.world)
        self.history = History()
        self.promises = Promises()
        uids = [FIRST_USER + number for number in range(self.weather.users)]
        self.users = [self._user(uid) for uid in uids]
        self.ruler = self._user(0)
        self.clients: list[SimulatedClient] = []
        self.storm = True
        self._born = 0
        self._asking = Asking(self.world.chance, self.weather, self.resources)
        self._inspector = Inspector(self.promises)
        node = (drawn_config(chance), devices)
        self.daemon = SimulatedDaemon(
            self.network, self.machine, Disk(), node, self._inspect
        )

    def _user(self, uid: int) -> User:
        records = Records(SimulatedShelf(self.world))
        return User(uid, self.history, self.promises, records)

    def fill_up_clients(self) -> None:
        """Let there be as many clients as the weather says, and a ruler."""
        working = [client for client in self.clients if client.user.uid]
        for number in range(len(working), self.weather.clients):
            self.client(self.users[(number + self._born) % len(self.users)])
        if all(client.user is not self.ruler for client in self.clients):
            self.client(self.ruler)

    def client(self, user: User) -> SimulatedClient:
        """Let a client of a user come; it works while the storm lasts."""
        self._born += 1
        client = SimulatedClient(self.network, self.machine, user, self._born)
        self.clients.append(client)
        client.process.on_end.append(lambda _status: self.clients.remove(client))
        client.process.after(self._pause(), self._act, client)
        return client

    def workers(self) -> list[SimulatedWorker]:
        """Return the workers that live."""
        for user in self.users:
            records = user.records
            if not all(worker.process.alive for worker in records.workers):
                records.workers = [w for w in records.workers if w.process.alive]
        return [worker for user in self.users for worker in user.records.workers]

    def _act(self, client: SimulatedClient) -> None:
        if not self.storm:
            return
        self._asking.act(client)
        client.process.after(self._pause(), self._act, client)

    def _pause(self) -> int:
        mean = self.weather.pause_s
        return int(self.world.chance.expovariate(1 / mean) * SECOND)

    def _inspect(self) -> None:
        node = self.daemon.node
        if node is not None:
            self._inspector.inspect(node, self.workers(), self.world.now)
