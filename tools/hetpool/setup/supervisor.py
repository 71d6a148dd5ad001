"""Looks after the processes of a pool on one machine, where systemd does not.

`hetctl pool up` writes the roles of the machine (scheduler, node, hetd) into a folder and
starts `python -m hetpool.setup.supervisor FOLDER`: it starts each role, and again when it ends,
until it is terminated itself. It holds a lock in the folder as long as it runs, so a folder
has one supervisor, and its pid is certain. With `--attached` it also ends when its standard
input does: a pipe of a program that must not leave it behind, however it ends itself.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
"""Pauses before a role is started again; they double while it ends within `STEADY_S`."""
STEADY_S = 10.0
GRACE_S = 10.0
"""Time for a role to end after SIGTERM."""
LOOK_S = 0.02
"""Seconds between two looks at the lock, by the process that starts or ends a supervisor."""
START_S = 30.0
MOST_LOG_BYTES = 16 << 20
"""A longer log is moved aside before its role starts again; there is one such file a role."""
ATTACHED = "--attached"
LOCK = "supervisor.lock"
ROLES = "roles.json"


@dataclass(frozen=True, slots=True)
class Role:
    """A process that is kept running."""

    name: str
    """Names its log, too."""
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    """Variables in addition to the supervisor's own."""


# ------------------------------------------------------------ from outside


def start(
    folder: Path,
    roles: Sequence[Role],
    timeout: float = START_S,
    *,
    attached: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a supervisor of these roles in its own session; return its process.

    Args:
        folder: for its files.
        roles: what runs.
        timeout: seconds for its start.
        attached: it ends with this process, even if this one is killed.

    Raises:
        InputError: one runs in this folder.
        HetError: it does not start.

    """
    if pid_of(folder) is not None:
        raise InputError(f"{folder}: its processes are running already")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_roles(folder, roles)
    command = [sys.executable, "-P", "-m", "hetpool.setup.supervisor", str(folder)]
    with (folder / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [*command, *([ATTACHED] if attached else [])],
            stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout
    while pid_of(folder) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise HetError(
                f"the supervisor did not start (see {folder}/supervisor.log)"
            )
        time.sleep(LOOK_S)
    return process


def stop(folder: Path, timeout: float = 2 * GRACE_S) -> bool:
    """End a folder's supervisor with its processes; return whether there was one.

    Raises:
        HetError: it still runs after the timeout.

    """
    pid = pid_of(folder)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while pid_of(folder) is not None:
        if time.monotonic() > deadline:
            raise HetError(f"the supervisor (process {pid}) still runs")
        time.sleep(LOOK_S)
    return True


def pid_of(folder: Path) -> int | None:
    """Return the pid of the folder's supervisor; None: none runs."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = file.read(32).strip()
            return int(text) if text.isdigit() else None
    return None


def roles_in(folder: Path) -> list[Role]:
    """Read the roles of a folder; empty: there are none.

    Raises:
        HetError: the file is damaged.

    """
    path = folder / ROLES
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Role])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise HetError(f"{path}: {error}") from error


def _write_roles(folder: Path, roles: Sequence[Role]) -> None:
    new = folder / f"{ROLES}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(list(roles))))
    new.chmod(0o600)
    new.replace(folder / ROLES)


# ------------------------------------------------------------ the process


class PoolSupervisor:
    """Keeps roles running, each in a thread of its own that waits for its process.

    Args:
        folder: for the logs.
        roles: what runs.

    """

    def __init__(self, folder: Path, roles: Sequence[Role]) -> None:
        self._folder = folder
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(role,), name=role.name)
            for role in roles
        ]

    def run(self) -> None:
        """Keep the roles running until SIGTERM or SIGINT; then end them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        for thread in self._threads:
            thread.start()
        self._ending.wait()
        self._end_all()
        for thread in self._threads:
            thread.join()

    def end_with_input(self) -> None:
        """Also end when standard input does."""
        threading.Thread(target=self._read_to_end, daemon=True).start()

    def _read_to_end(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        self._ending.set()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._ending.set()

    def _keep(self, role: Role) -> None:
        for pause in self._pauses(role):
            self._ending.wait(pause)

    def _pauses(self, role: Role) -> Iterator[float]:
        """Run a role until the end of the supervisor; yield the pause after each run."""
        pause = FIRST_PAUSE_S
        while not self._ending.is_set():
            begun = time.monotonic()
            self._run_once(role)
            lived = time.monotonic() - begun
            pause = (
                FIRST_PAUSE_S if lived > STEADY_S else min(2 * pause, LONGEST_PAUSE_S)
            )
            yield pause

    def _run_once(self, role: Role) -> None:
        log = self._folder / f"{role.name}.log"
        if log.exists() and log.stat().st_size > MOST_LOG_BYTES:
            log.replace(log.with_suffix(".old.log"))
        with log.open("ab") as file:
            process = self._started(role, file.fileno())
        if process is not None:
            status = process.wait()
            print(f"{role.name}: process {process.pid} ended: {status}", flush=True)  # noqa: T201  its log

    def _started(self, role: Role, log: int) -> subprocess.Popen[bytes] | None:
        """Start a role's process unless all are about to end; None: it did not start."""
        with self._lock:
            if self._ending.is_set():
                return None
            try:
                process = subprocess.Popen(  # noqa: S603  the roles are our own
                    [*_ended_with_us(), *role.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | role.environment,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                print(f"{role.name}: {error}", flush=True)  # noqa: T201  its log
                return None
            self._running[role.name] = process
            return process

    def _end_all(self) -> None:
        """Terminate all processes, the last role first; kill those that stay."""
        with self._lock:
            running = list(reversed(self._running.values()))
        for process in running:
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def _ended_with_us() -> list[str]:
    """Return the command that ends a process with its parent: none is left without one."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def main() -> int:
    """Run the supervisor of the folder that is the first argument."""
    folder = Path(sys.argv[1])
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: another supervisor runs", file=sys.stderr)  # noqa: T201
            return 1
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        supervisor = PoolSupervisor(folder, roles_in(folder))
        if ATTACHED in sys.argv[2:]:
            supervisor.end_with_input()
        supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
