"""A daemon of a test's own: real processes, a private socket, null devices.

Everything lies in one folder; every process of it (daemon, launcher, workers) has the
socket's path on its command line, which is how they are found.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from libtask.client.client import Client, Selection
from libtask.daemon.launcher_processes import launcher_processes, processes_of
from libtask.daemon.process import DaemonFiles, DaemonProcess
from libtask.errors import HetError
from libtask.messages import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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

KEPT = {"hetd.toml", "hetd.log", "state", "hetd.launcher", "tmp", "run"}
"""What a daemon and its launcher leave in a private daemon's folder."""

SURPLUS_S = 2.0
"""Seconds that a second launcher may take to leave."""

LONGEST_PAUSE_S = 0.01
"""Between two looks: looking takes processors from what is waited for."""

Value = TypeVar("Value")


def eventually(
    look: Callable[[], Value | None], what: str, patience: float = PATIENCE
) -> Value:
    """Look until there is something to see; return it.

    Raises:
        AssertionError: there is nothing in time.

    """
    deadline = time.monotonic() + patience
    pause = 0.002
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(pause)
        pause = min(1.1 * pause, LONGEST_PAUSE_S)
    return seen


class PrivateDaemon(DaemonProcess):
    """A daemon, its launcher and its workers.

    Args:
        folder: an empty folder with a short path, as sockets need one.
        config: text of `hetd.toml`.
        wrapper: a command that runs the daemon's.

    """

    def __init__(
        self,
        folder: Path,
        config: str = SETTINGS + RESOURCES,
        wrapper: Sequence[str] = (),
    ) -> None:
        files = DaemonFiles.within(folder, config)
        # who ends the tests ends it, too
        super().__init__(files, wrapper=wrapper, detached=False)
        self.folder = folder
        self.config = folder / "hetd.toml"
        self.socket = self.files.socket
        self.state = self.files.state
        self.log = self.files.log
        self.crew_folder = self.socket.with_suffix(".launcher")
        self._clients: list[Client] = []
        self._own: Client | None = None

    # ------------------------------------------------------------ the daemon

    def start(self, patience: float = PATIENCE) -> None:
        super().start(patience)

    def terminate(self, patience: float = PATIENCE) -> int:
        return super().terminate(patience)

    def wait(self, patience: float = PATIENCE) -> int:
        return super().wait(patience)

    def kill9(self) -> None:
        """End the daemon as a crash would."""
        self.kill()

    def restart(self) -> None:
        """Crash, and come back."""
        self.kill9()
        self.start()

    # ------------------------------------------------------------ clients

    def connect(self) -> Client:
        """Open a client; it is closed with everything else."""
        client = Client(self.socket)
        self._clients.append(client)
        return client

    @property
    def client(self) -> Client:
        """The daemon's own client, which no test closes."""
        if self._own is None:
            self._own = self.connect()
        return self._own

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
        return processes_of(self.socket)

    def launcher(self) -> int:
        """Return the pid of the launcher; a second one that was started leaves soon."""

        def look() -> int | None:
            pids = launcher_processes(self.socket)
            first = [pid for pid in pids if _parent(pid) not in pids]
            return first[0] if len(first) == 1 else None

        return eventually(look, "one launcher")

    def workers(self) -> list[int]:
        """Return the pids of the launcher's workers."""
        pids = launcher_processes(self.socket)
        return [pid for pid in pids if _parent(pid) in pids]

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
        except (AssertionError, HetError, TimeoutError) as error:
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
        self._let_surplus_launcher_leave()
        status = self.terminate()
        eventually(lambda: not self.processes(), "the end of all processes")
        return [] if status == 0 else [f"hetd ended with status {status}"]

    def _knows_its_launcher(self) -> bool:
        if not launcher_processes(self.socket):
            return True
        with Client(self.socket) as client:  # it is told as a client comes
            return bool(client.welcome.launcher)

    def _let_surplus_launcher_leave(self) -> None:
        """Where two were started at once, the second leaves when it is told of the first.

        Workers that outlive their launcher look the same, so this wait is short.
        """
        deadline = time.monotonic() + SURPLUS_S
        while len(self._without_parent()) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)

    def _without_parent(self) -> list[int]:
        crew = launcher_processes(self.socket)
        return [pid for pid in crew if _parent(pid) not in crew]

    def _end_by_force(self) -> Iterable[str]:
        for pid, words in self.processes().items():
            os.kill(pid, signal.SIGKILL)
            yield f"process {pid} is left: {' '.join(words)}"
        self.wait()


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


@contextmanager
def opened(config: str, wrapper: Sequence[str] = ()) -> Iterator[PrivateDaemon]:
    """Run a daemon; complain of what it leaves behind."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-", dir=ROOM))
    with pytest.MonkeyPatch.context() as patch:
        for name, variable in (("tmp", "TMPDIR"), ("run", "XDG_RUNTIME_DIR")):
            (folder / name).mkdir(mode=0o700)
            patch.setenv(variable, str(folder / name))
        daemon = PrivateDaemon(folder, config, wrapper)
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
