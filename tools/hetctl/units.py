"""Durations, moments and amounts: parsed as users write them, formatted for people."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any, ClassVar

import click

from hetctl.output import now
from libtask.documents import (
    ALL_CORES,
    LARGEST_WHOLE,
    MAX_BYTES,
    MAX_CORES,
    MAX_TIME,
)

SECONDS = {
    "": 1.0,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
MINUTE = 60
HOUR = 3600
_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*")


LONGEST_S = 3e9
"""The longest duration, a century; longer ones are typing errors."""


def parse_duration(text: str) -> float:
    """Parse `90s`, `1.5min`, `2h`; a bare number is seconds.

    Raises:
        ValueError: not a duration; the text shows the expected form.

    """
    seconds = _seconds(text)
    if seconds > LONGEST_S:
        raise ValueError("expected a duration of a century at most")
    return seconds


def _seconds(text: str) -> float:
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2] not in SECONDS:
        raise ValueError(f"expected a duration such as 90s, 15min or 2h, got {text!r}")
    return float(found[1]) * SECONDS[found[2]]


KIB = 1024


def readable_duration(seconds: float | None) -> str:
    """Format a duration with two significant units: `42 ms`, `3.1 s`, `2 min 05 s`."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    if seconds < HOUR:
        return f"{int(seconds) // MINUTE} min {int(seconds) % MINUTE:02d} s"
    return f"{int(seconds) // HOUR} h {int(seconds) % HOUR // MINUTE:02d} min"


