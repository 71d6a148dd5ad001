"""The terminal: what is printed for a person or a program, and cannot steer it.

All that `hetctl` prints goes through here, as it may hold other users' words.
"""

from __future__ import annotations

import click

from libtask.plaintext import CONTROLS, visible

_IN_JSON = {code: f"\\u{code:04x}" for code in CONTROLS if code > ord("~")}
"""JSON has escapes of its own for what is below."""


def say(text: str = "", *, err: bool = False) -> None:
    """Print for a person; to standard error with `err`."""
    click.echo(visible(text), err=err)


def say_json(document: bytes, *, err: bool = False) -> None:
    """Print a JSON document; it holds the same as before. To standard error with `err`."""
    click.echo(document.decode().translate(_IN_JSON), err=err)
