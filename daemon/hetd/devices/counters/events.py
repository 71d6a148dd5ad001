"""Performance events of the kernel: opened by `perf_event_open`, found in /sys.

A unit that counts (PMU) describes itself in `/sys/bus/event_source/devices/NAME`: its type,
the processors on which it is read, where the terms of an event lie in the number that
selects it, and some of its events with their scale.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import TYPE_CHECKING

from hetd.devices.counters.source import CounterError, number_of, text_of

if TYPE_CHECKING:
    from pathlib import Path

UNITS = "bus/event_source/devices"
HARDWARE = 0
"""Type of the events that every processor's own unit has."""
CYCLES, INSTRUCTIONS, CACHE_MISSES = 0, 1, 3
SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
"""`perf_event_open` by machine."""
ENABLED, RUNNING, GROUP = 1, 2, 8
"""Parts of what is read: times by which a count is scaled, all events of a group."""
SIZE = 64
"""Of the first version of `struct perf_event_attr`, which every kernel takes."""
CLOSE_ON_EXEC = 8
ALL_PROCESSES = -1
NUMBER_BYTES = 8
MOST_PROCESSORS = 1 << 14
"""In a list of the kernel's: no machine has more."""


class KernelEvents:
    """The kernel's events; tests put their own in its place."""

    def __init__(self) -> None:
        self._number = SYSTEM_CALLS.get(platform.machine())
        self._call = ctypes.CDLL(None, use_errno=True).syscall

    def open(self, attributes: bytes, cpu: int, group: int) -> int:
        """Open an event of all processes on a processor.

        Args:
            attributes: from `attributes_of`.
            cpu: the processor.
            group: descriptor of the event that leads the group; -1: it leads one.

        Raises:
            OSError: it is not there, or not permitted.

        """
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        found: int = self._call(
            ctypes.c_long(self._number),
            ctypes.c_char_p(attributes),
            ctypes.c_int(ALL_PROCESSES),
            ctypes.c_int(cpu),
            ctypes.c_int(group),
            ctypes.c_ulong(CLOSE_ON_EXEC),
        )
        if found < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return found

    def read(self, descriptor: int, numbers: int) -> tuple[int, ...]:
        """Read an open event: that many numbers of 64 bits."""
        data = os.read(descriptor, NUMBER_BYTES * numbers)
        return struct.unpack(f"={numbers}Q", data)


def attributes_of(kind: int, config: int, read_format: int) -> bytes:
    """Return the `struct perf_event_attr` of an event that counts from the start."""
    return struct.pack("=IIQQQQQIIQ", kind, SIZE, config, 0, 0, read_format, 0, 0, 0, 0)


class EventGroup:
    """Events of one unit on one processor that count at the same times.

    Raises:
        CounterError: they are not there, or not permitted.

    """

    def __init__(
        self, kernel: KernelEvents, kind: int, configs: tuple[int, ...], cpu: int
    ) -> None:
        self._kernel = kernel
        self._count = len(configs)
        self._leader = -1
        for config in configs:
            attributes = attributes_of(kind, config, ENABLED | RUNNING | GROUP)
            try:
                opened = kernel.open(attributes, cpu, self._leader)
            except OSError as error:
                raise CounterError(explained(error)) from error
            if self._leader < 0:
                self._leader = opened

    def counts(self) -> list[float]:
        """Return the counts, scaled by the share of the time in which they counted."""
        try:
            found = self._kernel.read(self._leader, 3 + self._count)
        except (OSError, struct.error) as error:
            raise CounterError(f"an event cannot be read: {error}") from error
        _, enabled, running, *counts = found
        scale = enabled / running if running else 0.0
        return [scale * count for count in counts]


def explained(error: OSError) -> str:
    """Say what keeps an event from being opened."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted: needs CAP_PERFMON or kernel.perf_event_paranoid <= 0"
    if error.errno in {errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL}:
        return "this processor, or this virtual machine, has no such counters"
    return f"perf_event_open: {error.strerror}"


class Unit:
    """A unit that counts, as /sys describes it.

    Attributes:
        kind: its type; `cpus`: processors on which it is read.

    Raises:
        CounterError: it is not described as expected.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind = number_of(text_of(folder / "type").strip())
        mask = folder / "cpumask"
        self.cpus = numbers_in(text_of(mask)) if mask.exists() else [0]

    def has(self, event: str) -> bool:
        """Return whether it names an event."""
        return (self._folder / "events" / event).exists()

    def config(self, event: str) -> int:
        """Return what selects a named event."""
        return self.config_of(text_of(self._folder / "events" / event).strip())

    def scale(self, event: str) -> float:
        """Return the factor of a named event's count; 1 where none is given."""
        file = self._folder / "events" / f"{event}.scale"
        if not file.exists():
            return 1.0
        text = text_of(file).strip()
        try:
            return float(text)
        except ValueError as error:
            raise CounterError(f"{file}: no number: {text[:20]!r}") from error

    def config_of(self, terms: str) -> int:
        """Return what selects the event with terms like `event=0x04,umask=0x03`."""
        config = 0
        for term in terms.split(","):
            name, _, value = term.partition("=")
            config |= self._placed(name, number_of(value or "1"))
        return config

    def _placed(self, term: str, value: int) -> int:
        """Put a term's value into the bits that the unit says, lowest bits first."""
        text = text_of(self._folder / "format" / term).strip()
        field, _, bits = text.partition(":")
        if field != "config":
            raise CounterError(f"{self._folder.name}: {term} is in {text[:40]!r}")
        placed = 0
        for position, bit in enumerate(numbers_in(bits)):
            placed |= (value >> position & 1) << bit
        return placed


def numbers_in(text: str) -> list[int]:
    """Return the numbers in a list of the kernel's: `0-3,8`."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        begin, end = number_of(first), number_of(last or first)
        if end - begin > MOST_PROCESSORS:
            raise CounterError(f"expected a short list, got {text[:20]!r}")
        found.extend(range(begin, end + 1))
    return found
