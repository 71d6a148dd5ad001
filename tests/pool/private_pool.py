"""A pool of a test's own on 127.0.0.1: a scheduler, nodes and their daemons, all real.

With `linked`, each of its machines is a network namespace with a link that can be cut.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from hetpool import Pool
from hetpool.setup.certificates import Authority, Member
from hetpool.setup.config import FIRST_PORT, read_settings
from hetpool.setup.endpoint import DEFAULT_PORT
from hetpool.setup.namespaces import LinkedMachines, LinkRates
from system.private_daemon import PrivateDaemon, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

PATIENCE = 90.0
"""Seconds after which a test gives up."""
SNAPSHOTS = "[snapshots]\nmtbf_s = 0.0\nlow_memory = 0.0\n"
DAEMON = f"""
policy = "affinity"
cancel_grace_s = 0.3
restore_grace_s = 5.0
{SNAPSHOTS}
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"
"""
LEASE = {"lease_s": 2.0, "replace_s": 5.0}
HEAD = "head"
"""The machine of the scheduler, and of clients where machines are linked."""
LOOPBACK = "127.0.0.1"


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as trial:
        trial.bind((host, 0))
        port: int = trial.getsockname()[1]
        return port


@dataclass
class PrivateNode:
    """A node: its daemon and its process."""

    name: str
    host: str
    port: int
    daemon: PrivateDaemon | None
    process: subprocess.Popen[bytes] | None = None


@dataclass
class PrivatePool:
    """The processes of a pool; `machines`: where it runs if they are linked."""

    folder: Path
    config: Path
    machines: LinkedMachines | None = None
    nodes: dict[str, PrivateNode] = field(default_factory=dict)
    scheduler: subprocess.Popen[bytes] | None = None

    def start_scheduler(self) -> None:
        self.scheduler = self._run("scheduler", [], HEAD)

    def start_node(self, name: str) -> None:
        node = self.nodes[name]
        words = ["--name", name, "--folder", str(self.folder / name)]
        words += ["--incoming", str(self.folder / "incoming")]
        role = "gateway"
        if node.daemon is not None:
            role = "node"
            words += ["--socket", str(node.daemon.socket)]
        node.process = self._run(role, words, name)

    def _run(
        self, role: str, words: Sequence[str], machine: str
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hetpool", role, "--config", str(self.config)]
        with (self.folder / f"{machine}.log").open("ab") as log:
            return subprocess.Popen(
                self.command(machine, [*command, "--allow-root", *words]),
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def command(self, machine: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs on one of the machines."""
        if self.machines is None:
            return list(words)
        return self.machines.command(machine, words)

    def pool(self, **options: Any) -> Pool:
        settings = read_settings(self.config, {}).engine()
        return Pool(
            settings, timeout=PATIENCE, incoming=self.folder / "incoming", **options
        )

    def await_nodes(self, pool: Pool, *names: str) -> None:
        """Wait until exactly these nodes are present."""
        eventually(
            lambda: {each.name for each in pool.nodes() if each.present} == set(names),
            f"nodes {names}",
            PATIENCE,
        )

    def kill_node(self, name: str) -> None:
        """End a node's process as a crash would; its daemon goes on."""
        kill(self.nodes[name].process)

    def revive(self) -> list[str]:
        """Start what ended by itself, as a service manager does; return what it was.

        A node's process ends if it starts while its daemon is down.
        """
        ended = []
        for name, node in self.nodes.items():
            if node.process is not None and node.process.poll() is not None:
                ended.append(f"agent of {name} had ended: {node.process.returncode}")
                self.start_node(name)
        if self.scheduler is not None and self.scheduler.poll() is not None:
            ended.append(f"scheduler had ended: {self.scheduler.returncode}")
            self.start_scheduler()
        return ended

    def restore(self) -> None:
        """Start all processes that a test has ended."""
        for node in self.nodes.values():
            if node.daemon is not None and not node.daemon.is_up():
                node.daemon.start(PATIENCE)
        self.revive()

    def workers(self) -> list[int]:
        """Return the pids of the workers of all daemons."""
        daemons = [node.daemon for node in self.nodes.values()]
        return [pid for each in daemons if each is not None for pid in each.workers()]

    def tasks_of(self, name: str, job: str) -> list[Any]:
        """Return the tasks of a job in a node's daemon."""
        daemon = self.nodes[name].daemon
        assert daemon is not None
        return [
            each
            for each in daemon.client.tasks()
            if each.name.startswith(f"pool/{job}")
        ]

    def unfinished(self) -> list[str]:
        """Describe what has not ended in the daemons."""
        return [
            f"{name}: {each.id} {each.name} is {each.state}"
            for name, node in self.nodes.items()
            if node.daemon is not None
            for each in node.daemon.client.tasks()
            if each.finished is None
        ]

    def logs(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-6000:]}" for path in files
        )


