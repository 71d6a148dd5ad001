"""Columns of listings: their choice, their order, and sorting by them.

`list` and `history` each have a table of columns; `-o` selects some, `--sort` sorts by
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from hetctl.output import say
from libtask.errors import InputError
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Item = TypeVar("Item")
Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column of a listing.

    Attributes:
        text: formats an item's value.
        key: returns the sort key; items with the key None come last.

    """

    text: Callable[[Item], str]
    key: Callable[[Item], Any]


def arranged(function: Decorated) -> Decorated:
    """Add the options `-o`, `--sort` and `--parsable`."""
    fields = click.option(
        "-o",
        "--fields",
        metavar="FIELDS",
        help="Columns to show, e.g. id,name,state; listed above.",
    )
    order = click.option(
        "--sort",
        metavar="FIELD",
        help="Sort by this column; a leading minus reverses the order.",
    )
    return fields(order(parsable_option(function)))


parsable_option = click.option(
    "--parsable",
    is_flag=True,
    help="Separate columns with | for programs; a | within a value becomes /.",
)


def chosen(
    fields: str | None, columns: Mapping[str, Column[Item]], default: Sequence[str]
) -> list[str]:
    """Return the names of the columns to show; `fields`: the user's text.

    Raises:
        InputError: an unknown column; the text lists the known ones.

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
    """Sort by a column, if one is given; items without a value come last.

    Raises:
        InputError: an unknown column.

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
    """Return the cells of each item."""
    return [tuple(columns[name].text(item) for name in names) for item in items]


def _demand(name: str, columns: Mapping[str, Column[Item]], option: str) -> None:
    if name not in columns:
        there = ", ".join(columns)
        hint = suggestion(name, columns)
        raise InputError(f"{option}: no column {name!r}{hint}; there are: {there}")


def report_truncation(shown: int, total: int) -> None:
    """Report on standard error that a listing of `total` tasks was cut by its limit."""
    if shown < total:
        say(
            f"hetctl: showing the newest {shown} of {total}; --limit {total} shows all",
            err=True,
        )
