"""The output of tasks, read from the logs of their workers: for `hetctl`, and for the nodes of a pool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import InputError, NotFoundError
from libtask.messages import Segment
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from libtask.messages import TaskInfo


def last_lines(info: TaskInfo, count: int) -> str:
    """Return the last lines of a task's output, from all resources.

    Raises:
        InputError: a log is missing, or belongs to another user.

    """
    last = before_running(info)
    segments = [each for each in info.segments if each.log]
    segments += [last] if last is not None else []
    data = b"".join(
        read_segment(info.owner, each, 0)[0]
        for each in segments
        if each.log_end != each.log_start
    )
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-count:])


def before_running(info: TaskInfo) -> Segment | None:
    """Return the output of a task that failed, or lost its worker, before it ran.

    The task was loaded ahead, so no segment has this output.
    """
    last = info.last_output
    if last is None or not last.log:
        return None
    place = (last.log, last.log_start)
    if any((each.log, each.log_start) == place for each in info.segments):
        return None
    return Segment(
        info.resource or "",
        0.0,
        log=last.log,
        log_start=last.log_start,
        log_end=last.log_end,
    )


def read_segment(owner: str, segment: Segment, skip: int) -> tuple[bytes, int]:
    """Read a segment's part of its worker's log; of a running segment, the part so far.

    The path comes from the worker, so the owner of the file is checked: an administrator
    must not be tricked into reading another user's file.

    Returns:
        The output, with a line that stands for dropped parts, and its end in the log.

    Raises:
        NotFoundError: the log is missing.
        InputError: it belongs to another user.

    """
    try:
        with opened(Path(segment.log), int(owner.removeprefix("uid:"))) as log:
            return read(log, segment.log_start + skip, segment.log_end)
    except FileNotFoundError as error:
        if segment.log_end is None:  # its worker was killed; empty logs are deleted
            return b"", segment.log_start
        raise NotFoundError(
            f"log {segment.log} is gone: the logs of past workers are removed in time"
        ) from error
    except OSError as error:
        raise InputError(f"log {segment.log}: {error.strerror}") from error
