"""Columns: what a listing may show of a task, by name, and in which order.

`list` and `history` have a table of these each; `-o` chooses among them, `--sort` sorts
by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from hetctl.output import say
from libtask.errors import InputError
from libtask.parameters import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Item = TypeVar("Item")
Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """What is shown of one thing.

    Attributes:
        text: writes it for people.
        key: gives what is sorted by; None: nothing is known, which comes last.

    """

    text: Callable[[Item], str]
    key: Callable[[Item], Any]


def arranged(function: Decorated) -> Decorated:
    """Add the options `-o`, `--sort` and `--parsable`."""
    fields = click.option(
        "-o",
        "--fields",
        metavar="FIELDS",
        help="Columns, as id,name,state; help lists them.",
    )
    order = click.option(
        "--sort",
        metavar="FIELD",
        help="Sort by a column; with a minus before it, downwards.",
    )
    return fields(order(parsable_option(function)))


parsable_option = click.option(
    "--parsable",
    is_flag=True,
    help="Columns separated by |, for programs; a | within a value becomes /.",
)


def chosen(
    fields: str | None, columns: Mapping[str, Column[Item]], default: Sequence[str]
) -> list[str]:
    """Return the names of the columns to show; `fields`: as the user wrote them.

    Raises:
        InputError: there is no such column; lists those there are.

    """
    if fields is None:
        return list(default)
    names = [name.strip().lower() for name in fields.split(",")]
    for name in names:
        _demand(name, columns, "-o")
    return names


def ordered(
    items: Iterable[Item], sort: str | None, columns: Mapping[str, Column[Item]]
) -> list[Item]:
    """Sort by a column, where one is named; what has no value comes last.

    Raises:
        InputError: there is no such column.

    """
    if sort is None:
        return list(items)
    name = sort.removeprefix("-").strip().lower()
    _demand(name, columns, "--sort")
    pairs = [(columns[name].key(item), item) for item in items]
    known = [pair for pair in pairs if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return [item for _, item in known] + [item for key, item in pairs if key is None]


def rows(
    items: Iterable[Item], names: Sequence[str], columns: Mapping[str, Column[Item]]
) -> list[tuple[str, ...]]:
    """Write what is shown of each."""
    return [tuple(columns[name].text(item) for name in names) for item in items]


def _demand(name: str, columns: Mapping[str, Column[Item]], option: str) -> None:
    if name not in columns:
        there = ", ".join(columns)
        hint = suggestion(name, columns)
        raise InputError(f"{option}: no column {name!r}{hint}; there are: {there}")


def report_truncation(shown: int, total: int) -> None:
    """Say on standard error that there are more than were listed."""
    if shown < total:
        say(
            f"hetctl: the newest {shown} of {total}; --limit {total} lists all",
            err=True,
        )
