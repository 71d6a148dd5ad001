"""Extreme numbers in every option that takes one: one line each, no traceback."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from hetctl.__main__ import COMMANDS, main
from hetctl.commands.control import parse_changes
from hetctl.selectors import ids_in
from hetctl.units import Duration, Whole
from libtask.errors import InputError, NotFoundError
from libtask.messages import Control, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.fake_daemon import FakeDaemon

HUGE = ("9" * 30, "-" + "9" * 30, "9" * 5000, str(2**63), str(-(2**63) - 1))
NUMBERS = (*HUGE, "1e400", "nan", "inf", "-1", "x", "", "٣")
KINDS = (click.IntRange, click.FloatRange, Duration, Whole)
UNBOUNDED = {"top", "web", "metrics"}
"""Commands that run until they are stopped."""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "submit": ("synthetic", "--seconds", '{"cpu": 1}'),
    "wait": ("1",),
}


def _failure(*words: str) -> str:
    """Run a command; return the fault of its end, empty if there is none."""
    result = CliRunner().invoke(main, words)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return f"{words[0]} {words[-2]} {words[-1][:40]}: {error!r}"
    if len(result.stderr.splitlines()) > 1:
        return f"{words[0]} {words[-2]}: {result.stderr[:300]}"
    return ""


def _commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for inner, each in command.commands.items():
                yield (name, inner), each
        elif name not in UNBOUNDED:
            yield (name,), command


def _options() -> Iterator[tuple[tuple[str, ...], str]]:
    for name, command in _commands():
        for option in command.params:
            number = isinstance(option.type, KINDS) or option.type is click.INT
            if isinstance(option, click.Option) and number:
                yield name, option.opts[0]


OPTIONS = list(_options())


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=str)
def test_options_that_take_a_number(
    daemon: FakeDaemon, name: tuple[str, ...], option: str
) -> None:
    words = (*name, *ARGUMENTS.get(name[0], ()))

    wrong = [_failure(*words, option, number) for number in HUGE[:3]]

    assert [each for each in wrong if each] == []


SELECTING = ("show", "explain", "wait", "cancel", "hold", "release", "logs", "list")


@pytest.mark.parametrize("name", SELECTING)
def test_ids(daemon: FakeDaemon, name: str) -> None:
    for number in (HUGE[0], HUGE[2], HUGE[3], f"1-{HUGE[2]}"):
        assert _failure(name, "--", number) == ""


def test_numbers_that_are_set() -> None:
    for number in NUMBERS:
        for key in ("priority", "deadline"):
            with contextlib.suppress(InputError):
                parse_changes([f"{key}={number}"])


def test_ids_that_are_read() -> None:
    for number in NUMBERS:
        for word in (number, f"1-{number}"):
            with contextlib.suppress(InputError, NotFoundError):
                ids_in(word)


def test_there_are_options_to_try() -> None:
    tried = {option for _, option in OPTIONS}

    assert {"--priority", "--strip", "--count", "--timeout", "--limit"} <= tried


def test_no_message_contains_values_that_the_wire_cannot_carry() -> None:
    nested: Any = []
    for _ in range(200_000):  # Python 3.12 takes some thousands
        nested = [nested]

    with pytest.raises(InputError, match="more than 64 bits"):
        encode(Control(1, "cancel", [2**64]))
    with pytest.raises(InputError, match="nested too deeply"):
        encode(Control(1, "cancel", nested))
