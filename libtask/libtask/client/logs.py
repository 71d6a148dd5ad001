"""Logs of tasks, read where their workers write them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from libtask.errors import InputError
from libtask.worker.logs import opened, read

if TYPE_CHECKING:
    from libtask.messages import TaskInfo


def logs_of(info: TaskInfo) -> str:
    """Return what a task has written, on all resources where it ran; `info`: in full.

    Raises:
        InputError: a log is gone, or another user's.

    """
    owner = int(info.owner.removeprefix("uid:"))
    parts = []
    for each in info.segments:
        if not each.log or each.log_end == each.log_start:
            continue  # the log of a worker to which nothing was written is not kept
        try:
            with opened(Path(each.log), owner) as log:
                parts.append(read(log, each.log_start, each.log_end)[0])
        except OSError as error:
            raise InputError(f"log {each.log}: {error.strerror}") from error
    return b"".join(parts).decode(errors="replace")
