"""Options of several commands: `--set key=value`, and numbers that are numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


MOST = 1e9
"""Greatest value of an option: as seconds, three decades."""


class FiniteRange(click.FloatRange):
    """A number within limits; `click.FloatRange` accepts nan, which is below no limit."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Turn `key=value` texts into parameters of a policy, which converts the values.

    Raises:
        InputError: one is not of that form, or a key is repeated.

    """
    parameters: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError(f'--set: expected key=value, got "{setting}"')
        name = key.strip().replace("-", "_")
        if name in parameters:
            raise InputError(f"--set: {name} is given twice")
        parameters[name] = value.strip()
    return parameters
