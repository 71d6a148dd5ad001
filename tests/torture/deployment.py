"""The deployment: one daemon, its launcher and workers, all of them to be killed at will.

Everything lies in one folder; daemon and launcher are forked by a `ForkServer`. The deployment
starts them, kills them, waits until they answer again, and at the end looks for what
was left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from libtask.daemon.handshake import handshake
from libtask.daemon.process import DaemonFiles, DaemonProcess
from torture.fork_server import COMMAND, DAEMON, LAUNCHER, ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

PATIENCE = 60.0
"""Seconds after which something that must happen counts as never happening."""

LONGEST_PAUSE_S = 0.01
"""Between two looks: looking takes processors from what is waited for."""

CONFIG = """
policy = "{policy}"
cancel_grace_s = 0.2
restore_grace_s = 5.0
attempts = 100000
meters = false

[snapshots]
mtbf_s = 0.02
minimum_s = 0.005
kept_s = 0

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
"""Little patience with tasks that do not stop when asked, snapshots all the time, and any number of
attempts: a task that is killed for ever must still not be given up."""
RESOURCES = ("cpu", "gpu0", "fpga0")


class NotInTimeError(Exception):
    """Something that must happen did not."""


def eventually(look: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Look until it is so.

    Raises:
        NotInTimeError: it is not, in time.

    """
    deadline = time.monotonic() + patience
    pause = 0.001
    while not look():
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not in time: {what}")
        time.sleep(pause)
        pause = min(1.1 * pause, LONGEST_PAUSE_S)


class Deployment:
    """A daemon and its launcher.

    Args:
        policy: name of the scheduler's policy.

    Attributes:
        recoveries: seconds from each kill of the daemon to its next answer.

    """

    def __init__(self, policy: str = "migration") -> None:
        # a short path: sockets need one
        self.folder = Path(tempfile.mkdtemp(prefix="hett-"))
        self.files = DaemonFiles.within(self.folder, CONFIG.format(policy=policy))
        self.socket = self.files.socket
        self.recoveries: list[float] = []
        self.daemon: int | None = None
        self.launcher: int | None = None
        self._down_since: float | None = None
        self._launcher_fails = ""
        self._fork_server = ForkServer()

    # ------------------------------------------------------------ the daemon

    def start_daemon(self, fail: str = "") -> None:
        """Start the daemon; see `await_answer` for when it is there."""
        self.daemon = self._fork_server.start(
            DAEMON, self.files.words(), self.files.log, fail
        )

    def start_wrapped(self, wrapper: Sequence[str]) -> None:
        """Start the daemon under another program; its imports take their time."""
        command = DaemonProcess(self.files, wrapper=wrapper).command()
        self.daemon = self._fork_server.start(COMMAND, command, self.files.log)

    def await_answer(self) -> None:
        """Wait until the daemon answers; note how long that took since it was killed.

        Raises:
            NotInTimeError: it does not, or it has ended.

        """
        eventually(self._answers, f"the daemon's answer\n{self.files.last_words()}")
        if self._down_since is not None:
            self.recoveries.append(time.monotonic() - self._down_since)
            self._down_since = None

    def _answers(self) -> bool:
        if handshake(self.socket) is not None:
            return True
        if self.daemon_ended() is not None:
            raise NotInTimeError(f"the daemon has ended\n{self.files.last_words()}")
        return False

    def daemon_ended(self) -> int | None:
        """Return how the daemon ended by itself; None: it runs."""
        status = None if self.daemon is None else self._fork_server.status(self.daemon)
        if status is not None:
            self._note_down()
        return status

    def is_down(self) -> bool:
        """Whether the daemon has ended, or was never started."""
        return self.daemon is None or self.daemon_ended() is not None

    def kill_daemon(self) -> None:
        """End the daemon as a crash would."""
        if self.daemon is None:
            return
        self._kill(self.daemon)
        self._note_down()

    def stop_daemon(self) -> int:
        """End the daemon as a service manager would; return its exit status."""
        if self.daemon is None:
            return 0
        os.kill(self.daemon, signal.SIGTERM)
        status = self._fork_server.wait(self.daemon)
        self.daemon = None
        return status

    def _note_down(self) -> None:
        self.daemon = None
        self._down_since = self._down_since or time.monotonic()

    # ------------------------------------------------------------ the crew

    def start_launcher(self, fail: str = "") -> None:
        """Start the launcher; what it forks, and who takes its place, fails there, too."""
        self._launcher_fails = fail
        words = ["--socket", str(self.socket)]
        self.launcher = self._fork_server.start(LAUNCHER, words, self.files.log, fail)

    def keep_launcher(self) -> None:
        """Start the launcher again if it has ended, as clients would."""
        if self.launcher is None or self._fork_server.status(self.launcher) is not None:
            self.start_launcher(self._launcher_fails)

    def kill_launcher(self) -> None:
        """End the launcher as a crash would; its workers are orphans then."""
        if self.launcher is None:
            return
        self._kill(self.launcher)
        self.launcher = None

    def _kill(self, pid: int) -> None:
        """Kill what the fork_server started; its pid is nobody else's until it is reaped."""
        if self._fork_server.status(pid) is None:
            os.kill(pid, signal.SIGKILL)
            self._fork_server.wait(pid)

    def family(self) -> list[psutil.Process]:
        """Return everybody who is there: daemon, launcher, workers, what they started."""
        return self._fork_server.family()

    def workers(self) -> list[psutil.Process]:
        """Return the workers, orphans among them, and what tasks started."""
        mine = (self.daemon, self.launcher)
        found = (each for each in self._fork_server.family() if each.pid not in mine)
        return [each for each in found if _lives(each)]

    def is_launcher_there(self) -> bool:
        """Whether the daemon has heard of a launcher."""
        welcome = handshake(self.socket)
        return welcome is not None and welcome.launcher

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """End everything, and remove the folder."""
        self._fork_server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
