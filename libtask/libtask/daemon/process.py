"""A daemon as a process: its files, its start and its end.

`hetctl daemon start`, private daemons and the harnesses that kill daemons use this.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from libtask.daemon.handshake import handshake
from libtask.errors import DaemonUnreachableError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_S = 90.0
"""Timeout for a daemon's first answer: drivers may compile during discovery."""
END_S = 30.0
PAUSE_S = 0.005
"""Seconds between two attempts to connect."""
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class DaemonFiles:
    """The paths of a daemon's files.

    Attributes:
        socket: its socket.
        state: its state directory.
        log: its log file, which is appended to.
        config: a `hetd.toml`; None: the user's, if there is one.

    """

    socket: Path
    state: Path
    log: Path
    config: Path | None = None

    @classmethod
    def within(cls, folder: Path, config: str | None) -> Self:
        """Return paths within one folder.

        Args:
            folder: an absolute path; short, because the socket's path has a limit.
            config: text of the configuration, written to a file; None: the user's.

        """
        path = None if config is None else folder / "hetd.toml"
        if path is not None:
            path.write_text(config or "", encoding="utf-8")
        socket, state, log = folder / "hetd.sock", folder / "state", folder / "hetd.log"
        return cls(socket, state, log, path)

    def words(self) -> list[str]:
        """Return the command-line options for these files."""
        words = ["--socket", str(self.socket), "--state", str(self.state)]
        return words if self.config is None else [*words, "--config", str(self.config)]

    def last_words(self, lines: int = LAST_LINES) -> str:
        """Return the last lines of the log; empty: there is no log."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])


class DaemonProcess:
    """A daemon started by this process, which outlives it unless it is ended.

    Args:
        files: absolute paths of its files.
        policy: name of its policy; empty: the configured one.
        wrapper: a command that executes a command in the same process.
        detached: start it in a new session, so that Ctrl-C does not reach it.

    """

    def __init__(
        self,
        files: DaemonFiles,
        policy: str = "",
        wrapper: Sequence[str] = (),
        *,
        detached: bool = True,
    ) -> None:
        self.files = files
        self._detached = detached
        self._policy = policy
        self._wrapper = wrapper
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command line of the daemon."""
        policy = ["--policy", self._policy] if self._policy else []
        hetd = [sys.executable, "-P", "-m", "hetd", *self.files.words()]
        return [*self._wrapper, *hetd, *policy]

    def check(self) -> None:
        """Check that a daemon would start with this configuration and policy.

        Raises:
            InputError: it would not; the text has the reason.

        """
        checked = subprocess.run(  # noqa: S603  our own interpreter and module
            [*self.command(), "--check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/",
            check=False,
        )
        if checked.returncode:
            last = checked.stderr.strip().rpartition("\n")[2]
            raise InputError(last.removeprefix("hetd: "))

    def start(self, patience: float = START_S) -> None:
        """Start the daemon and wait until it answers.

        Args:
            patience: timeout in seconds, after which it is ended.

        Raises:
            DaemonUnreachableError: it does not answer; ends with the last lines of its log.

        """
        with self.files.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=self._detached,
            )
        deadline = time.monotonic() + patience
        while handshake(self.files.socket) is None:
            self._check(deadline, patience)
            time.sleep(PAUSE_S)

    def _check(self, deadline: float, patience: float) -> None:
        """Raise an error if the daemon has exited or the timeout has passed."""
        said = self.files.last_words(1) or "its log is empty"
        if not self.is_up():
            error = DaemonUnreachableError(f"the daemon ended at once: {said}")
        elif time.monotonic() > deadline:
            self.end()
            error = DaemonUnreachableError(
                f"the daemon did not answer in {patience:g} s: {said}"
            )
        else:
            return
        error.add_note(self.files.last_words())
        raise error

    @property
    def pid(self) -> int:
        """Pid of its process, which may have ended."""
        return self._started().pid

    def is_up(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self._started().kill()
        self._started().wait()

    def terminate(self, patience: float = END_S) -> int:
        """Terminate it, as a service manager would; its running tasks continue.

        Returns:
            Its exit status.

        Raises:
            TimeoutError: it still runs after `patience` seconds.

        """
        self._started().terminate()
        return self.wait(patience)

    def wait(self, patience: float = END_S) -> int:
        """Wait for its end and return its exit status, as `terminate` does."""
        try:
            return self._started().wait(patience)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"hetd still runs after {patience:g} s") from error

    def end(self) -> None:
        """Terminate it, and kill it after the timeout."""
        try:
            self.terminate()
        except TimeoutError:
            self.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the daemon was never started")
        return self._process
