"""hwmon: sensors that report energy (microjoules) or power (microwatts) of a chip.

Energy counters are read as they are. Power is integrated between readings, with the
mean of the two: good enough for a chip that is read ten times a second.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from hetd.devices.meter import MeterError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path("/sys/class/hwmon")
MICRO = 1e-6
ENERGY = ("energy1_input",)
POWER = ("power1_average", "power1_input")
"""In order of preference: an average over the driver's own interval is steadier."""


class Hwmon:
    """A chip's energy. A `Meter`.

    Args:
        chip: name of the driver, e.g. `amdgpu`.
        number: which of several chips of that name.
        root: where the sensors are.
        clock: seconds of a steady clock.

    Raises:
        MeterError: no such chip, or none of its sensors can be read.

    """

    def __init__(
        self,
        chip: str,
        number: int = 0,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        folder = _find(root, chip, number)
        self._clock = clock
        self._path, self._counts = _sensor(folder)
        self._last = self._read()
        self._at = clock()
        self._joules = 0.0

    def joules(self) -> float:
        value, at = self._read(), self._clock()
        if self._counts:
            self._joules += max(value - self._last, 0.0)
        else:
            self._joules += (value + self._last) / 2 * (at - self._at)
        self._last, self._at = value, at
        return self._joules

    def close(self) -> None:
        """Hold nothing."""

    def _read(self) -> float:
        try:
            return MICRO * int(self._path.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise MeterError(f"{self._path}: {error}") from error


def _find(root: Path, chip: str, number: int) -> Path:
    named = [folder for folder in sorted(root.glob("hwmon*")) if _name(folder) == chip]
    if number >= len(named):
        raise MeterError(f"{root}: no sensor {chip} number {number}")
    return named[number]


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _sensor(folder: Path) -> tuple[Path, bool]:
    """Choose a file; True: it counts energy."""
    for names, counts in ((ENERGY, True), (POWER, False)):
        for name in names:
            if (folder / name).exists():
                return folder / name, counts
    raise MeterError(f"{folder}: reports neither energy nor power")
