"""Pending reports: the last report of a task, which a worker repeats to a new hetd.

A report may be lost with the connection on which it was sent. hetd recognises an
outdated report by its epoch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from libtask.messages import (
    Aborted,
    Failed,
    Finished,
    Parked,
    Reports,
    TaskEpoch,
    Yielded,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.messages import Message, Register
    from libtask.worker.link import Link


MOST_ENDS = 64
"""Final reports that are kept: hetd sends more tasks of a batch only when it has processed
the first ones, and a worker has 16 of them at most."""
CONFIRMED_S = 60.0
"""Seconds after which a report counts as processed by a hetd that is still connected."""


class PendingReport:
    """The last report of the task that a worker holds or held.

    Attributes:
        message: the report; None: a new hetd needs none.
        ends: final reports of a batch that hetd may not know, in order; the last one is
            `message` if that is a final report.
        settled: whether the former hetd has certainly processed it: it is still
            repeated, but the worker need not wait for that.

    """

    def __init__(self) -> None:
        self.message: Message | None = None
        self.ends: deque[Finished] = deque(maxlen=MOST_ENDS)
        self.settled = False
        self._sent_at: float | None = None

    def say(self, message: Message, link: Link, now: float) -> None:
        """Send a report that is repeated to a new hetd.

        Args:
            message: the report.
            link: the link to hetd.
            now: monotonic seconds.

        Raises:
            InputError: it contains a user's value that cannot be encoded.

        """
        self.settled = False
        self._sent_at = now if link.welcome is not None else None
        if isinstance(message, Finished):
            link.send_batched(message)
        elif _holds_user_values(message):
            link.send_validated(message)
        else:
            link.send(message)
        self.message = message
        if isinstance(message, Finished):
            self.ends.append(message)

    def repeat(self, link: Link) -> None:
        """Send it again, because hetd repeated its command."""
        if self.message is not None:
            link.send(self.message)

    def take_back(self) -> None:
        """Drop the report: a later command from hetd shows that it is outdated."""
        self.message = None
        self.ends.clear()

    def after(self, hello: Register, lost_at: float) -> list[Message]:
        """Return the first messages to a new hetd; the former one was lost at `lost_at`."""
        if self.message is None and not self.ends:
            return [hello]
        told_at = self._sent_at
        self.settled |= told_at is not None and lost_at - told_at >= CONFIRMED_S
        self._sent_at = None
        ends = self.ends
        if not ends or [hello.task] == [end.task for end in ends]:
            return [hello, *([] if self.message is None else [self.message])]
        # several tasks of a batch, of which another may be running by now
        hello = msgspec.structs.replace(
            hello, ended=[TaskEpoch(end.task, end.epoch) for end in ends]
        )
        said = [hello, *self._reports_of_ends()]
        if self.message is not None and self.message is not ends[-1]:
            said.append(self.message)
        return said

    def _reports_of_ends(self) -> Iterable[Message]:
        if len(self.ends) == 1 or any(map(_holds_user_values, self.ends)):
            return self.ends  # results may be large
        return [Reports(list(self.ends))]

    def heard(self, now: float) -> None:
        """Record that a new hetd has received it."""
        self._sent_at = now

    def concerns(self) -> tuple[int | None, int]:
        """Return the task and epoch of an end that hetd may not know."""
        if isinstance(self.message, Finished | Failed | Aborted | Parked):
            return self.message.task, self.message.epoch
        return None, 0

    def is_yield(self) -> bool:
        """Return whether the report says that the task yielded."""
        return isinstance(self.message, Yielded)


def _holds_user_values(message: Message) -> bool:
    if isinstance(message, Finished):
        return message.result is not None
    return isinstance(message, Yielded) and bool(message.checkpoint.extra)
