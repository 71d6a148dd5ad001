"""Called tasks: tasks that the code of another one submitted, and that end with its run.

A call of a function may submit calls and wait for them. If it fails, is cancelled, or loses its
worker, nobody waits for these any more; a call that runs again submits its own. So hetd cancels
them, in slices, and with them what they have called. Where the caller completes, they go on: it
may have meant to leave them behind.

Requests call this, and the runtime at its start and when a caller's state has changed.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from hetsched import events as e
from hetsched.ids import TaskId
from hetsched.tasks import State
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hetd.tasks.journal import Journal
    from hetd.tasks.page import TaskPage
    from hetd.timers import Timers
    from hetsched.events import Event
    from hetsched.ids import Nanoseconds
    from libtask.messages import TaskSpec

SLICE = 100
"""Tasks that one turn of the loop cancels."""


class CalledTasks:
    """The unfinished tasks that others have called."""

    def __init__(self, journal: Journal, timers: Timers) -> None:
        self._journal = journal
        self._timers = timers

    def check(self, owner: int, specs: Sequence[TaskSpec]) -> None:
        """Refuse tasks of a caller that does not run, or is not their owner's.

        Raises:
            InputError: names the caller.

        """
        callers = {
            (spec.caller.task, spec.caller.epoch) for spec in specs if spec.caller
        }
        for task, epoch in callers:
            page = self._journal.live.get(task)
            if page is None or page.owner != owner or not _runs(page, epoch):
                raise InputError(
                    f"task {task}, which submits this one, does not run any more"
                )

    def changed(self, caller: int) -> None:
        """Cancel what a task has called in a run that is over, in later turns."""
        if next(self._left_behind(caller), None) is not None:
            now = self._timers.clock.now()
            self._timers.set(_named(caller), now, partial(self._cancel_some, caller))

    def recall(self) -> None:
        """Cancel what was left when hetd stopped; called once at its start."""
        for caller in self._journal.called:
            self.changed(caller)

    def _cancel_some(self, caller: int, _now: Nanoseconds) -> Sequence[Event]:
        some = list(islice(self._left_behind(caller), SLICE))
        if some:
            self.changed(caller)
        reason = f"task {caller}, which called it, {self._end_of(caller)}"
        return [e.TaskCancelled(TaskId(page.id), reason) for page in some]

    def _left_behind(self, caller: int) -> Iterator[TaskPage]:
        """Iterate over the tasks of a caller's runs that are over without a result."""
        page = self._journal.find(caller)
        if page is not None and page.state is State.COMPLETED:
            return
        for each in self._journal.called.get(caller, {}).values():
            run = each.spec.caller
            goes_on = page is not None and run is not None and _runs(page, run.epoch)
            if not goes_on and each.runtime.cancelling is None:
                yield each

    def _end_of(self, caller: int) -> str:
        """Say how a caller's run ended."""
        page = self._journal.find(caller)
        if page is None:
            return "is no longer known"
        return f"ended as {page.state}" if page.state.ended else "has lost its worker"


def _runs(page: TaskPage, epoch: int) -> bool:
    """Whether the process that a run began in still has the task."""
    runtime = page.runtime
    return runtime.bound and runtime.epoch == epoch


def _named(caller: int) -> str:
    """Name the timer of a caller."""
    return f"called by {caller}"
