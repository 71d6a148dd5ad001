"""`hetctl`: the command line of the daemon.

The table names each command's module; a module is imported when its command runs.
All errors end here: one line on standard error, and an exit status for each kind of
failure.
"""

from __future__ import annotations

import difflib
import itertools
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from hetctl.options import shared
from hetctl.output import emit, replace_closed_streams, say
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    NotAllowedError,
    NotFoundError,
)
from libtask.standard_output import discard_unwritten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMMANDS = {
    "submit": ("submit", "Submit a task: an application, a program or a script."),
    "run": ("run", "Run a program as a task, as if it ran in this terminal."),
    "batch": ("submit", "Submit the tasks of a TOML file."),
    "list": ("tasks", "List tasks."),
    "show": ("tasks", "Show the details of tasks."),
    "explain": ("tasks", "Explain why a task waits or runs where it does."),
    "result": ("results", "Print the result of a task, or save it."),
    "wait": ("results", "Wait for tasks to end."),
    "progress": ("tasks", "Show the progress of running tasks."),
    "cancel": ("control", "Cancel tasks."),
    "hold": ("control", "Keep tasks from starting, and stop running ones."),
    "release": ("control", "Let held tasks start."),
    "snapshot": ("control", "Make tasks write their progress to disk."),
    "requeue": ("control", "Submit ended tasks again."),
    "forget": ("control", "Remove ended tasks from the history."),
    "set": ("control", "Change the priority or the deadline of tasks."),
    "migrate": ("control", "Move tasks to another resource."),
    "logs": ("results", "Print the output of tasks."),
    "events": ("timeline", "Print the events of tasks."),
    "devices": ("resources", "List the resources of the node."),
    "drain": ("resources", "Keep a resource free of tasks."),
    "resume": ("resources", "Return a drained resource to the scheduler."),
    "policy": ("daemon", "Show, list or set the policy."),
    "characterize": ("models", "Measure applications on every resource."),
    "models": ("models", "Show and manage measured execution times."),
    "top": ("live", "Show resources and tasks live, and control them."),
    "web": ("live", "Serve a web page with a live Gantt chart, on loopback."),
    "history": ("history", "List ended tasks with their times and energy."),
    "report": ("history", "Report the use of time and energy, by resource and task."),
    "gantt": ("timeline", "Draw a Gantt chart of what ran where."),
    "graph": ("jobs", "Draw the tasks of a job and what depends on what."),
    "trace": ("timeline", "Write past tasks as a scenario or a Chrome trace."),
    "metrics": ("live", "Print, write or serve metrics for Prometheus."),
    "daemon": ("daemon", "Start, stop and inspect the daemon, its log and its store."),
    "config": ("daemon", "Show the daemon's configuration and its sources."),
    "pool": ("pool", "Run tasks on several machines, each with its own hetd."),
    "doc": ("manual", "Print the manual of a command, or a JSON schema."),
    "completion": ("manual", "Print shell completion code."),
}
"""Name -> (module below `hetctl.commands`, line for the help)."""

ALIASES = {"ls": "list", "ps": "list", "kill": "cancel", "log": "logs"}

ELSEWHERE = {
    "status": "hetctl daemon status, hetctl devices or hetctl list",
    "stop": "hetctl cancel SELECTOR ends tasks, hetctl hold SELECTOR pauses them, "
    "hetctl daemon stop stops the daemon",
    "start": "hetctl submit, or hetctl daemon start",
    "restart": "hetctl requeue SELECTOR, or hetctl daemon restart",
    "retry": "hetctl requeue SELECTOR",
    "resubmit": "hetctl requeue SELECTOR",
    "delete": "hetctl cancel SELECTOR, or hetctl forget SELECTOR once they have ended",
    "rm": "hetctl cancel SELECTOR, or hetctl forget SELECTOR once they have ended",
    "info": "hetctl show SELECTOR, or hetctl daemon status",
    "nodes": "hetctl devices, or hetctl pool nodes",
    "queue": "hetctl list",
    "pause": "hetctl hold SELECTOR",
    "exec": "hetctl run -- COMMAND...",
    "sbatch": "hetctl submit SCRIPT",
    "srun": "hetctl run -- COMMAND...",
    "squeue": "hetctl list",
    "scancel": "hetctl cancel SELECTOR",
    "scontrol": "hetctl show, set, hold, release or requeue SELECTOR",
    "sinfo": "hetctl devices",
    "sacct": "hetctl history, or hetctl report",
}
"""Command names of other tools -> the commands of hetctl to suggest."""

