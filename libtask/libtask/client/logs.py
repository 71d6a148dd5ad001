"""Reading the logs of tasks from their workers' files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import InputError
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from libtask.messages import TaskInfo


def logs_of(info: TaskInfo) -> str:
    """Return a task's output of all its segments; `info` must be a full record.

    Raises:
        InputError: a log is gone or belongs to another user.

    """
    owner = int(info.owner.removeprefix("uid:"))
    parts = []
    for each in info.segments:
        if not each.log or each.log_end == each.log_start:
            continue  # an empty log is not kept
        try:
            with opened(Path(each.log), owner) as log:
                parts.append(read(log, each.log_start, each.log_end)[0])
        except OSError as error:
            raise InputError(f"log {each.log}: {error.strerror}") from error
    return b"".join(parts).decode(errors="replace")
