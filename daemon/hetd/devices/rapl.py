"""RAPL through powercap: energy counters of CPU packages and their memory.

A counter counts microjoules and wraps around at `max_energy_range_uj`, within a minute
on some machines under load; the daemon reads far more often. Kernels since 5.10 let only
root read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hetd.devices.meter import MeterError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path("/sys/class/powercap")
COUNTED = ("package", "dram")
"""Prefixes of the domains that add up to the processor and its memory; cores and uncore
are parts of a package, and psys is the whole machine."""

MICRO = 1e-6


class Counter:
    """One energy counter that wraps around."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "energy_uj"
        self._range = _number(folder / "max_energy_range_uj")
        self._last = _number(self._path)
        self.microjoules = 0

    def read(self) -> int:
        """Return the microjoules since the start."""
        now = _number(self._path)
        passed = now - self._last
        if passed < 0:
            passed += self._range + 1
        self._last = now
        self.microjoules += max(passed, 0)
        return self.microjoules


class Rapl:
    """The CPU's energy: all packages and their memory. A `Meter`.

    Raises:
        MeterError: there is no readable counter.

    """

    def __init__(self, root: Path = ROOT) -> None:
        self._counters = [Counter(folder) for folder in _domains(root)]
        if not self._counters:
            raise MeterError(f"{root}: no RAPL domain")

    def joules(self) -> float:
        return MICRO * sum(counter.read() for counter in self._counters)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _domains(root: Path) -> Iterator[Path]:
    for folder in sorted(root.glob("intel-rapl:*")):
        if _text(folder / "name").startswith(COUNTED):
            yield folder


def _number(path: Path) -> int:
    text = _text(path)
    try:
        return int(text)
    except ValueError as error:
        raise MeterError(f"{path}: expected a number, got {text[:40]!r}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except PermissionError as error:
        raise MeterError(f"{path}: only root may read it") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise MeterError(f"{path}: {reason}") from error
