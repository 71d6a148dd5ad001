"""Scripts: files whose `#HET` lines hold options of `hetctl submit`.

    #!/bin/sh
    #HET --on gpu0 --name train
    #HET --stop-signal USR1
    python train.py

Such lines are read up to the first line that is not a comment. Options on the command
line take precedence over the file, and later lines over earlier ones.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from libtask.errors import InputError
from libtask.whole_files import LARGEST_TEXT, read_whole
from libtask.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "#HET"
FOREIGN = b"#SBATCH"
NOT_IN_FILES = frozenset({"app", "rest", "as_json", "socket", "start"})
"""Options that only the command line may have."""


def is_script(app: str) -> bool:
    """Return whether the word names a script instead of an application."""
    if app == "-":
        return True
    if ":" in app or not Path(app).is_file():
        return False
    try:
        with Path(app).open("rb") as file:
            head = file.read(2)
    except OSError:
        return False
    return head == b"#!"


def content_of(app: str) -> bytes:
    """Read a script; `-` is standard input.

    Raises:
        InputError: it cannot be read, or is too large.

    """
    try:
        return read_whole(sys.stdin.buffer if app == "-" else Path(app), LARGEST_TEXT)
    except OSError as error:
        raise InputError(f"{app}: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{app}: {error}") from error


def options_in(
    name: str, content: bytes, command: click.Command, given: click.Context
) -> dict[str, Any]:
    """Return the options of a script, overridden by those on the command line.

    Raises:
        InputError: an unknown option; the text names the line.

    """
    found: dict[str, Any] = {}
    for number, words in _lines(name, content):
        found |= _parsed(f"{name}: line {number}", words, command, given)
    typed = {key: given.params[key] for key in given.params if _is_typed(given, key)}
    return {**given.params, **found, **typed}


def has_foreign_options(content: bytes) -> bool:
    """Whether options for Slurm are in a script, and none for hetctl."""
    header = itertools.takewhile(_is_header, content.splitlines())
    marks = {line.strip().partition(b" ")[0] for line in header}
    return FOREIGN in marks and MARK.encode() not in marks


def _is_header(line: bytes) -> bool:
    return not line.strip() or line.strip().startswith(b"#")


def _lines(name: str, content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line of options."""
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            return
        if not text.startswith(MARK) or text[len(MARK) :][:1].strip():
            continue
        try:
            yield number, shlex.split(text[len(MARK) :], comments=True)
        except ValueError as error:
            raise InputError(f"{name}: line {number}: {one_line(error)}") from error


def _parsed(
    place: str, words: list[str], command: click.Command, given: click.Context
) -> dict[str, Any]:
    try:
        with command.make_context("submit", list(words), parent=given.parent) as line:
            odd = [word for word in (line.params["app"], *line.params["rest"]) if word]
            found = {
                key: line.params[key] for key in line.params if _is_typed(line, key)
            }
    except click.UsageError as error:
        raise InputError(f"{place}: {error.format_message()}") from error
    if odd:
        raise InputError(f"{place}: no option {odd[0]!r}; see hetctl submit --help")
    refused = NOT_IN_FILES & found.keys()
    if refused:
        raise InputError(f"{place}: an option that scripts cannot have: {min(refused)}")
    return found


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
