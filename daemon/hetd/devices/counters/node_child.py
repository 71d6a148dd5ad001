"""The child that reads the node's own counters: cores, memory and power.

    python -m hetd.devices.counters.node_child --every 0.25

Its values: `uncore`, `resctrl` and `perf`, bytes per second from and to memory; `ipc`,
instructions per cycle of all cores; `rapl`, watts. Each of them that cannot be read is a
line of reason (`hetd.devices.counters.child`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hetd.devices.counters.child import GrowthRate, Readers, print_values
from hetd.devices.counters.events import (
    CACHE_MISSES,
    CYCLES,
    HARDWARE,
    INSTRUCTIONS,
    UNITS,
    EventGroup,
    KernelEvents,
    Unit,
    numbers_in,
)
from hetd.devices.counters.source import SYS, CounterError, number_of, text_of
from hetd.devices.meter import MeterError
from hetd.devices.rapl import Rapl

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = 64.0
"""Bytes of a line of the cache, and of one transfer from or to memory."""
MIB = 1048576.0
MEMORY = ("uncore", "resctrl", "perf")
"""Values for the traffic of the memory, the most complete first: misses of the cache leave
out what is fetched ahead and written back."""
INTEL_EVENTS = (
    ("cas_count_read", "cas_count_write"),
    ("data_read", "data_write"),
    ("data_reads", "data_writes"),
)
"""Their scales are in MiB."""
AMD_EVENT = "event=0x0a"
"""`umc_cas_cmd.all`: column accesses, one line of the cache each."""
PACKAGE = "energy-pkg"
"""The event of the unit `power` for a whole processor."""


class CorePerformance:
    """Instructions per cycle and misses of the last cache of all cores.

    Args:
        sys: /sys; `kernel`: opens the events.

    """

    def __init__(self, sys: Path = SYS, kernel: KernelEvents | None = None) -> None:
        events = kernel or KernelEvents()
        chosen = (CYCLES, INSTRUCTIONS, CACHE_MISSES)
        cpus = numbers_in(text_of(sys / "devices/system/cpu/online"))
        self._cores = [EventGroup(events, HARDWARE, chosen, cpu) for cpu in cpus]
        self._misses = GrowthRate()
        self._before: tuple[float, float] | None = None

    def values(self, now: float) -> dict[str, float]:
        counts = zip(*(core.counts() for core in self._cores), strict=True)
        cycles, instructions, misses = map(sum, counts)
        found: dict[str, float] = {}
        rate = self._misses.of(LINE * misses, now)
        if rate is not None:
            found["perf"] = rate
        before, self._before = self._before, (cycles, instructions)
        if before is not None and cycles > before[0]:
            found["ipc"] = (instructions - before[1]) / (cycles - before[0])
        return found


class MemoryControllers:
    """Traffic that the memory controllers count: uncore events.

    Raises:
        CounterError: there is no such unit, or it may not be read.

    """

    def __init__(self, sys: Path = SYS, kernel: KernelEvents | None = None) -> None:
        root = sys / UNITS
        self._events: list[tuple[EventGroup, list[float]]] = []
        for unit, configs, scales in _controllers(root):
            for cpu in unit.cpus:
                group = EventGroup(kernel or KernelEvents(), unit.kind, configs, cpu)
                self._events.append((group, scales))
        if not self._events:
            raise CounterError(f"{root}: no uncore_imc or amd_umc")
        self._rate = GrowthRate()

    def values(self, now: float) -> dict[str, float]:
        total = sum(
            scale * count
            for group, scales in self._events
            for scale, count in zip(scales, group.counts(), strict=True)
        )
        return _named("uncore", self._rate.of(total, now))


def _controllers(root: Path) -> Iterator[tuple[Unit, tuple[int, ...], list[float]]]:
    """Yield units, the events for all of their traffic, and the bytes of a count of each."""
    intel = [Unit(folder) for folder in sorted(root.glob("uncore_imc*"))]
    for names in INTEL_EVENTS:
        able = [unit for unit in intel if all(unit.has(name) for name in names)]
        for unit in able:
            yield (
                unit,
                tuple(unit.config(name) for name in names),
                [MIB * unit.scale(name) for name in names],
            )
        if able:
            return  # other units count the same again
    for folder in sorted(root.glob("amd_umc*")):
        unit = Unit(folder)
        yield unit, (unit.config_of(AMD_EVENT),), [LINE]


class ResourceControl:
    """Traffic of all groups that `resctrl` counts: memory bandwidth monitoring.

    Raises:
        CounterError: it is not mounted, or the processor does not count.

    """

    def __init__(self, sys: Path = SYS) -> None:
        self._root = sys / "fs/resctrl"
        if not self._files():
            raise CounterError(f"{self._root}: not mounted, or without mbm_total_bytes")
        self._rate = GrowthRate()
        self._total()

    def values(self, now: float) -> dict[str, float]:
        return _named("resctrl", self._rate.of(self._total(), now))

    def _total(self) -> int:
        return sum(number_of(text_of(file).strip()) for file in self._files())

    def _files(self) -> list[Path]:
        """Return the counters of the default group and of all others, by cache.

        The groups that only monitor are parts of these.
        """
        counters = "mon_data/mon_L3_*/mbm_total_bytes"
        return [*self._root.glob(counters), *self._root.glob(f"*/{counters}")]


class Power:
    """Watts of the processors: through powercap, else through the unit `power`.

    Raises:
        CounterError: neither is there, or may be read.

    """

    def __init__(self, sys: Path = SYS, kernel: KernelEvents | None = None) -> None:
        self._meter: Rapl | PowerUnit
        try:
            self._meter = Rapl(sys / "class/powercap")
        except MeterError as error:
            try:
                self._meter = PowerUnit(sys, kernel or KernelEvents())
            except CounterError as other:
                raise CounterError(f"{error}; power events: {other}") from other
        self._rate = GrowthRate()

    def values(self, now: float) -> dict[str, float]:
        return _named("rapl", self._rate.of(self._meter.joules(), now))


class PowerUnit:
    """Energy of the processors by the unit `power`: AMD and Intel."""

    def __init__(self, sys: Path, kernel: KernelEvents) -> None:
        unit = Unit(sys / UNITS / "power")
        self._scale = unit.scale(PACKAGE)
        config = (unit.config(PACKAGE),)
        self._groups = [EventGroup(kernel, unit.kind, config, cpu) for cpu in unit.cpus]

    def joules(self) -> float:
        return self._scale * sum(sum(group.counts()) for group in self._groups)


def _named(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: value}


def main() -> None:
    """Read until the parent is gone."""
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=float, default=0.25)
    options.add_argument("--sys", type=Path, default=SYS)
    chosen = options.parse_args()
    readers = Readers(
        {
            ("uncore",): lambda: MemoryControllers(chosen.sys),
            ("resctrl",): lambda: ResourceControl(chosen.sys),
            ("perf", "ipc"): lambda: CorePerformance(chosen.sys),
            ("rapl",): lambda: Power(chosen.sys),
        }
    )
    print_values(readers, chosen.every, MEMORY)


if __name__ == "__main__":
    main()
