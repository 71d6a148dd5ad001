"""A pool on network namespaces for the benches: nodes with hetd, a gateway, a head.

Every process runs on a machine of its own with a link of a set rate. Drivers are null: tasks
wait, so that the links decide, not this machine's processors.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tomli_w

from hetpool.setup.certificates import Authority, Member
from hetpool.setup.namespaces import LinkedMachines, LinkRates
from libtask.daemon.launcher_processes import launcher_processes, processes_of
from libtask.daemon.process import DaemonFiles, DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KINDS = {"cpu": 1.0, "gpu": 1.4, "fpga": 0.75}
RESOURCE = '[[resource]]\nname = "{kind}0"\nkind = "{kind}"\ndriver = "{driver}"\n'


def daemon_config(cpu: str) -> str:
    """Return the configuration of a node's hetd; `cpu`: its driver, the others wait."""
    drivers = dict.fromkeys(KINDS, "null") | {"cpu": cpu}
    resources = [
        RESOURCE.format(kind=kind, driver=driver)
        + ("threads = 1\n" if driver == "cpu" else "slots = 1\n")
        for kind, driver in drivers.items()
    ]
    return 'policy = "finish-time"\n' + "".join(resources)


LINK = 25e6 / 8
"""Rate of a link, bytes a second."""
PORT, SCHEDULER_PORT = 9000, 8786
PATIENCE_S = 180.0


class BenchPool:
    """Machines `head`, `gw` and `n1` to `nN`, with a daemon on each of the latter.

    Args:
        nodes: their number.
        ingress: rate of the link into each node, bytes a second: of all, or node by node.
        cpu: driver of the nodes' processors; `null` waits instead of computing.
        planned: bytes a second by node with which plans count; else what its link carries.
        settings: of `pool.toml`.

    """

    def __init__(
        self,
        nodes: int,
        ingress: float | Sequence[float],
        *,
        cpu: str = "null",
        planned: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hb-"))
        self.names = [f"n{number + 1}" for number in range(nodes)]
        self.settings = settings
        rates = [ingress] * nodes if isinstance(ingress, float) else ingress
        self.ingress = dict(zip(self.names, rates, strict=True))
        self._daemon = daemon_config(cpu)
        self._planned = dict(planned or {})
        self.config = self.folder / "pool.toml"
        self.daemons: dict[str, DaemonProcess] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self) -> None:
        rates = {name: LinkRates(ingress=self.ingress[name]) for name in self.names}
        rates |= {"gw": LinkRates(), "head": LinkRates()}
        self.machines = self._stack.enter_context(LinkedMachines.make(rates))
        for number, name in enumerate(self.names):
            home = self.folder / f"d{number}"
            home.mkdir()
            files = DaemonFiles.within(home, self._daemon)
            daemon = DaemonProcess(files, detached=False)
            daemon.start()
            self._stack.callback(self._end_daemon, daemon)
            self.daemons[name] = daemon
        self._stack.callback(self.end)
        self._write_config()

    def _write_config(self) -> None:
        addresses = {name: self.machines.address(name) for name in self._all()}
        now = dt.datetime.fromtimestamp(time.time(), dt.UTC)  # noqa: TID251  certificates have dates
        member = Member("bench", tuple(addresses.values()))
        files = Authority(self.folder / "tls", now).member(member)
        document = {
            "scheduler": f"tls://{addresses['head']}:{SCHEDULER_PORT}",
            **self.settings,
            "tls": {name: str(getattr(files, name)) for name in ("ca", "cert", "key")},
            "node": [
                {
                    "name": name,
                    "address": addresses[name],
                    "worker_port": PORT,
                    "gateway": name == "gw",
                    **self._rates(name),
                }
                for name in [*self.names, "gw"]
            ],
        }
        self.config.write_text(tomli_w.dumps(document))

    def _rates(self, name: str) -> dict[str, float]:
        # what a link carries through connections is less than what it is set to
        if name == "gw":
            return {}
        return {"ingress": self._planned.get(name, 0.93 * self.ingress[name])}

    def _all(self) -> list[str]:
        return ["head", *self.names, "gw"]

    def start_pool(self) -> None:
        """Start the scheduler, the nodes and the gateway."""
        for name in self._all():
            self.start_again(name)

    def start_again(self, name: str) -> None:
        """Start a machine's process of the pool."""
        if name == "head":
            words = ["-m", "hetpool", "scheduler", "--config", str(self.config)]
        elif name == "gw":
            words = self._words("gateway", name)
        else:
            socket = str(self.daemons[name].files.socket)
            words = [*self._words("node", name), "--socket", socket]
        self.start(name, words)

    def _words(self, role: str, name: str) -> list[str]:
        folder = str(self.folder / name)
        words = ["-m", "hetpool", role, "--config", str(self.config), "--name", name]
        return [*words, "--folder", folder, "--incoming", str(self.incoming)]

    def request(self, **further: Any) -> dict[str, Any]:
        """Return what a client of the pool must know, with what is asked of it."""
        return {
            "nodes": self.names,
            "folder": str(self.folder),
            "config": str(self.config),
            "incoming": str(self.incoming),
            "planner": "ncjm",
            **further,
        }

    @property
    def incoming(self) -> Path:
        return self.folder / "incoming"

    def start(
        self,
        machine: str,
        words: Sequence[str],
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start a Python process on a machine; its output goes to a log."""
        allow = ["--allow-root"] if "hetpool" in words else []
        with (self.folder / f"{machine}.log").open("ab") as log:
            self.processes[machine] = subprocess.Popen(
                self.machines.command(machine, [sys.executable, *words, *allow]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
            )

    def revive(self) -> None:
        """Start again what ended with the scheduler, as a service manager does."""
        for name in [*self.names, "gw"]:
            try:
                self.processes[name].wait(3)
            except subprocess.TimeoutExpired:
                continue  # it goes on, and connects again
            self.start_again(name)

    def kill(self, machine: str) -> None:
        """Kill the process of a machine as a crash would."""
        process = self.processes.pop(machine)
        process.kill()
        process.wait()

    def client(self, words: Sequence[str], request: dict[str, Any]) -> Any:
        """Run a client on the gateway's machine; return the JSON that it prints."""
        process = self.begin_client(words, request)
        return self.end_client(process)

    def begin_client(
        self, words: Sequence[str], request: dict[str, Any]
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.machines.command("gw", [sys.executable, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        )
        assert process.stdin is not None  # noqa: S101  it is a pipe
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def end_client(self, process: subprocess.Popen[bytes]) -> Any:
        out, errors = process.communicate(timeout=600)
        if process.returncode:
            raise RuntimeError(f"client: {errors.decode()[-4000:]}\n{self.logs()}")
        return json.loads(out.splitlines()[-1])

    def logs(self) -> str:
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"== {each.name}\n{each.read_text()[-1500:]}" for each in files
        )

    def _end_daemon(self, daemon: DaemonProcess) -> None:
        """End a daemon, its launcher and its workers."""
        socket = daemon.files.socket
        daemon.end()
        for pid in [*launcher_processes(socket), *processes_of(socket)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End the scheduler, the nodes and the gateway; the daemons stay."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