def kill(process: subprocess.Popen[bytes] | None) -> None:
    assert process is not None
    process.kill()
    process.wait()


@contextmanager
def prepared_pool(
    names: Sequence[str] = ("n1", "n2"),
    *,
    gateway: bool = False,
    linked: bool = False,
    daemon: str = DAEMON,
    **settings: Any,
) -> Iterator[PrivatePool]:
    """Make a pool's files and daemons, without its own processes; end those that are started."""
    folder = Path(tempfile.mkdtemp(prefix="hetpool-"))
    every = [*names, *(["gate"] if gateway else [])]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made = PrivatePool(folder, folder / "pool.toml")
        if linked:
            links = dict.fromkeys([HEAD, *every], LinkRates())
            made.machines = stack.enter_context(LinkedMachines.make(links))
        _configure(made, every, settings)
        for number, name in enumerate(names):
            made.nodes[name].daemon = stack.enter_context(
                _daemon(folder, number, daemon)
            )
        stack.callback(_end_processes, made)
        yield made


@contextmanager
def private_pool(*args: Any, **options: Any) -> Iterator[PrivatePool]:
    """Run a pool, of the arguments of `prepared_pool`; end all of its processes."""
    with prepared_pool(*args, **options) as made:
        made.start_scheduler()
        for name in made.nodes:
            made.start_node(name)
        yield made


def _configure(
    made: PrivatePool, names: Sequence[str], settings: dict[str, Any]
) -> None:
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC)  # noqa: TID251  what Dask compares with
    hosts = {name: _host(made, name) for name in (HEAD, *names)}
    member = Member("this", tuple(dict.fromkeys(hosts.values())))
    files = Authority(made.folder / "tls", now).member(member)
    for name in names:
        port = _port(made, FIRST_PORT)
        made.nodes[name] = PrivateNode(name, hosts[name], port, None)
    document = {
        "scheduler": f"tls://{hosts[HEAD]}:{_port(made, DEFAULT_PORT)}",
        **LEASE,
        **settings,
        "tls": {name: str(getattr(files, name)) for name in ("ca", "cert", "key")},
        "node": [
            {
                "name": each.name,
                "address": each.host,
                "worker_port": each.port,
                "gateway": each.name == "gate",
            }
            for each in made.nodes.values()
        ],
    }
    made.config.write_text(tomli_w.dumps(document))


def _host(made: PrivatePool, machine: str) -> str:
    return LOOPBACK if made.machines is None else made.machines.address(machine)


def _port(made: PrivatePool, wanted: int) -> int:
    return free_port() if made.machines is None else wanted


@contextmanager
def _daemon(folder: Path, number: int, config: str) -> Iterator[PrivateDaemon]:
    home = folder / f"d{number}"
    home.mkdir()
    daemon = PrivateDaemon(home, config)
    daemon.start(PATIENCE)
    try:
        yield daemon
    finally:
        with contextlib.suppress(AssertionError):
            daemon.close()


def _end_processes(made: PrivatePool) -> None:
    processes = [each.process for each in made.nodes.values()] + [made.scheduler]
    alive = [each for each in processes if each is not None and each.poll() is None]
    for process in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.terminate()
    for process in alive:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
