"""`hetctl submit --python PATH`: submit as the hetctl of another interpreter would.

Applications are described by the interpreter that runs them, which knows their parameters
and sizes. So this process becomes that interpreter's hetctl, with the same arguments.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from libtask.errors import InputError

OPTION = "--python"
BOOT = """
import sys
python = sys.executable
advice = f"install it with: {python} -m pip install hetd-*.whl"
if sys.version_info < (3, 11):
    sys.exit(f"hetctl: {python} is Python {sys.version.split()[0]}; tasks need 3.11 or newer")
try:
    from hetctl.__main__ import main
except Exception as error:
    text = f"{type(error).__name__}: {error}"
    sys.stderr.write(f"hetctl: {python} has no usable hetd ({text}); {advice}" + chr(10))
    sys.exit(2)
main(prog_name="hetctl")
"""
"""Program of the other interpreter; without hetd it explains what to install."""


def become_chosen(words: list[str]) -> list[str]:
    """Take `--python PATH` out of a command's words; continue as that interpreter.

    Args:
        words: those before `--`.

    Returns:
        The other words, if this is the interpreter, or none is named.

    Raises:
        InputError: there is no such program.

    """
    chosen, left = _split(words)
    if chosen is None:
        return words
    program = shutil.which(chosen)
    if program is None:
        raise InputError(f"{OPTION}: no program {chosen}")
    path = str(Path(program).absolute())
    if path != sys.executable:
        own = sys.argv[1:]
        place = own.index("--") if "--" in own else len(own)
        _, others = _split(own[:place])
        try:
            # not through a shell
            os.execv(path, [path, "-P", "-c", BOOT, *others, *own[place:]])  # noqa: S606
        except OSError as error:
            raise InputError(f"{OPTION}: {path}: {error.strerror}") from error
    return left


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the interpreter that the words name, and the other words."""
    chosen, left = None, []
    rest = iter(words)
    for word in rest:
        if word == OPTION:
            chosen = next(rest, None)
            if chosen is None:
                raise click.UsageError(f"Option {OPTION!r} requires an argument.")
        elif word.startswith(f"{OPTION}="):
            chosen = word.partition("=")[2]
        else:
            left.append(word)
    return chosen, left


def refused(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Refuse the option where it is not on the command line of an application.

    Raises:
        click.UsageError: it was given.

    """
    del ctx, param
    if value is not None:
        raise click.UsageError(f"{OPTION} is for applications, on the command line")
