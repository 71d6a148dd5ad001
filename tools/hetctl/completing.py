"""Values for shell completion: applications, files, and names that the daemon knows.

Completion runs between two key presses. Without a daemon, or with a slow one, it offers
nothing; it never reports an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from libtask.client.client import Client

PATIENCE = 0.5
"""Seconds to wait for the daemon."""


NEWEST = 500
"""Tasks whose ids and names are offered."""
OF_UNFINISHED = frozenset(
    {"cancel", "hold", "release", "set", "migrate", "snapshot", "progress", "wait"}
)
"""Commands to which only unfinished tasks are offered."""
OF_ENDED = frozenset({"requeue", "forget", "result"})
"""Commands to which only ended tasks are offered."""
LITERAL = re.compile(r"[\w@%+=:,./-]+")
"""A word in which a shell expands and runs nothing. Other users choose names, too, and a
completed one with `;` or a backquote would run a command."""


def applications(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem]:
    """Complete the name of an installed application, or a file."""
    from libtask.apps import available

    found = _beginning(available(), incomplete)
    return found or files(ctx, param, incomplete)


def files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def parameters_of(app: str, incomplete: str) -> list[CompletionItem]:
    """Complete the parameters of an application as options."""
    from libtask.apps import resolve
    from libtask.parameters import parameters

    try:
        known = parameters(resolve(app)).values()
    except HetError:
        return []
    options = [(f"--{each.name.replace('_', '-')}", str(each)) for each in known]
    return [
        CompletionItem(option, help=text)
        for option, text in options
        if option.startswith(incomplete)
    ]


def selectors(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a selector: ids, names and jobs of the newest tasks, and the words."""
    verb = ctx.command.name or ""
    if verb == "set" and "=" in incomplete:
        return []
    before, comma, last = incomplete.rpartition(",")
    offered = _asked(ctx, last, lambda client: _selectors(client, verb))
    return [before + comma + each for each in offered]


def _selectors(client: Client, verb: str) -> list[str]:
    from hetctl.selectors import JOB, NAME, WORDS
    from libtask.client.client import Selection
    from libtask.messages import ENDED
    from libtask.names import array_of

    newest = [
        info
        for info in client.tasks(Selection(limit=NEWEST))
        if verb not in (OF_ENDED if info.state not in ENDED else OF_UNFINISHED)
    ]
    named = [NAME + array_of(info.name) for info in newest if info.name]
    named += [JOB + info.job for info in newest if info.job]
    return [*(str(info.id) for info in newest), *dict.fromkeys(named), *WORDS]


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a job of the newest tasks."""
    from libtask.client.client import Selection

    return _asked(
        ctx,
        incomplete,
        lambda client: dict.fromkeys(
            info.job for info in client.tasks(Selection(limit=NEWEST)) if info.job
        ),
    )


def measured(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete an application or a type whose times were measured."""

    def names(client: Client) -> Iterable[str]:
        types = [each.type for each in client.models()]
        return dict.fromkeys([*(each.rpartition("/")[0] for each in types), *types])

    return _asked(ctx, incomplete, names)


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
            names = filter(LITERAL.fullmatch, ask(client))
            return _beginning(names, incomplete)
    except (HetError, TimeoutError):
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
