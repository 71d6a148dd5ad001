"""A child process that prints lines of JSON; the last complete line counts.

Drivers and counters that may crash or hang are read there. The parent reads what has
arrived and never waits for more than it is asked to.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECE = 1 << 16
LONGEST_LINE = 1 << 16
"""Bytes; a child that prints more without an end of line is broken."""
REAP_S = 0.2
"""A killed child that a driver holds is left to the system."""


class ChildError(Exception):
    """The child could not be started, has ended, or prints something else."""


class ChildLines:
    """A child process and its output.

    Args:
        command: prints the lines; its standard input is closed with this process.

    Raises:
        ChildError: it cannot be started.

    """

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self.process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                command,
                stdin=subprocess.PIPE,  # closed with us: then the child ends
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise ChildError(f"{command[0]}: {error.strerror or error}") from error
        if self.process.stdout is None:
            raise ChildError("the child has no output")
        self._pipe = self.process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._rest = b""

    def latest(self) -> bytes | None:
        """Return the last complete line since the last call; None: there is none.

        Raises:
            ChildError: the child has ended, or printed too long a line.

        """
        try:
            piece = os.read(self._pipe, PIECE)
        except BlockingIOError:
            return None
        if not piece:
            raise ChildError("the child that reads it has ended")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ChildError("the child that reads it prints no lines")
        return lines[-1] if lines else None

    def wait(self, seconds: float) -> bool:
        """Wait for output; return whether there is some."""
        ready, _, _ = select.select([self._pipe], [], [], max(seconds, 0.0))
        return bool(ready)

    def end(self) -> None:
        """Kill the child, and give its pipes back."""
        process = self.process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)
        if process.stdout is not None:
            process.stdout.close()