EXIT_FAILED = 1
EXIT_INPUT = 2
EXIT_UNREACHABLE = 3
EXIT_NOT_FOUND = 4
EXIT_NOT_ALLOWED = 5
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""The status that a shell reports for a program that SIGPIPE ended."""

STATUS = (
    (DaemonUnreachableError, EXIT_UNREACHABLE),
    (NotFoundError, EXIT_NOT_FOUND),
    (NotAllowedError, EXIT_NOT_ALLOWED),
    (InputError, EXIT_INPUT),
    (HetError, EXIT_FAILED),
    (UnicodeEncodeError, EXIT_INPUT),
)
"""Exit status by error; the first match counts."""

REPORTED = (HetError, click.ClickException, OSError, UnicodeEncodeError)
"""Errors that end a command with one line."""


class Root(click.Group):
    """The command group; it imports commands on demand and reports errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = import_module(f"hetctl.commands.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name + "_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0] not in ALIASES:
            if args[0] in ELSEWHERE:
                raise click.UsageError(
                    f"no command {args[0]!r}; use {ELSEWHERE[args[0]]}"
                )
            near = difflib.get_close_matches(args[0], [*COMMANDS, *ALIASES], n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see hetctl --help"
            raise click.UsageError(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        given = kwargs.get("args") or (args[0] if args else None) or sys.argv[1:]
        replace_closed_streams()
        if "_HETCTL_COMPLETE" in os.environ:
            from hetctl.completion_code import register

            register()
        status = self._status(*args, **kwargs, as_json=_wants_json(given))
        discard_unwritten()
        sys.exit(status)

    def _status(self, *args: Any, as_json: bool, **kwargs: Any) -> int:
        try:
            status = super().main(*args, **kwargs)
        except REPORTED as error:
            return _complain(error, as_json=as_json)
        except (KeyboardInterrupt, click.Abort):
            return EXIT_INTERRUPTED
        except SystemExit:  # click ends a command so if its output is a broken pipe
            return EXIT_BROKEN_PIPE
        return status if isinstance(status, int) else 0


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether `--json` is among the words, even if they do not parse."""
    own = itertools.takewhile(lambda word: word != "--", words)
    return "--json" in own


def _complain(
    error: HetError | click.ClickException | OSError | UnicodeEncodeError,
    *,
    as_json: bool,
) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message(), err=True)
        return EXIT_INPUT
    if isinstance(error, click.ClickException):
        lines, status = error.format_message(), EXIT_INPUT
    else:
        lines, status = _text(error), status_of(error)
    lines = lines.encode(errors="backslashreplace").decode()
    if as_json:
        code = getattr(
            error, "code", "system" if isinstance(error, OSError) else "usage"
        )
        found = {"format": "hetctl/error-1", "code": code, "text": lines}
        emit(found | {"status": status}, err=True)
        return status
    for line in lines.splitlines():
        say(f"hetctl: {line}", err=True)
    return status


def _text(error: HetError | OSError | UnicodeEncodeError) -> str:
    if isinstance(error, UnicodeEncodeError):  # a word of the command line, or a path
        return f"expected text in {error.encoding.upper()}, got {error.object!r}"
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return place + error.strerror
    return str(error)


def status_of(error: Exception) -> int:
    """Return the exit status for this kind of failure."""
    return next(
        (status for kind, status in STATUS if isinstance(error, kind)), EXIT_FAILED
    )


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hetd", message="%(prog)s %(version)s")
@shared
def main(*, socket: Path | None, as_json: bool) -> None:
    """Submit tasks to hetd, follow them, and move them between processors.

    First steps: hetctl daemon start; hetctl submit heat --n 2048 --steps 500 --follow.
    Help for a command: hetctl COMMAND --help, or hetctl doc COMMAND.
    """


if __name__ == "__main__":
    main(prog_name="hetctl")
