"""Values that a shell completes: applications, and what the daemon knows.

Called while somebody waits for a key to take effect: without a daemon, or with a slow
one, there is nothing to complete, and never an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from libtask.client.client import Client

PATIENCE = 0.5
"""Seconds that the daemon may take."""


def applications(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str]:
    """Complete the name of an installed application."""
    from libtask.apps import available

    return _beginning(available(), incomplete)


def resources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a resource of the node."""
    return _asked(
        ctx, incomplete, lambda client: [each.spec.name for each in client.devices()]
    )


def policies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a policy."""
    return _asked(ctx, incomplete, lambda client: client.policy().available)


def _asked(
    ctx: click.Context, incomplete: str, ask: Callable[[Client], Iterable[str]]
) -> list[str]:
    from libtask.client.client import Client

    try:
        with Client(ctx.params.get("socket"), timeout=PATIENCE, patience=0.0) as client:
            return _beginning(ask(client), incomplete)
    except (HetError, TimeoutError):
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
