"""Reports of what the code of the running task waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import MAX_IDS, Awaits, TaskEpoch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from libtask.worker.execution import Execution
    from libtask.worker.link import Link


class WaitReports:
    """Reports of one execution; the time of waits is not computing time.

    Args:
        link: the link to hetd.
        socket: its socket.
        task: the running task; `epoch`: of its binding.
        execution: its execution.
        uninterrupted: puts an interruption of the task's code off while the link is in use.

    """

    def __init__(  # noqa: PLR0913, PLR0917  what one execution has
        self,
        link: Link,
        socket: Path,
        task: int,
        epoch: int,
        execution: Execution,
        uninterrupted: AbstractContextManager[None],
    ) -> None:
        self.socket = socket
        self.run = TaskEpoch(task, epoch)
        self._link = link
        self._execution = execution
        self._uninterrupted = uninterrupted
        self._last: tuple[list[int], int] = ([], 0)
        """The last report, and the connection that it was sent over."""

    def report(self, tasks: list[int]) -> None:
        """Report the tasks that are waited for now, if hetd does not know."""
        with self._uninterrupted:
            if tasks:
                self._link.renew_if_lost()
                self._execution.suspend()
            else:
                self._execution.resume()
            news = (tasks[:MAX_IDS], self._link.connections)
            if news != self._last:
                self._last = news
                self._link.send(Awaits(self.run.task, self.run.epoch, news[0]))
