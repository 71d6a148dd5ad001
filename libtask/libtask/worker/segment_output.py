"""The output and the failure of a segment, for a worker's reports.

A segment is the execution of a task in one worker until it yields or ends. All segments
of a worker write to one log file; a report contains the start and the end in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from libtask.errors import CommandFailedError, HetError
from libtask.messages import NAME_BYTES, Failed, cut
from libtask.phase import own_page
from libtask.tracebacks import formatted, is_of_app
from libtask.worker.execution import NANOSECONDS
from libtask.worker.last_output import of_failed

if TYPE_CHECKING:
    from libtask.worker.execution import Measures

TRACE_BYTES = 4096
LINE_CHARACTERS = 2000
_LIBC = ctypes.CDLL(None)


class SegmentOutput:
    """The worker's log file, which is its standard output and error.

    Args:
        path: the log file; empty: the output goes to the user's terminal.

    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.start = self._position()

    def begin(self) -> None:
        """Begin a segment."""
        self.start = self._position()

    def account(self, measures: Measures) -> dict[str, Any]:
        """Return the fields of `SegmentTotals` for the whole segment."""
        log, log_start, log_end = self._segment()
        return {
            "seconds": measures.computing_ns / NANOSECONDS,
            "iterations": measures.iterations,
            "strips": measures.strips,
            "transfer_in": measures.transfer_in,
            "transfer_out": measures.transfer_out,
            "set_up": measures.set_up,
            "compiling": measures.compiling_ns / NANOSECONDS,
            "cpu_seconds": measures.cpu_ns_so_far() / NANOSECONDS,
            "ended": time.time_ns() / NANOSECONDS,
            "log": log,
            "log_start": log_start,
            "log_end": log_end,
        }

    def failed(
        self, task: int, epoch: int, error: BaseException, measures: Measures
    ) -> Failed:
        """Return the report of a failed segment."""
        trace = trace_of(error)
        if self.path:  # the program shows it on its terminal itself
            self._print(trace)
        log, log_start, log_end = self._segment()
        text = cut(one_line(error))
        record = replace(own_page.read(), task=task, epoch=epoch, log_start=log_start)
        return Failed(
            task=task,
            epoch=epoch,
            error=text,
            code=cut(error.code, NAME_BYTES)
            if isinstance(error, HetError)
            else "task-failed",
            trace=trace,
            exit_code=error.exit_code
            if isinstance(error, CommandFailedError)
            else None,
            last=of_failed(record, log, text),
            seconds=measures.computing_ns / NANOSECONDS,
            strips=measures.strips,
            ended=time.time_ns() / NANOSECONDS,
            log=log,
            log_start=log_start,
            log_end=log_end,
        )

    def _print(self, trace: str) -> None:
        """Write the traceback to the log."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(trace)

    def _segment(self) -> tuple[str, int, int]:
        """Return the path, and the start and end of the segment so far in bytes."""
        self._flush()
        return self.path, self.start, self._position()

    def _position(self) -> int:
        return os.lseek(1, 0, os.SEEK_END) if self.path else 0

    def _flush(self) -> None:
        # The app may have closed or replaced the streams, which must not fail its task.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        _LIBC.fflush(None)  # OpenCL's and C libraries' own printf


def one_line(error: BaseException) -> str:
    """Describe an error in one line; errors of libtask need no type name."""
    text = _text(error)
    if isinstance(error, HetError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())[:LINE_CHARACTERS]
    except BaseException:  # noqa: BLE001  an app's __str__ may raise anything
        return ""


def trace_of(error: BaseException) -> str:
    """Return the last lines of the traceback, at most `TRACE_BYTES` of them.

    It is empty if libtask itself found what is wrong: then the error's text says it.
    """
    if isinstance(error, HetError) and not is_of_app(error):
        return ""
    encoded = formatted(error).encode(errors="replace")
    if len(encoded) <= TRACE_BYTES:
        return encoded.decode()
    tail = encoded[-TRACE_BYTES:].decode(errors="ignore")
    return tail[tail.find("\n") + 1 :]
