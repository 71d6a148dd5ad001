"""Sizes: an application's sample tasks with another value of one parameter."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from libtask.apps import build, resolve
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.task import Task

USUAL = "n"
"""The name that most applications use for their size parameter."""


def sized(app: str, samples: Sequence[Task], sizes: Sequence[str]) -> list[Task]:
    """Build tasks like an application's middle sample, with these sizes.

    Args:
        app: the application's name, for error messages.
        samples: its sample tasks; empty: its other parameters have their defaults.
        sizes: `KEY=VALUE`, or `VALUE` of the parameter `n`.

    Raises:
        InputError: the parameter does not exist, or its value is invalid.

    """
    if not samples:
        return [build(resolve(app), dict([_named(size)])) for size in sizes]
    model = samples[len(samples) // 2]
    return [_with(app, model, size) for size in sizes]


def _with(app: str, model: Task, size: str) -> Task:
    key, value = _named(size)
    names = [field.name for field in dataclasses.fields(model) if field.init]  # type: ignore[arg-type]  # applications are dataclasses
    if key not in names:
        offered = ", ".join(names)
        raise InputError(f"{app}: no parameter {key!r} for a size; it has: {offered}")
    parameters = {name: getattr(model, name) for name in names}
    return build(type(model), {**parameters, key: value})


def _named(size: str) -> tuple[str, int | float | str]:
    """Parse `KEY=VALUE`, or `VALUE` for the usual parameter."""
    key, equals, value = size.partition("=")
    return (key, _read(value)) if equals else (USUAL, _read(size))


def _read(value: str) -> int | float | str:
    """Parse a number, or return the text unchanged."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value
