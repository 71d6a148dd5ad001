"""`--set key=value` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


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
