"""A clock that tests turn."""

from __future__ import annotations

from hetd.clock import Clock
from hetsched.system import SECOND


class Hands:
    """The hands of a clock, which tests turn."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: int(self.seconds * SECOND), lambda: self.seconds)
