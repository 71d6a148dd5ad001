"""`hetctl policy show`, `list`, `set`, `reset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hetctl.completing import policies
from hetctl.options import assignments, connect, shared
from hetctl.output import emit, table
from hetctl.terminal import say

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import PolicyInfo


@click.group("policy")
def policy_command() -> None:
    """Show, list or set the policy, or go back to the configured one."""


@policy_command.command("show")
@shared
def show(*, socket: Path | None, as_json: bool) -> None:
    """Show the policy in force and its parameters."""
    with connect(socket) as client:
        _print(client.policy(), as_json=as_json)


@policy_command.command("list")
@shared
def list_all(*, socket: Path | None, as_json: bool) -> None:
    """List the policies, and the package that each of them comes from."""
    with connect(socket) as client:
        info = client.policy()
    if as_json:
        names = [
            {"name": name, "package": info.packages.get(name, ""), "summary": line}
            for name, line in info.available.items()
        ]
        emit({"format": "hetctl/policies-1", "current": info.name, "policies": names})
        return
    rows = [
        ("*" if name == info.name else "", name, info.packages.get(name, ""), line)
        for name, line in info.available.items()
    ]
    table(("", "name", "package", "what it does"), rows)


@policy_command.command("set")
@click.argument("name", shell_complete=policies)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter."
)
@shared
def set_one(
    *, name: str, settings: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Put another policy in force, over restarts too.

    It stays so whatever the configuration names, until another one is set, or `hetctl
    policy reset`.
    """
    parameters = assignments(settings)
    with connect(socket) as client:
        _print(client.policy(name, **parameters), as_json=as_json)


@policy_command.command("reset")
@shared
def reset(*, socket: Path | None, as_json: bool) -> None:
    """Go back to the policy of the configuration."""
    with connect(socket) as client:
        _print(client.configured_policy(), as_json=as_json)


def _print(info: PolicyInfo, *, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "format": "hetctl/policy-1",
                "name": info.name,
                "parameters": info.parameters,
                "set": info.set or None,
                "configured": info.configured,
            }
        )
        return
    say(f"{info.name}: {info.available.get(info.name, '')}")
    for key, value in info.parameters.items():
        say(f"  {key} = {value}")
    if info.set:
        back = f"`hetctl policy reset` goes back to {info.configured}"
        say(f"set {info.set}; {back}, as configured")
