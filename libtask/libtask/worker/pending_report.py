"""The last word: what a worker said last of a task, and says again to a new hetd.

It may have been lost with the connection on which it was sent. hetd knows an old one
by its epoch.
"""

from __future__ import annotations

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
    from collections.abc import Sequence

    from libtask.messages import Message, Register
    from libtask.worker.link import Link


CONFIRMED_S = 60.0
"""Seconds after which a hetd that was told and is still there has taken note."""


class PendingReport:
    """What was said last of the task that a worker holds, or held.

    Attributes:
        message: None: nothing that a new hetd would miss.
        ends: those of tasks ordered together, of which hetd may not know, in order; the
            last is `message` if that is one.
        settled: whether the hetd that it was told to has certainly taken note: it is
            still said again, and nobody has to stay for that.

    """

    def __init__(self) -> None:
        self.message: Message | None = None
        self.ends: list[Finished] = []
        self.settled = False
        self._sent_at: float | None = None

    def say(self, message: Message, link: Link, now: float) -> None:
        """Send what is said again to a new hetd.

        Args:
            message: what is said.
            link: the line to hetd.
            now: monotonic seconds.

        Raises:
            InputError: it holds a user's value that cannot travel.

        """
        self.settled = False
        self._sent_at = now if link.welcome is not None else None
        if _holds_user_values(message):
            link.send_validated(message)
        elif isinstance(message, Finished):
            link.send_batched(message)
        else:
            link.send(message)
        self.message = message
        if isinstance(message, Finished):
            self.ends.append(message)

    def repeat(self, link: Link) -> None:
        """Say it again to a hetd that asks again."""
        if self.message is not None:
            link.send(self.message)

    def take_back(self) -> None:
        """Take note that hetd ordered what makes it old."""
        self.message = None
        self.ends.clear()

    def after(self, hello: Register, lost_at: float) -> list[Message]:
        """Return what a new hetd hears first; the last one was there until `lost_at`."""
        if self.message is None and not self.ends:
            return [hello]
        told_at = self._sent_at
        self.settled |= told_at is not None and lost_at - told_at >= CONFIRMED_S
        self._sent_at = None
        ends = self.ends
        if not ends or [hello.task] == [end.task for end in ends]:
            return [hello, *([] if self.message is None else [self.message])]
        # of several tasks ordered together, and perhaps another one runs by now
        hello = msgspec.structs.replace(
            hello, ended=[TaskEpoch(end.task, end.epoch) for end in ends]
        )
        said = [hello, *self._reports_of_ends()]
        if self.message is not None and self.message is not ends[-1]:
            said.append(self.message)
        return said

    def _reports_of_ends(self) -> Sequence[Message]:
        if len(self.ends) == 1 or any(map(_holds_user_values, self.ends)):
            return self.ends  # results may be large
        return [Reports(list(self.ends))]

    def heard(self, now: float) -> None:
        """Take note that a new hetd is there, and was told."""
        self._sent_at = now

    def concerns(self) -> tuple[int | None, int]:
        """Return task and epoch of an end that hetd may not know."""
        if isinstance(self.message, Finished | Failed | Aborted | Parked):
            return self.message.task, self.message.epoch
        return None, 0

    def is_yield(self) -> bool:
        """Say whether the task yielded, and waits since."""
        return isinstance(self.message, Yielded)


def _holds_user_values(message: Message) -> bool:
    if isinstance(message, Finished):
        return message.result is not None
    return isinstance(message, Yielded) and bool(message.checkpoint.extra)
