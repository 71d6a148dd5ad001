"""The process of a command: its start, signals, and end with all descendants.

Its worker is a subreaper, so that every descendant can be found, whatever session or
group it created; see `libtask.processes`.
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
"""Seconds for killed processes to exit."""


@dataclass(frozen=True, slots=True)
class Start:
    """The parameters of a process's start.

    Attributes:
        words: the program and its arguments.
        environment: all of its variables.
        umask: its umask; -1: the worker's.
        input: descriptor of its standard input; None: it is empty.
        output: descriptor of its standard output; None: the worker's.
        error: the same of its standard error.
        cores: processors that it may use; None: the worker's.

    """

    words: Sequence[str]
    environment: Mapping[str, str]
    umask: int = -1
    input: int | None = None
    output: int | None = None
    error: int | None = None
    cores: set[int] | None = None


class Process:
    """A running command in its own session.

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

    def reap_orphans(self) -> None:
        """Reap children of this process that have ended, all but the command.

        A command may leave orphans for days, and each that is not reaped occupies a pid.
        """
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, flags):
                if ended.si_pid == self._popen.pid:
                    return  # its exit status is still to be read, and it comes first
                os.waitpid(ended.si_pid, 0)

    def send(self, number: int) -> None:
        """Send a signal to its group; SIGSTOP and SIGCONT also go to all descendants."""
        if self._popen.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in descendants_of([self._popen.pid]):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

    def ask(self, number: int) -> None:
        """Send a signal that asks it to exit, and SIGCONT in case it is stopped."""
        self.send(number)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with all descendants without waiting."""
        kill_with_descendants([self._popen.pid])

    def end(self, number: int, seconds: float) -> None:
        """Ask it to exit, wait for `seconds`, then kill it with all descendants."""
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
        """Release it and end its remaining descendants."""
        os.close(self.descriptor)
        if self._popen.poll() is None:
            self.kill()
        end_children(ENDS_S)
        self._popen.returncode = (
            self._popen.poll() or 0
        )  # else Popen warns that it still runs


def _started(start: Start) -> subprocess.Popen[bytes]:
    before = os.sched_getaffinity(0)
    if start.cores is not None:
        os.sched_setaffinity(0, start.cores)  # inherited by the child
    try:
        return subprocess.Popen(  # noqa: S603  runs users' programs by design
            start.words,
            env=start.environment,
            stdin=subprocess.DEVNULL if start.input is None else start.input,
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
    """Describe the exit of a command."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "real-time"
    return f"killed by signal {-code} ({name})"