def readable_bytes(size: int) -> str:
    """Format a number of bytes with the unit that leaves few digits."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB or unit == "GiB":
            break
        value /= KIB
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def readable_joules(joules: float) -> str:
    """Format an energy: `12 mJ`, `3.1 J`, `1.4 kJ`."""
    for unit, factor in (("kJ", 1e3), ("J", 1.0)):
        if joules >= factor:
            return f"{joules / factor:.3g} {unit}"
    return f"{1e3 * joules:.3g} mJ"


class ParsedText(click.ParamType[Any]):
    """An option whose value a function parses from its text; its ValueErrors are shown."""

    parse: ClassVar[staticmethod[[str], Any]]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.ParamType[int]):
    """A whole number on the command line that fits into a message.

    No `click.IntRange`: manuals would show the largest number that fits.
    """

    name = "integer"

    def __init__(self, least: int = -LARGEST_WHOLE) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        number = click.INT.convert(value, param, ctx)
        if self._least <= number <= LARGEST_WHOLE:
            return int(number)
        least = self._least if self._least > -LARGEST_WHOLE else "-2**63"
        return self.fail(f"{value} is not from {least} to 2**63 - 1", param, ctx)


SIZES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int:
    """Parse `512M`, `4G`, `1.5 GiB`; a bare number is bytes. Units are powers of 1024.

    Raises:
        ValueError: not a size; the text shows the expected form.

    """
    found = _AMOUNT.fullmatch(text)
    unit = found[2].upper().removesuffix("B").removesuffix("I") if found else "?"
    if found is None or unit not in SIZES:
        raise ValueError(f"expected a size such as 512M or 4G, got {text!r}")
    size = float(found[1]) * KIB ** SIZES[unit]
    if not 1 <= size <= MAX_BYTES:
        raise ValueError(f"expected a size from 1 byte to 1024 PiB, got {text!r}")
    return int(size)


class ByteSize(ParsedText):
    """A size on the command line, in bytes."""

    name = "size"
    parse = staticmethod(parse_size)


def parse_cores(text: str) -> int:
    """Parse a number of processor cores, or `all`.

    Raises:
        ValueError: neither; the text shows the expected form.

    """
    if text == "all":
        return ALL_CORES
    if not (text.isdecimal() and 0 < int(text) <= MAX_CORES):
        raise ValueError(f"expected a number of cores, or all; got {text!r}")
    return int(text)


class CoreCount(ParsedText):
    """A number of processor cores on the command line, or `all`."""

    name = "cores"
    parse = staticmethod(parse_cores)


class Duration(ParsedText):
    """A duration on the command line, in seconds."""

    name = "duration"
    parse = staticmethod(parse_duration)


SHORTEST_INTERVAL_S = 0.1
"""The shortest time between two updates; shorter ones would keep a processor busy."""


def parse_interval(text: str) -> float:
    """Parse the time between two updates.

    Raises:
        ValueError: not a duration, or too short.

    """
    seconds = parse_duration(text)
    if seconds < SHORTEST_INTERVAL_S:
        raise ValueError(f"expected at least {SHORTEST_INTERVAL_S} s, got {text!r}")
    return seconds


class Interval(ParsedText):
    """The time between two updates on the command line, in seconds."""

    name = "duration"
    parse = staticmethod(parse_interval)


def parse_expected(text: str) -> tuple[str, float]:
    """Parse the time that is expected on a resource or kind: `gpu=30s`.

    Raises:
        ValueError: the text has another form.

    """
    place, mark, duration = text.partition("=")
    if not (place and mark):
        raise ValueError(
            f"expected a kind or resource and a time: gpu=30s; got {text!r}"
        )
    return place, parse_duration(duration)


class ExpectedTime(ParsedText):
    """The time that is expected on a resource or kind."""

    name = "where=duration"
    parse = staticmethod(parse_expected)


# ------------------------------------------------------------ moments

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


class Moment(ParsedText):
    """A time, or a duration before now, in seconds since the epoch."""

    name = "time|duration"
    parse = staticmethod(lambda text: moment(text, now()))


def moment(text: str, now_s: float) -> float:
    """Parse a time (of day: today's; without a zone: local), or a duration before now.

    Raises:
        ValueError: the text is neither; the message shows the expected forms.

    """
    try:
        return _moment(text, now_s)
    except (ValueError, OverflowError):
        expected = "a time such as 2026-01-02T03:04 or 14:30, or a duration as 2h"
        raise ValueError(f"expected {expected}, got {text!r}") from None


def _moment(text: str, now_s: float) -> float:
    try:
        return now_s - parse_duration(text)
    except ValueError:
        pass  # not a duration: parse it as a time
    if _TIME_OF_DAY.fullmatch(text.strip()):
        return _on_day(_local_date(now_s), text)
    return dt.datetime.fromisoformat(text).timestamp()


def _local_date(now_s: float) -> dt.date:
    return dt.datetime.fromtimestamp(now_s, dt.UTC).astimezone().date()


def _on_day(day: dt.date, text: str) -> float:
    """Return a local time of a day in seconds since the epoch."""
    hour, _, rest = text.strip().partition(":")
    return dt.datetime.fromisoformat(f"{day}T{hour.zfill(2)}:{rest}").timestamp()


YEAR_TOO_FAR = 2286
"""The year of `MAX_TIME`, in whose November a message's times end."""


class Beginning(ParsedText):
    """A time from which a task may start, in seconds since the epoch."""

    name = "time|+duration"
    parse = staticmethod(lambda text: beginning(text, now()))


def beginning(text: str, now_s: float) -> float:
    """Parse `22:00` (the next one), `+2h`, or a date with or without a time.

    Times without a zone are local.

    Raises:
        ValueError: the text has another form, and the message shows the expected one; or
            the time is after the year 2285.

    """
    try:
        found = _beginning(text.strip(), now_s)
    except ValueError:
        found = -1.0
    if found > MAX_TIME:
        raise ValueError(
            f"expected a time before the year {YEAR_TOO_FAR}, got {text!r}"
        )
    if found < 0:
        raise ValueError(
            f"expected a time such as 22:00, +2h or 2026-01-02T03:04, got {text!r}"
        )
    return found


def _beginning(text: str, now_s: float) -> float:
    if text.startswith("+"):
        return now_s + _seconds(text[1:])
    if not _TIME_OF_DAY.fullmatch(text):
        found = dt.datetime.fromisoformat(text)
        # the last days before the year 10000 have no timestamp
        return found.timestamp() if found.year < YEAR_TOO_FAR else math.inf
    today = _local_date(now_s)
    today_s = _on_day(today, text)
    return today_s if today_s > now_s else _on_day(today + dt.timedelta(days=1), text)
