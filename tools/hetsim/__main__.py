"""`hetsim`: runs scenarios through the daemon's own scheduler, in modelled time.

One file for each command, in `hetsim.commands`; `paper` lives with the papers' studies. A
command is imported only when it is called.
"""

from __future__ import annotations

import importlib
import signal
import sys

import click

from hetsched import build
from libtask.errors import HetError, InputError, NotFoundError
from libtask.standard_output import discard_unwritten

COMMANDS = {
    "run": "Run a scenario under a policy.",
    "bound": "Bound the makespan of a scenario from below.",
    "map": "Run one mapping event under a heuristic.",
    "plan": "Plan a batch of jobs with transfers.",
    "pool": "Run a batch on a pool of nodes, with its links and losses.",
    "train": "Train the policy `learned` on a family of scenarios.",
    "arena": "Run policies side by side on scenarios drawn at random.",
    "paper": "Re-make the tables and figures of a paper.",
}
"""Name of each command and of its module, with the line that describes it."""

ELSEWHERE = {"paper": "hetpapers.command"}
"""Modules of commands that are not in `hetsim.commands`."""

FAILED = 1
BAD_INPUT = 2


class LazyGroup(click.Group):
    """Lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        path = ELSEWHERE.get(cmd_name, f"hetsim.commands.{cmd_name}")
        module = importlib.import_module(path)
        command = module.command
        return command if isinstance(command, click.Command) else None

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


VERSION = "%(prog)s %(version)s" + " (compiled)" * (build.NAME == "compiled")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hetd", message=VERSION)
def cli() -> None:
    """Simulate schedules of a heterogeneous node with the daemon's own scheduler."""


def main() -> None:
    """Run the command line; a user's error is one line and a status."""
    # so that processes and private daemons of the command are ended too
    signal.signal(signal.SIGTERM, _leave)
    try:
        cli.main(prog_name="hetsim", standalone_mode=False)
    except click.ClickException as error:
        _say(f"hetsim: {error.format_message()}")
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HetError as error:
        _say(str(error))
        sys.exit(_status(error))
    except OSError as error:
        _say(f"{error.filename or 'standard output'}: {error.strerror or error}")
        discard_unwritten()
        sys.exit(FAILED)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _status(error: HetError) -> int:
    bad = isinstance(error, InputError | NotFoundError)
    return BAD_INPUT if bad else FAILED


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
