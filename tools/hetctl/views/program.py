"""The facts of a program that runs as a task, for `hetctl show`."""

from __future__ import annotations

import shlex
from signal import Signals
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.units import readable_duration
from libtask.messages import COMMAND
from libtask.plaintext import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libtask.messages import TaskInfo

SCRIPT = "SCRIPT"
"""Stands for the file of a script, which a program reads as its argument."""


class Program(msgspec.Struct, frozen=True):
    """The parameters of a program that mean something to users; see `Command`."""

    argv: list[str] = []
    by_kind: dict[str, list[str]] = {}
    script: str = ""
    words_before: int = 0
    index: int | None = None
    output: str = ""
    error: str = ""
    stop_signal: int = 0
    grace_s: float = 60.0


def program_facts(info: TaskInfo) -> list[tuple[str, str | None]]:
    """Return the facts of a program, each with its name; empty if it is not one."""
    program = _program(info.params) if info.app == COMMAND else None
    if program is None:
        return []
    return [
        ("command", _words(program, program.argv)),
        *(
            (f"on {one_line(kind)}", _words(program, words))
            for kind, words in program.by_kind.items()
        ),
        ("index", None if program.index is None else str(program.index)),
        ("output", one_line(program.output)),
        ("errors", one_line(program.error)),
        ("to stop", _stop(program)),
    ]


def _program(params: Mapping[str, Any]) -> Program | None:
    try:
        return msgspec.convert(params, Program)
    except msgspec.ValidationError:
        return None


def _words(program: Program, words: list[str]) -> str:
    if program.script and words:
        before = program.words_before
        words = [*words[:before], SCRIPT, *words[before:]]
    return one_line(shlex.join(words))


def _stop(program: Program) -> str:
    if program.stop_signal not in set(Signals):
        return ""
    name = Signals(program.stop_signal).name
    return f"{name}, then {readable_duration(program.grace_s)} to save its state"
