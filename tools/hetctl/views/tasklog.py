"""What tasks printed, read from the logs of the workers in which they ran."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import InputError
from libtask.messages import Segment
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from libtask.messages import TaskInfo


def last_lines(info: TaskInfo, count: int) -> str:
    """Return the last lines that a task printed, on whatever resources.

    Raises:
        InputError: a log is gone, or another user's.

    """
    last = before_running(info)
    segments = [each for each in info.segments if each.log]
    segments += [last] if last is not None else []
    data = b"".join(
        read_stretch(info.owner, each, 0)[0]
        for each in segments
        if each.log_end != each.log_start
    )
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-count:])


def before_running(info: TaskInfo) -> Segment | None:
    """Return the output of a task that failed, or lost its worker, while it waited.

    It was loaded ahead, and no stretch on a resource tells of it.
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


def read_stretch(owner: str, segment: Segment, skip: int) -> tuple[bytes, int]:
    """Read a segment's part of its worker's log; of a running one what is there.

    Where it lies is the worker's word: an administrator must not be made to read what
    is another's.

    Returns:
        What to show, with a line for what was dropped; and where in the log it ends.

    Raises:
        InputError: the log is gone, or another user's.

    """
    try:
        with opened(Path(segment.log), int(owner.removeprefix("uid:"))) as log:
            return read(log, segment.log_start + skip, segment.log_end)
    except OSError as error:
        raise InputError(f"log {segment.log}: {error.strerror}") from error
