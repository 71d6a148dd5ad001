"""`hetctl daemon start`, `stop`, `restart`, `status`, `logs`."""

from __future__ import annotations

import collections
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetctl.commands.store import (
    backup_command,
    check_command,
    restore_command,
)
from hetctl.options import connect, shared
from hetctl.output import emit
from hetctl.own_daemon import (
    bring_up,
    daemon_at,
    listens,
    socket_place,
    state_of,
)
from hetctl.terminal import say
from hetctl.units import Duration, Whole
from libtask.endpoint import default_socket
from libtask.errors import DaemonUnreachableError, HetError, InputError

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo

PATIENCE = 10.0
"""Seconds that a daemon which listens may take to answer."""
LOOK = 0.2
"""Seconds between two looks for more of the log."""
PAUSE = 0.02
"""Seconds between two looks whether the daemon has come, or gone."""


@click.group("daemon")
def daemon_command() -> None:
    """Start, stop or look at the daemon and its log; check, save or restore its store."""


for _command_of_store in (check_command, backup_command, restore_command):
    daemon_command.add_command(_command_of_store)


@daemon_command.command("start")
@click.option(
    "--state", type=click.Path(path_type=Path), help="Folder of the task store."
)
@click.option(
    "--config", type=click.Path(path_type=Path, exists=True), help="A hetd.toml."
)
@click.option("--policy", help="Instead of the configured one.")
@click.option("--foreground", is_flag=True, help="Stay in the foreground.")
@click.option(
    "--timeout", type=Duration(), default="30s", help="Time it has to answer."
)
@shared
def start(*, socket: Path | None, as_json: bool, **given: Any) -> None:
    """Start the daemon as yourself, and wait until it answers."""
    path = socket_place(socket)
    if listens(path):
        _print_status(path, "already running", as_json=as_json)
        return
    state = (given["state"] or state_of(path)).absolute()
    config = given["config"] and given["config"].absolute()  # it starts in /
    daemon = daemon_at(path, state, config, given["policy"])
    if given["foreground"]:
        command = daemon.command()
        os.execv(command[0], command)  # noqa: S606  our own interpreter and module
    bring_up(daemon, given["timeout"])
    _print_status(path, "started", as_json=as_json, patience=given["timeout"])


@daemon_command.command("stop")
@click.option("--timeout", type=Duration(), default="30s", help="Time it has to end.")
@shared
def stop(*, timeout: float, socket: Path | None, as_json: bool) -> None:
    """Stop the daemon and wait until it is gone; running tasks go on without it.

    They report when it is back, and waiting ones start then. Where nothing runs any
    more, workers and launcher leave after a minute.
    """
    with connect(socket) as client:
        pid, path = _stopped(client, timeout)
    if as_json:
        emit(
            {
                "format": "hetctl/daemon-1",
                "running": False,
                "pid": pid,
                "socket": str(path),
            }
        )
    else:
        say(f"stopped (process {pid})")


def _stopped(client: Client, timeout: float) -> tuple[int, Path]:
    """End the daemon; return its process and its socket when it is gone."""
    pid, path = client.welcome.pid, client.path
    client.stop()
    deadline = time.monotonic() + timeout
    while listens(path) or _lives(pid):
        if time.monotonic() > deadline:
            raise HetError(f"the daemon (process {pid}) still runs after {timeout:g} s")
        time.sleep(PAUSE)
    return pid, path


