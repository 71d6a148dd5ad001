"""Options that commands share."""

from __future__ import annotations

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
    """Fall back to the option's value before the command name if there is none after it."""
    return value or ctx.find_root().params.get(param.name or "") or value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_or_before, help="Print JSON."
)
socket_option = click.option(
    "--socket",
    # the connection reports an unusable socket, with the reason
    type=click.Path(path_type=Path, readable=False),
    callback=_or_before,
    help="Socket of the daemon.  [default: $HETD_SOCKET, the user's, the system's]",
)
start_option = click.option(
    "--start", is_flag=True, help="Start a private daemon if none answers."
)
wait_option = click.option(
    "--wait",
    "waiting",
    is_flag=True,
    help="Wait until the tasks end; print a line for each.",
)
follow_option = click.option(
    "--follow", is_flag=True, help="Wait, and show live progress on a terminal."
)
timeout_option = click.option(
    "--timeout", type=Duration(), help="Wait at most this long, e.g. 90s or 15min."
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
    """Add the options of commands that submit tasks, with the shared ones."""
    started = start_option(shared(function))
    return wait_option(follow_option(timeout_option(started)))


def connect(socket: Path | None, *, start: bool = False) -> Client:
    """Open a client; importing it takes most of a command's start-up time.

    Args:
        socket: the daemon's socket; None: the default one.
        start: start a private daemon if none answers.

    """
    from libtask.client.client import Client

    if start:
        from hetctl.own_daemon import ensure_started

        ensure_started(socket)
    return Client(socket)


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Read `key=value` words.

    Raises:
        click.UsageError: a word has no `=`, or a key is repeated.

    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set: expected key=value, got {text!r}")
        name = key.strip().replace("-", "_")
        if name in found:
            raise click.UsageError(f"--set: {name} is given twice")
        found[name] = value
    return found


def distinct(
    _context: click.Context, parameter: click.Parameter, pairs: tuple[Any, ...]
) -> dict[str, Any]:
    """Return the values of a repeatable KEY=VALUE option by key.

    Raises:
        click.UsageError: a key is repeated.

    """
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"{parameter.opts[0]}: {key} is given twice")
        found[key] = value
    return found
