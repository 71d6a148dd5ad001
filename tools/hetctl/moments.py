"""Moments: as users write them, absolute or so long ago."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import click

from hetctl.output import now
from hetctl.units import parse_duration

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


class Moment(click.ParamType[float]):
    """A time, or how long ago it was; in seconds since the epoch."""

    name = "time|duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return moment(value, now())
        except (ValueError, OverflowError):
            expected = "a time such as 2026-01-02T03:04 or 14:30, or a duration as 2h"
            self.fail(f"expected {expected}, got {value!r}", param, ctx)


def moment(text: str, now_s: float) -> float:
    """Read a time (of day: today's; without a zone: local), or a duration before now.

    Raises:
        ValueError: neither.

    """
    try:
        return now_s - parse_duration(text)
    except ValueError:
        pass  # then it is a time
    if _TIME_OF_DAY.fullmatch(text.strip()):
        today = dt.datetime.fromtimestamp(now_s, dt.UTC).astimezone().date()
        hour, _, rest = text.strip().partition(":")
        text = f"{today}T{hour.zfill(2)}:{rest}"
    return dt.datetime.fromisoformat(text).timestamp()
