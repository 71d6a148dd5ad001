"""Options and types that every command shares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hetctl.completing import selectors
from hetctl.units import Duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.client import Client

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def _or_before(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Take what was given before the command's name where nothing is given after it."""
    return value or ctx.find_root().params.get(param.name or "") or value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_or_before, help="Print JSON."
)
socket_option = click.option(
    "--socket",
    # whether it can be used is for the connection to say, and why not
    type=click.Path(path_type=Path, readable=False),
    callback=_or_before,
    help="The daemon's socket.  [default: $HETD_SOCKET, the user's, the system's]",
)
start_option = click.option(
    "--start", is_flag=True, help="Start a daemon of your own where none answers."
)
wait_option = click.option(
    "--wait", "waiting", is_flag=True, help="Wait for the end; a line tells each."
)
follow_option = click.option(
    "--follow", is_flag=True, help="Wait, with live progress on a terminal."
)
timeout_option = click.option(
    "--timeout", type=Duration(), help="Wait no longer, e.g. 90s or 15min."
)

selectors_argument = click.argument(
    "selectors",
    nargs=-1,
    required=True,
    metavar="SELECTOR...",
    shell_complete=selectors,
)
optional_selectors = click.argument(
    "selectors", nargs=-1, metavar="[SELECTOR]...", shell_complete=selectors
)


def shared(function: Decorated) -> Decorated:
    """Add `--json` and `--socket`."""
    return json_option(socket_option(function))


def submitting(function: Decorated) -> Decorated:
    """Add what goes with handing tasks in, beside what is shared."""
    started = start_option(shared(function))
    return wait_option(follow_option(timeout_option(started)))


def connect(socket: Path | None, *, start: bool = False) -> Client:
    """Open a client; its import is what a command's start-up costs.

    Args:
        socket: the daemon's; None: the default one.
        start: start a daemon of the user's own where none answers.

    """
    from libtask.client.client import Client

    if start:
        from hetctl.own_daemon import ensure_started

        ensure_started(socket)
    return Client(socket)


def lacking(what: str, package: str) -> str:
    """Say which package is missing, and how it is installed beside this program."""
    return f"{what} {package}: {sys.executable} -m pip install {package}"


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
