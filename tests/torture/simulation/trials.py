"""Trials of failed devices in a simulated child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libtask.messages import DeviceSpec
    from torture.simulation.world import World

FAILS = 0.3
"""Share of the trials that find wrong numbers."""


class SimulatedTrial:
    """A trial that takes its time, and finds the device good or bad."""

    def __init__(self, world: World, spec: DeviceSpec) -> None:
        self._world = world
        self._done = world.now + world.some(0.1, 5.0)
        self._outcome = "wrong numbers" if world.happens(FAILS) else ""
        world.note("hetd", "tries", spec.name)

    def outcome(self) -> str | None:
        """Return "" when the device computed right, else why not; None: not yet."""
        if self._world.now < self._done:
            return None
        self._world.note("hetd", "tried", self._outcome)
        return self._outcome

    def give_up(self) -> None:
        """End it."""
