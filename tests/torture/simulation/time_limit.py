"""The time that a seed may take: a daemon that decides without end is a finding, too."""

from __future__ import annotations

import signal
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

LONGEST_S = 300.0
"""Seconds of processor time; a seed takes one, and the longest seen took 30."""
LAST_CALLS = 4


class EndlessError(BaseException):
    """A seed took too long; not an `Exception`, which the daemon would survive."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise EndlessError in what takes longer, with its last calls; only in the main thread."""
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _give_up(_signal: int, frame: FrameType | None) -> None:
    calls = traceback.extract_stack(frame)[-LAST_CALLS:]
    where = " > ".join(f"{call.name} ({call.filename}:{call.lineno})" for call in calls)
    raise EndlessError(f"no end in {LONGEST_S:g} s of processor time: {where}")
