"""A daemon as a process: where its files lie, how it is started, how it is ended.

`hetctl daemon start`, private daemons and the harnesses that kill daemons use this.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from libtask.daemon.handshake import handshake
from libtask.errors import DaemonUnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_S = 90.0
"""Seconds that a daemon may take to answer: drivers may compile when first asked."""
END_S = 30.0
PAUSE_S = 0.005
"""Seconds between two looks whether it answers."""
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class DaemonFiles:
    """Where the files of a daemon lie.

    Attributes:
        socket: where it listens.
        state: the folder of its tasks.
        log: what it says is added to this file.
        config: a `hetd.toml`; None: that of the user, where there is one.

    """

    socket: Path
    state: Path
    log: Path
    config: Path | None = None

    @classmethod
    def within(cls, folder: Path, config: str | None) -> Self:
        """Lay all of them out in one folder.

        Args:
            folder: an absolute path; a short one, as that of the socket has a limit.
            config: text of its configuration, which is written; None: as above.

        """
        path = None if config is None else folder / "hetd.toml"
        if path is not None:
            path.write_text(config or "", encoding="utf-8")
        socket, state, log = folder / "hetd.sock", folder / "state", folder / "hetd.log"
        return cls(socket, state, log, path)

    def words(self) -> list[str]:
        """Return the options of a daemon with these files."""
        words = ["--socket", str(self.socket), "--state", str(self.state)]
        return words if self.config is None else [*words, "--config", str(self.config)]

    def last_words(self, lines: int = LAST_LINES) -> str:
        """Return the last lines of the log; empty where there is none."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])


class DaemonProcess:
    """A daemon that is started here; it outlives us unless it is ended.

    Args:
        files: where its files lie, absolute paths.
        policy: name of its policy; empty: the configured one.
        wrapper: a command that runs a command, in the same process.
        detached: in a session of its own, where no Ctrl-C reaches it.

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
        """Return the command line that it is started with."""
        policy = ["--policy", self._policy] if self._policy else []
        hetd = [sys.executable, "-P", "-m", "hetd", *self.files.words()]
        return [*self._wrapper, *hetd, *policy]

    def start(self, patience: float = START_S) -> None:
        """Start it, and wait until it answers.

        Args:
            patience: seconds that it may take; it is ended then.

        Raises:
            DaemonUnreachableError: it does not answer; ends with what it said last.

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
        """Complain when there is nothing to wait for any more."""
        said = self.files.last_words(1) or "it said nothing"
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
        """Its process; also when it has ended."""
        return self._started().pid

    def is_up(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as a crash would."""
        self._started().kill()
        self._started().wait()

    def terminate(self, patience: float = END_S) -> int:
        """End it as a service manager would; its running tasks go on.

        Returns:
            Its exit status.

        Raises:
            TimeoutError: it still runs after so many seconds.

        """
        self._started().terminate()
        return self.wait(patience)

    def wait(self, patience: float = END_S) -> int:
        """Wait for its end; as `terminate`."""
        try:
            return self._started().wait(patience)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"hetd still runs after {patience:g} s") from error

    def end(self) -> None:
        """End it, by force where it does not obey."""
        try:
            self.terminate()
        except TimeoutError:
            self.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the daemon was never started")
        return self._process
