"""Twin GPUs as administrators see them, and trials whose outcomes a test decides."""

from __future__ import annotations

from libtask import messages as m
from unit.daemon_shell import DEVICES, Shell

TWINS = [*DEVICES, m.DeviceInfo(m.DeviceSpec("gpu1", "gpu", "null"))]


class Trials:
    """Trials whose outcomes a test decides."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up = 0
        self.outcomes: list[str | None] = []

    def begin(self, spec: m.DeviceSpec) -> Trials:
        self.begun.append(spec.name)
        return self

    def outcome(self) -> str | None:
        return self.outcomes.pop(0) if self.outcomes else None

    def give_up(self) -> None:
        self.given_up += 1


def give_trials(shell: Shell) -> Trials:
    trials = Trials()
    shell.runtime.watchdog.health.try_device = trials.begin
    return trials


def device_of(shell: Shell, name: str = "gpu0") -> m.DeviceInfo:
    devices: list[m.DeviceInfo] = shell.ask(m.Devices(1)).devices
    (found,) = [each for each in devices if each.spec.name == name]
    return found
