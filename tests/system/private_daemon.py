"""A daemon of a test's own: real processes, a private socket, null devices.

Everything lies in one folder; every process of it (daemon, launcher, workers) has the
socket's path on its command line, which is how they are found.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from libtask.client.client import Client, Selection
from libtask.endpoint import probe
from libtask.errors import DaemonUnreachableError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from libtask.messages import TaskInfo

PATIENCE = 30.0
"""Seconds after which a test gives up; a sane machine needs a fraction of one."""

SETTINGS = """
policy = "affinity"
cancel_grace_s = 0.3
restore_grace_s = 5.0
"""
"""No policy that moves tasks by itself, and little patience with cancelled tasks."""

RESOURCES = """
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2

[[resource]]
name = "gpu0"
kind = "gpu"
driver = "null"

[[resource]]
name = "fpga0"
kind = "fpga"
driver = "null"
"""
NAMES = ("cpu", "gpu0", "fpga0")

ROOM = tempfile.gettempdir()
"""Where short paths are to be had; asked before any test changes TMPDIR."""

KEPT = {"hetd.toml", "hetd.log", "state", "s.launcher", "tmp", "run"}
"""What a daemon and its launcher leave in a private daemon's folder."""

Value = TypeVar("Value")


def eventually(
    look: Callable[[], Value | None], what: str, patience: float = PATIENCE
) -> Value:
    """Look until there is something to see; return it.

    Raises:
        AssertionError: there is nothing in time.

    """
    deadline = time.monotonic() + patience
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)
    return seen


class PrivateDaemon:
    """A daemon, its launcher and its workers.

    Args:
        folder: an empty folder with a short path, as sockets need one.
        config: text of `hetd.toml`.

    """

    def __init__(self, folder: Path, config: str = SETTINGS + RESOURCES) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.state = folder / "state"
        self.config = folder / "hetd.toml"
        self.log = folder / "hetd.log"
        self.config.write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    # ------------------------------------------------------------ the daemon

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        hetd = [sys.executable, "-m", "hetd", "--socket", str(self.socket)]
        return [*hetd, "--state", str(self.state), "--config", str(self.config)]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        eventually(self._answers, f"a daemon\n{self.log.read_text()}")

    def kill9(self) -> None:
        """End the daemon as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """End the daemon as a service manager would; return its exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def wait(self) -> int:
        """Wait until the daemon has ended by itself; return its exit status."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def restart(self) -> None:
        """Crash, and come back."""
        self.kill9()
        self.start()

    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _answers(self) -> bool:
        assert self.is_up(), f"the daemon does not start: {self.log.read_text()}"
        try:
            probe(self.socket)
        except DaemonUnreachableError:
            return False
        return True

    # ------------------------------------------------------------ clients

    def connect(self) -> Client:
        """Open a client; it is closed with everything else."""
        client = Client(self.socket)
        self._clients.append(client)
        return client

    @property
    def client(self) -> Client:
        return self._clients[0] if self._clients else self.connect()

    def info(self, task: int) -> TaskInfo:
        return self.client.show(task)

    def await_state(self, task: int, *states: str) -> TaskInfo:
        """Wait until a task is in one of these states."""

        def look() -> TaskInfo | None:
            info = self.info(task)
            return info if info.state in states else None

        return eventually(look, f"task {task} {' or '.join(states)}")

    # ------------------------------------------------------------ processes

    def processes(self) -> dict[int, list[str]]:
        """Find the processes with our socket on their command line, by pid."""
        found = {}
        for entry in Path("/proc").iterdir():
            words = _command_line(entry) if entry.name.isdigit() else []
            if str(self.socket) in words:
                found[int(entry.name)] = words
        return found

    def launcher(self) -> int:
        """Return the pid of the launcher; a second one that was started leaves soon."""

        def look() -> int | None:
            pids = self._crew()
            first = [pid for pid in pids if _parent(pid) not in pids]
            return first[0] if len(first) == 1 else None

        return eventually(look, "one launcher")

    def workers(self) -> list[int]:
        """Return the pids of the launcher's workers."""
        pids = self._crew()
        return [pid for pid in pids if _parent(pid) in pids]

    def _crew(self) -> set[int]:
        found = self.processes().items()
        return {pid for pid, words in found if "libtask.worker.launcher" in words}

    # ------------------------------------------------------------ the end

    def give_up_tasks(self) -> None:
        """Cancel what has not ended, and wait for its end."""
        live = [info.id for info in self._live()]
        if live:
            self.client.cancel(*live)
            eventually(lambda: not self._live(), "the end of cancelled tasks")

    def _live(self) -> list[TaskInfo]:
        tasks = self.client.tasks(Selection(limit=10_000))
        return [info for info in tasks if info.state not in ENDED]

    def close(self) -> list[str]:
        """End everything; return what would not end, or was left behind."""
        complaints: list[str] = []
        try:
            complaints += self._end_in_peace()
        except AssertionError as error:
            complaints.append(str(error))
        for client in self._clients:
            client.close()
        complaints += self._end_by_force()
        if self.socket.exists():
            complaints.append(f"{self.socket} is left")
        return complaints

    def _end_in_peace(self) -> Iterable[str]:
        if not self.is_up():
            self.start()
        self.give_up_tasks()
        # one that has just been started does not know yet that it is to leave
        eventually(self._knows_its_launcher, "the launcher at the daemon")
        status = self.terminate()
        eventually(lambda: not self.processes(), "the end of all processes")
        return [] if status == 0 else [f"hetd ended with status {status}"]

    def _knows_its_launcher(self) -> bool:
        return not self._crew() or self.connect().welcome.launcher

    def _end_by_force(self) -> Iterable[str]:
        for pid, words in self.processes().items():
            os.kill(pid, signal.SIGKILL)
            yield f"process {pid} is left: {' '.join(words)}"
        if self._process is not None:
            self._process.wait(PATIENCE)


def _command_line(entry: Path) -> list[str]:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended meanwhile
        return []


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


@contextmanager
def opened(config: str) -> Iterator[PrivateDaemon]:
    """Run a daemon; complain of what it leaves behind."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-", dir=ROOM))
    with pytest.MonkeyPatch.context() as patch:
        for name, variable in (("tmp", "TMPDIR"), ("run", "XDG_RUNTIME_DIR")):
            (folder / name).mkdir(mode=0o700)
            patch.setenv(variable, str(folder / name))
        daemon = PrivateDaemon(folder, config)
        daemon.start()
        try:
            yield daemon
        finally:
            complaints = daemon.close() + _left_behind(folder)
    assert not complaints, f"{complaints}\n{daemon.log.read_text()}"
    shutil.rmtree(folder)


def _left_behind(folder: Path) -> list[str]:
    unknown = [path for path in folder.iterdir() if path.name not in KEPT]
    unknown += [path for path in (folder / "tmp").rglob("*") if not path.is_dir()]
    unknown += [path for path in (folder / "run").rglob("*") if not path.is_dir()]
    return [f"{path} is left" for path in unknown]
