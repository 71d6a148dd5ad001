"""The setup of a run: the machine, the daemon, the users and their clients."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from torture.history import History
from torture.simulation.asking import Asking
from torture.simulation.clients import SimulatedClient
from torture.simulation.daemon import SimulatedDaemon
from torture.simulation.disk import Disk
from torture.simulation.fake_snapshots import FakeSnapshots
from torture.simulation.fault_profile import (
    draw_config,
    draw_devices,
    draw_fault_profile,
    with_needs,
)
from torture.simulation.invariants import Inspector
from torture.simulation.launchers import Records
from torture.simulation.network import Network
from torture.simulation.processes import Machine
from torture.simulation.users import Promises, User
from torture.simulation.world import SECOND, World

if TYPE_CHECKING:
    from torture.simulation.workers import SimulatedWorker

WITH_NEEDS = 0.4
"""Share of the runs in which tasks need cores and memory, and users have quotas."""
WITH_CALLS = 0.4
"""Share of the runs in which running tasks submit others that end with them."""
FIRST_USER = 5001
"""Uids of users; nobody's of the machine that simulates, who might rule."""


class Setup:
    """Everything that there is in a run.

    Args:
        seed: decides everything.

    Attributes:
        admin: root, who drains resources and sets policies.

    """

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        chance = random.Random(f"weather {seed}")
        self.profile = draw_fault_profile(chance)
        devices = draw_devices(chance)
        # apart from the other draws: those of known seeds stay as they were
        wants = random.Random(f"needs {seed}")
        self.needs = wants if wants.random() < WITH_NEEDS else None
        calls = random.Random(f"calls {seed}")
        self.resources = [device.spec.name for device in devices]
        self.network = Network(self.world)
        self.machine = Machine(self.world)
        self.history = History()
        self.promises = Promises()
        uids = [FIRST_USER + number for number in range(self.profile.users)]
        self.users = [self._user(uid) for uid in uids]
        self.admin = self._user(0)
        self.clients: list[SimulatedClient] = []
        self.storm = True
        self._born = 0
        self._asking = Asking(
            self.world.chance,
            self.profile,
            self.resources,
            self.needs,
            calls if calls.random() < WITH_CALLS else None,
        )
        self._inspector = Inspector(self.promises)
        config = draw_config(chance)
        if self.needs is not None:
            config = with_needs(config, self.needs)
        runtime = (config, devices)
        self.daemon = SimulatedDaemon(
            self.network, self.machine, Disk(), runtime, self._inspect
        )

    def _user(self, uid: int) -> User:
        records = Records(FakeSnapshots(self.world))
        return User(uid, self.history, self.promises, records)

    def fill_up_clients(self) -> None:
        """Let there be as many clients as the profile says, and an administrator."""
        working = [client for client in self.clients if client.user.uid]
        for number in range(len(working), self.profile.clients):
            self.client(self.users[(number + self._born) % len(self.users)])
        if all(client.user is not self.admin for client in self.clients):
            self.client(self.admin)

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
        mean = self.profile.pause_s
        return int(self.world.chance.expovariate(1 / mean) * SECOND)

    def _inspect(self) -> None:
        runtime = self.daemon.runtime
        if runtime is not None:
            self._inspector.inspect(runtime, self.workers(), self.world.now)
