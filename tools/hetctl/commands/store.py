"""`hetctl daemon check`, `backup`, `restore`: the care of the task store.

None needs a running daemon. The work is done by the daemon's own module in a process
of its own, as commands know the daemon over the wire only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from hetctl.options import shared
from hetctl.output import emit
from hetctl.own_daemon import state_of
from hetctl.terminal import say
from libtask.endpoint import default_socket
from libtask.errors import HetError, InputError, NotAllowedError, NotFoundError

ERRORS: dict[int, type[HetError]] = {
    2: InputError,
    4: NotFoundError,
    5: NotAllowedError,
}
"""Kind of failure by exit status; any other is a failure without a kind."""

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of the task store.  [default: that of the daemon at the socket]",
)


@click.command("check")
@state_option
@shared
def check_command(state: Path | None, socket: Path | None, *, as_json: bool) -> int:
    """Look at all of the task store; exit status 1 where it is damaged.

    Changes nothing. A running daemon is not disturbed.
    """
    found = _care("check", _folder(state, socket))
    _print(found, "sound" if not found["problems"] else "damaged", as_json=as_json)
    return 1 if found["problems"] else 0


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@state_option
@shared
def backup_command(
    file: Path, *, force: bool, state: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Save the task store as it is now, also while the daemon runs."""
    options = ["--force"] if force else []
    found = _care("backup", _folder(state, socket), str(file.absolute()), *options)
    _print(found, f"saved in {file}", as_json=as_json)


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@state_option
@shared
def restore_command(
    file: Path, *, state: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Bring the task store back from a backup; the daemon must not run.

    What is there now is kept under another name. Tasks that were submitted since the
    backup are lost; their ids are not given again.
    """
    found = _care("restore", _folder(state, socket), str(file.absolute()))
    _print(found, f"restored from {file}", as_json=as_json)


def _folder(state: Path | None, socket: Path | None) -> Path:
    path = state or state_of((socket or default_socket()).absolute())
    return path.absolute()


def _care(action: str, state: Path, *words: str) -> dict[str, Any]:
    """Let the daemon's module do it; return what it found.

    Raises:
        HetError: it could not; the kind tells the exit status.

    """
    command = [sys.executable, "-m", "hetd.store", action, str(state), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own interpreter and module
    if not done.stdout:
        lines = done.stderr.strip().splitlines() or ["it ended without a word"]
        raise ERRORS.get(done.returncode, HetError)(lines[-1])
    found: dict[str, Any] = {"format": "hetctl/store-1", **json.loads(done.stdout)}
    return found


def _print(found: dict[str, Any], word: str, *, as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    say(f"{found['path']}: {word}")
    for problem in found["problems"]:
        say(f"  {problem}")
    if found["unended"] is not None:
        say(
            f"  {found['unended']} tasks that have not ended, {found['ended']} that "
            f"have, up to id {found['last_id']}; schema {found['schema']}"
        )
    for path in found["aside"]:
        say(f"  what was there is kept as {path}")
    if found["problems"]:
        say("  hetctl daemon restore FILE brings a backup", err=True)
