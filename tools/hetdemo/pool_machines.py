"""The machines of the pool's demo: three nodes and a gateway, with their processes.

They are network namespaces with limited links where the kernel allows that, else addresses
of loopback. Each machine has a supervisor of its own, so that one can be killed as a whole.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from hetpool.setup import supervisor
from hetpool.setup.certificates import THIS, Authority, Member
from hetpool.setup.config import FIRST_PORT, NodeTable, PoolFile, read_settings
from hetpool.setup.endpoint import DEFAULT_PORT, Address
from hetpool.setup.folders import PoolFiles, free_port, write_settings
from hetpool.setup.namespaces import LinkedMachines, LinkRates, obstacle
from hetpool.setup.supervisor import Role
from libtask.daemon.launcher_processes import processes_of
from libtask.processes import kill_with_descendants

if TYPE_CHECKING:
    import datetime as dt
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from hetpool.setup.config import PoolSettings

HEAD = "head"
NODES = ("n1", "n2", "n3")
LINK = 4e6
"""Bytes per second of a node's link, in both directions."""
GATEWAY_LINK = 8e6
LEASE_S, REPLACE_S = 2.0, 4.0
"""Short, as nobody wants to watch a demo wait."""
HETD = """
[snapshots]
mtbf_s = 0.0

[[resource]]
name = "cpu"
kind = "cpu"
driver = "cpu"
threads = 1
busy_watts = 10.0

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
emulated = true
"""
"""A real processor, and a device that computes nothing: synthetic tasks wait on it."""

Network = Literal["namespaces", "loopback"]


@dataclass(frozen=True, slots=True)
class DemoMachine:
    """A machine of the demo and its files."""

    name: str
    folder: Path
    host: str

    @property
    def socket(self) -> Path:
        return self.folder / "hetd.sock"


class DemoMachines:
    """The machines, while a `with` block lasts.

    Args:
        folder: for everything; its path must be short, as sockets are in it.
        now: the present time, for certificates.
        loopback: use no namespaces, even if they work.

    """

    def __init__(self, folder: Path, now: dt.datetime, *, loopback: bool) -> None:
        self._folder = folder
        self.why = "as asked for" if loopback else obstacle()
        """Why there are no namespaces; empty: there are."""
        self._stack = ExitStack()
        self._linked: LinkedMachines | None = None
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.machines: dict[str, DemoMachine] = {}
        self._now = now

    @property
    def network(self) -> Network:
        return "loopback" if self.why else "namespaces"

    @property
    def config(self) -> Path:
        """The pool's `pool.toml`."""
        return self._folder / "pool.toml"

    @property
    def incoming(self) -> Path:
        """Folder in which the client leaves input files for the gateway."""
        return self._folder / "incoming"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self) -> PoolSettings:
        return read_settings(self.config, {})

    def start(self, name: str) -> None:
        """Start the processes of a machine, to be kept running."""
        machine = self.machines[name]
        process = supervisor.start(
            machine.folder / "state", self._roles(machine), attached=True
        )
        self._started[name] = process

    def kill(self, name: str) -> None:
        """Kill all processes of a machine at once, as a loss of power would."""
        machine = self.machines[name]
        with self._started.pop(name) as process:
            kill_with_descendants([process.pid, *processes_of(machine.socket)])

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs on a machine."""
        if self._linked is None:
            return list(words)
        return self._linked.command(name, words)

    # ------------------------------------------------------------ parts

    def _make(self) -> None:
        if not self.why:
            rates = dict.fromkeys(NODES, LinkRates(LINK, LINK))
            rates |= {HEAD: LinkRates(GATEWAY_LINK, GATEWAY_LINK)}
            self._linked = self._stack.enter_context(LinkedMachines.make(rates))
        for number, name in enumerate((HEAD, *NODES), 11):
            folder = self._folder / name
            folder.mkdir(mode=0o700)
            linked = self._linked
            host = f"127.0.0.{number}" if linked is None else linked.address(name)
            self.machines[name] = DemoMachine(name, folder, host)
        self._configure()
        for name in self.machines:
            self._stack.callback(self._end, name)
            self.start(name)

    def _configure(self) -> None:
        head = self.machines[HEAD].host
        port = DEFAULT_PORT if self._linked is not None else free_port(head)
        ingress = LINK if self._linked is not None else "measured"
        nodes = [self._table(each, ingress) for each in self.machines.values()]
        found = PoolFile(
            scheduler=str(Address(head, port)),
            lease_s=LEASE_S,
            replace_s=REPLACE_S,
            this=HEAD,
            node=nodes,
        )
        write_settings(self.config, found)
        authority = Authority(PoolFiles(self.config).certificates, self._now)
        authority.member(Member(THIS, [each.host for each in self.machines.values()]))

    def _table(self, machine: DemoMachine, ingress: float | str) -> NodeTable:
        free = self._linked is not None
        port = FIRST_PORT if free else free_port(machine.host, FIRST_PORT)
        gateway = machine.name == HEAD
        rate = GATEWAY_LINK if gateway and ingress == LINK else ingress
        return NodeTable(machine.name, machine.host, port, rate, gateway)

    def _roles(self, machine: DemoMachine) -> list[Role]:
        if machine.name == HEAD:
            roles = {"scheduler": ["hetpool", "scheduler"], "node": self._node(machine)}
            roles["scheduler"] += ["--config", str(self.config), "--allow-root"]
        else:
            (machine.folder / "hetd.toml").write_text(HETD, encoding="utf-8")
            files = {
                "--socket": "hetd.sock",
                "--state": "hetd",
                "--config": "hetd.toml",
            }
            words = [
                word
                for key, name in files.items()
                for word in (key, str(machine.folder / name))
            ]
            roles = {"hetd": ["hetd", *words], "node": self._node(machine)}
        return [
            Role(
                name,
                tuple(self.command(machine.name, [sys.executable, "-P", "-m", *some])),
            )
            for name, some in roles.items()
        ]

    def _node(self, machine: DemoMachine) -> list[str]:
        role = "gateway" if machine.name == HEAD else "node"
        words = ["--config", str(self.config), "--name", machine.name, "--allow-root"]
        words += [
            "--socket",
            str(machine.socket),
            "--folder",
            str(machine.folder / "files"),
        ]
        return ["hetpool", role, *words, "--incoming", str(self.incoming)]

    def _end(self, name: str) -> None:
        """End what is left of a machine, hetd's launcher and workers included."""
        machine = self.machines[name]
        process = self._started.pop(name, None)
        if process is not None:
            with process:
                supervisor.stop(machine.folder / "state")
        kill_with_descendants(processes_of(machine.socket))