@daemon_command.command("restart")
@click.option(
    "--timeout",
    type=Duration(),
    default="30s",
    help="Time to end, and to answer again.",
)
@shared
def restart(*, timeout: float, socket: Path | None, as_json: bool) -> None:
    """End the daemon and start it again as it was; running tasks go on meanwhile.

    It is started by this installation, with its socket, state, configuration and policy
    of before: that is how a private daemon is upgraded. One that a service manager runs is
    restarted by that: systemctl restart hetd.
    """
    with connect(socket) as client:
        known = client.status()
        if known.managed:
            raise InputError("a service manager runs it: systemctl restart hetd")
        if not known.state:
            raise InputError("this daemon is older: hetctl daemon stop, and start")
        if _owner_of(known.pid) != os.getuid():
            raise InputError(f"another user's process ({known.pid}) serves there")
        _, path = _stopped(client, timeout)
    config = Path(known.config_file) if known.config_file else None
    policy = known.command_policy or None
    bring_up(daemon_at(path, Path(known.state), config, policy), timeout)
    _print_status(path, "restarted", as_json=as_json, patience=timeout)


def _owner_of(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


@daemon_command.command("logs")
@click.option("-n", "--lines", type=Whole(0), default=50, help="The last so many.")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@shared
def logs(*, lines: int, follow: bool, socket: Path | None, as_json: bool) -> None:
    """Print what the daemon said; also of one that does not run any more."""
    path = socket or default_socket()
    place = _log_of(path)
    try:
        with place.open(encoding="utf-8", errors="replace") as log:
            for line in collections.deque(log, lines):
                _print_log(line, as_json=as_json)
            while follow:
                line = log.readline()
                if line:
                    _print_log(line, as_json=as_json)
                else:
                    time.sleep(LOOK)
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}") from error


def _log_of(path: Path) -> Path:
    """Find the log of the daemon at a socket.

    Raises:
        InputError: it is no file; says where it is.

    """
    from libtask.client.client import Client

    try:
        with Client(path) as client:
            told = client.status().log
    except DaemonUnreachableError:
        return state_of(path.absolute()) / "hetd.log"
    if told == "journal":
        raise InputError("its log is in the journal: journalctl --unit hetd")
    if not told:
        raise InputError("its log goes to a terminal, or to another program")
    return Path(told)


def _print_log(line: str, *, as_json: bool) -> None:
    if as_json:
        emit({"format": "hetctl/daemon-log-1", "line": line.rstrip("\n")})
    else:
        say(line.rstrip("\n"))


@daemon_command.command("status")
@shared
def status(*, socket: Path | None, as_json: bool) -> None:
    """Show whether the daemon runs; exit status 3 where it does not."""
    _print_status(socket or default_socket(), "running", as_json=as_json)


def _print_status(
    path: Path, word: str, *, as_json: bool, patience: float = PATIENCE
) -> None:
    """Print who answers; one that restores many waiting tasks may need its time."""
    from libtask.client.client import Client

    with Client(path, timeout=patience) as client:
        welcome, policy, devices = client.welcome, client.policy(), client.devices()
        known = client.status()
    if as_json:
        document = {
            "format": "hetctl/daemon-1",
            "running": True,
            "pid": welcome.pid,
            "version": welcome.version,
            "protocol": welcome.protocol,
            "socket": str(path),
            "policy": policy.name,
            "policy_set": policy.set or None,
            "resources": [each.spec.name for each in devices],
            "draining": [
                each.spec.name for each in devices if each.state == "draining"
            ],
            "config": known.config_file or None,
            "state": known.state or None,
            "log": known.log or None,
        }
        emit(document)
        return
    say(f"{word}: hetd {welcome.version}, process {welcome.pid}, socket {path}")
    chosen = f"{policy.name} (set {policy.set})" if policy.set else policy.name
    say(f"policy {chosen}; resources {', '.join(map(_named, devices))}")
    say(f"config {known.config_file or '(none: the defaults)'}")
    say(f"state {known.state or '?'}; log {known.log or '(a terminal or a pipe)'}")


def _named(device: DeviceInfo) -> str:
    """Name a resource, with what is unusual about it."""
    marks = ["emulated"] * device.spec.emulated
    marks += [device.state] * (device.state != "up")
    return f"{device.spec.name} ({', '.join(marks)})" if marks else device.spec.name


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _zombie(pid)


def _zombie(pid: int) -> bool:
    """Whether the process has ended and only its parent has not looked yet."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"
