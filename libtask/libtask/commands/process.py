"""The process of a command: started, signalled, and ended with all that it started.

Its worker is a subreaper, so that nothing that stems from it is lost, whatever session
or group it made for itself; see `libtask.processes`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libtask.commands.context import wait_alone
from libtask.errors import CommandFailedError
from libtask.processes import descendants_of, end_children, kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses of a shell for a command that it cannot start."""
ENDS_S = 2.0
"""Seconds for the end of what was killed."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a process is started.

    Attributes:
        words: the program and its arguments.
        environment: all of its variables.
        umask: mask of the modes of files that it makes; -1: the worker's.
        output: descriptor of its standard output; None: the worker's.
        error: the same of its standard error.
        cores: processors that it may use; None: the worker's.

    """

    words: Sequence[str]
    environment: Mapping[str, str]
    umask: int = -1
    output: int | None = None
    error: int | None = None
    cores: set[int] | None = None


class Process:
    """A running command, in a session of its own.

    Raises:
        CommandFailedError: it cannot be started.

    """

    def __init__(self, start: Start) -> None:
        self._popen = _started(start)
        self.descriptor = os.pidfd_open(self._popen.pid)
        self.exit_code: int | None = None

    def poll(self) -> int | None:
        """Return its exit status; negative: the signal that ended it; None: it runs."""
        self.exit_code = self._popen.poll()
        return self.exit_code

    def send(self, number: int) -> None:
        """Send a signal to its group; what stops or goes on does so with all below it."""
        if self._popen.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in descendants_of([self._popen.pid]):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

    def ask(self, number: int) -> None:
        """Ask it to leave; it hears that also where it was stopped."""
        self.send(number)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with all that it started; does not wait."""
        kill_with_descendants([self._popen.pid])

    def end(self, number: int, seconds: float) -> None:
        """End it: ask it, wait a while, kill what is left of it."""
        deadline = time.monotonic() + seconds
        if self.poll() is None:
            self.ask(number)
        while self.poll() is None and time.monotonic() < deadline:
            wait_alone(self.descriptor, max(0.0, deadline - time.monotonic()))
        if self.poll() is None:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(ENDS_S)

    def close(self) -> None:
        """Forget it, and end what it left running."""
        os.close(self.descriptor)
        if self._popen.poll() is None:
            self.kill()
        end_children(ENDS_S)
        self._popen.returncode = self._popen.poll() or 0  # else it warns that it runs


def _started(start: Start) -> subprocess.Popen[bytes]:
    before = os.sched_getaffinity(0)
    if start.cores is not None:
        os.sched_setaffinity(0, start.cores)  # and a child has its parent's
    try:
        return subprocess.Popen(  # noqa: S603  to run what a user names is what this is for
            start.words,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=start.output,
            stderr=start.error,
            umask=start.umask,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _not_started(start.words[0], error) from error
    finally:
        if start.cores is not None:
            os.sched_setaffinity(0, before)


def _not_started(program: str, error: OSError | ValueError) -> CommandFailedError:
    if isinstance(error, FileNotFoundError):
        return CommandFailedError(f"{program}: command not found", NOT_FOUND)
    why = error.strerror if isinstance(error, OSError) else str(error)
    return CommandFailedError(f"{program}: {why}", NOT_EXECUTABLE)


def describe(code: int) -> str:
    """Say how a command ended, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "real-time"
    return f"killed by signal {-code} ({name})"
