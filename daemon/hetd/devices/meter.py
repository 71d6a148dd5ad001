"""Meters: what a source of energy readings offers, and what goes wrong with one."""

from __future__ import annotations

from typing import Protocol

from libtask.errors import HetError


class MeterError(HetError):
    """A meter cannot be read: absent, forbidden or gone. The model takes its place."""

    code = "meter"


class Meter(Protocol):
    """Energy of one resource, measured."""

    def joules(self) -> float:
        """Return the energy since the meter was opened; never less than before.

        Raises:
            MeterError: it cannot be read any more; it is not asked again.

        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
