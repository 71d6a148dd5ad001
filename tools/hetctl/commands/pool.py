"""`hetctl pool`: the table of its verbs; a verb's module is imported when it runs."""

from __future__ import annotations

import difflib
from importlib import import_module

import click

VERBS = {
    "up": ("machine", "Start a pool on this machine, or on several over ssh."),
    "down": ("machine", "Stop the pool's processes."),
    "join": ("machine", "Let this machine join a pool; `up` calls it over ssh."),
    "status": ("nodes", "Show whether the pool answers, and what it has."),
    "nodes": ("nodes", "List the nodes, their devices and links."),
    "submit": ("submission", "Submit a task to the pool."),
    "batch": ("submission", "Submit the tasks of a TOML file, planned as one batch."),
    "plan": ("submission", "Plan a batch without submitting it."),
    "list": ("tasks", "List the pool's tasks."),
    "show": ("tasks", "Show the details of tasks."),
    "wait": ("tasks", "Wait for tasks to end."),
    "cancel": ("tasks", "Cancel tasks."),
    "logs": ("tasks", "Print the output of tasks."),
    "explain": ("tasks", "Explain why a task waits or runs where it does."),
    "move": ("tasks", "Move a task to another node."),
    "get": ("tasks", "Fetch a file that a task wrote on its node."),
    "drain": ("nodes", "Move all tasks away from a node, and give it no others."),
    "resume": ("nodes", "Give a drained node tasks again."),
    "top": ("pictures", "Show nodes and tasks live."),
    "gantt": ("pictures", "Draw what ran where, with a lane for each node's device."),
    "trace": ("pictures", "Write past tasks as a Chrome trace."),
    "metrics": ("pictures", "Print, write or serve metrics for Prometheus."),
    "demo": ("demo", "Show a pool of three nodes on this machine."),
}
"""Verb -> (module below `hetctl.pool`, line for the help)."""

ALIASES = {"ls": "list", "ps": "list", "kill": "cancel", "log": "logs"}


class Verbs(click.Group):
    """The group of verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        module = import_module(f"hetctl.pool.{VERBS[name][0]}")
        command: click.Command = getattr(module, name + "_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and args[0] not in ALIASES:
            near = difflib.get_close_matches(args[0], [*VERBS, *ALIASES], n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see hetctl pool --help"
            raise click.UsageError(f"no command 'pool {args[0]}'{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])


@click.group("pool", cls=Verbs)
def pool_command() -> None:
    """Run tasks on several machines, each with its own hetd.

    A pool belongs to one user: everyone with one of its certificates runs code as that
    user on all of its nodes. First steps: hetctl pool up; hetctl pool submit heat --wait.
    """
