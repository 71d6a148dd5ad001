"""Options and types that every command shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
socket_option = click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="The daemon's socket.  [default: $HETD_SOCKET, the user's, the system's]",
)


def shared(function: Decorated) -> Decorated:
    """Add `--json` and `--socket`."""
    return json_option(socket_option(function))


def connect(socket: Path | None) -> Client:
    """Open a client; its import is what a command's start-up costs."""
    from libtask.client.client import Client

    return Client(socket)


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Read `key=value` words.

    Raises:
        click.UsageError: a word without `=`.

    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set: expected key=value, got {text!r}")
        found[key.strip().replace("-", "_")] = value
    return found
