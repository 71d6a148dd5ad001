"""`hetctl daemon`, `hetctl config`, `hetctl policy`: the daemon, its store and its settings.

`daemon check`, `backup` and `restore` need no running daemon. The daemon's own module does
their work in a separate process, because commands know the daemon over the wire only.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from hetctl.completing import policies
from hetctl.options import assignments, connect, shared
from hetctl.output import emit, say, table
from hetctl.own_daemon import bring_up, daemon_at, listens, socket_place, state_of
from hetctl.units import Duration, Whole
from hetctl.views.columns import parsable_option
from libtask.daemon.handshake import handshake
from libtask.daemon.launcher_processes import launcher_processes
from libtask.endpoint import default_socket
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    NotAllowedError,
    NotFoundError,
)

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import ConfigValue, DeviceInfo, PolicyInfo


# ------------------------------------------------------------ daemon

PATIENCE = 10.0
"""Seconds that a listening daemon may take to answer."""
LOOK = 0.2
"""Seconds between two reads of the log."""
PAUSE = 0.02
"""Seconds between two checks whether the daemon runs."""
REGISTRATION = 10.0
"""Seconds that a launcher may take to register: it imports what tasks need first."""


@click.group("daemon")
def daemon_command() -> None:
    """Start, stop and inspect the daemon and its log; check, save and restore its store."""


@daemon_command.command("start")
@click.option(
    "--state", type=click.Path(path_type=Path), help="Folder for the task store."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True),
    help="Configuration file to use.",
)
@click.option("--policy", help="Policy to use instead of the configured one.")
@click.option("--foreground", is_flag=True, help="Run in the foreground.")
@click.option(
    "--timeout",
    type=Duration(),
    default="30s",
    help="Time allowed for the daemon to answer.",
)
@shared
def start_daemon(*, socket: Path | None, as_json: bool, **given: Any) -> None:
    """Start a daemon under your own user, and wait until it answers."""
    path = socket_place(socket)
    for name in ("state", "config"):  # the daemon starts in /
        given[name] = given[name] and given[name].absolute()
    if listens(path):
        _demand_effect(path, given)
        _print_status(path, "already running", as_json=as_json)
        return
    state = given["state"] or state_of(path)
    daemon = daemon_at(path, state, given["config"], given["policy"])
    if given["foreground"]:
        command = daemon.command()
        os.execv(command[0], command)  # noqa: S606  our own interpreter and module
    bring_up(daemon, given["timeout"])
    _print_status(path, "started", as_json=as_json, patience=given["timeout"])


def _demand_effect(path: Path, given: dict[str, Any]) -> None:
    """Refuse options that the running daemon was not started with.

    Raises:
        HetError: there are some; the text names them.

    """
    with connect(path) as client:
        known = client.status()
    paths = {"state": known.state, "config": known.config_file}
    without = [
        f"--{name}"
        for name, running in paths.items()
        if given[name] and given[name].resolve() != Path(running).resolve()
    ]
    if given["policy"] and given["policy"] != known.command_policy:
        without.append("--policy")
    if given["foreground"]:
        without.append("--foreground")
    if without:
        raise HetError(
            f"a daemon runs already, process {known.pid}, so these options have no "
            f"effect: {', '.join(without)}; `hetctl daemon stop` ends it"
        )


@daemon_command.command("stop")
@click.option(
    "--timeout",
    type=Duration(),
    default="30s",
    help="Time allowed for the daemon to end.",
)
@shared
def stop_daemon(*, timeout: float, socket: Path | None, as_json: bool) -> None:
    """Stop the daemon and wait until it has ended; running tasks go on without it.

    They report their results when the daemon is back, and waiting tasks start then. If
    you have no unfinished tasks, your launcher and its workers end with the daemon. Else
    those without a running task exit after a minute.
    """
    with connect(socket) as client:
        _await_launcher(client.path)
        pid, path = _stop_and_wait(client, timeout)
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


def _await_launcher(path: Path) -> None:
    """Wait until the user's launcher has registered, so that the daemon can retire it.

    It has not if it was started a moment ago, or if the daemon was: it would stay for a
    minute, and for a day if a worker cannot know whether the daemon has its last report.
    """
    deadline = time.monotonic() + REGISTRATION
    while _has_launcher_process(path) and time.monotonic() < deadline:
        welcome = handshake(path)
        if welcome is None or welcome.launcher:
            return
        time.sleep(PAUSE)


def _has_launcher_process(path: Path) -> bool:
    pids = launcher_processes(path.absolute())
    return any(_owner_of(pid) == os.getuid() for pid in pids)


def _stop_and_wait(client: Client, timeout: float) -> tuple[int, Path]:
    """Stop the daemon; return its pid and socket when it has ended."""
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
    help="Time allowed for the daemon to end, and to answer again.",
)
@shared
def restart_daemon(*, timeout: float, socket: Path | None, as_json: bool) -> None:
    """Stop the daemon and start it again; running tasks go on meanwhile.

    This installation starts it, with the same socket, state, configuration and policy as
    before; this upgrades a private daemon. With a mistake in the configuration the daemon
    is not stopped. A daemon under a service manager is restarted with: systemctl restart
    hetd.
    """
    with connect(socket) as client:
        known = client.status()
        if known.managed:
            raise InputError(
                "the daemon runs under a service manager: systemctl restart hetd"
            )
        if not known.state:
            raise InputError(
                "this daemon is too old to restart: use hetctl daemon stop, then start"
            )
        if _owner_of(known.pid) != os.getuid():
            raise InputError(
                f"the daemon (process {known.pid}) belongs to another user"
            )
        config = Path(known.config_file) if known.config_file else None
        policy = known.command_policy or None
        place = (socket or default_socket()).absolute()
        daemon_at(place, Path(known.state), config, policy).check()
        _, path = _stop_and_wait(client, timeout)
    bring_up(daemon_at(path, Path(known.state), config, policy), timeout)
    _print_status(path, "restarted", as_json=as_json, patience=timeout)


def _owner_of(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


@daemon_command.command("logs")
@click.option(
    "-n", "--lines", type=Whole(0), default=50, help="Number of lines to print."
)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until Ctrl-C.")
@shared
def print_daemon_log(
    *, lines: int, follow: bool, socket: Path | None, as_json: bool
) -> None:
    """Print the daemon's log, also of a daemon that has ended."""
    with _opened(_log_of(socket or default_socket())) as log:
        for line in collections.deque(log, lines):
            _print_log(line, as_json=as_json)
        while follow:
            line = log.readline()
            if line:
                _print_log(line, as_json=as_json)
            else:
                time.sleep(LOOK)


def _opened(log: Path) -> TextIO:
    try:
        return log.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{log}: {error.strerror}") from error


def _log_of(path: Path) -> Path:
    """Return the log file of the daemon at a socket.

    Raises:
        InputError: the log is not a file; the text names the place.

    """
    from libtask.client.client import Client

    try:
        with Client(path) as client:
            place = client.status().log
    except DaemonUnreachableError:
        return state_of(path.absolute()) / "hetd.log"
    if place == "journal":
        raise InputError("the log is in the journal: journalctl --unit hetd")
    if not place:
        raise InputError("the log goes to a terminal or another program")
    return Path(place)


def _print_log(line: str, *, as_json: bool) -> None:
    if as_json:
        emit({"format": "hetctl/daemon-log-1", "line": line.rstrip("\n")})
    else:
        say(line.rstrip("\n"))


@daemon_command.command("status")
@shared
def show_status(*, socket: Path | None, as_json: bool) -> None:
    """Show whether the daemon runs; exit status 3 if it does not."""
    _print_status(socket or default_socket(), "running", as_json=as_json)


def _print_status(
    path: Path, word: str, *, as_json: bool, patience: float = PATIENCE
) -> None:
    """Print the daemon's status; a daemon that restores many tasks may answer late."""
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
            "build": known.build,
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
    version = welcome.version + " (compiled)" * (known.build == "compiled")
    say(f"{word}: hetd {version}, process {welcome.pid}, socket {path}")
    say(f"policy {_chosen(policy)}; resources {', '.join(map(_named, devices))}")
    say(f"config {known.config_file or '(none: the defaults)'}")
    say(f"state {known.state or '?'}; log {known.log or '(a terminal or a pipe)'}")


def _chosen(policy: PolicyInfo) -> str:
    """Name the policy in force, who has set it, and which failed one it replaces."""
    notes = [f"in place of {policy.failed}, which failed"] if policy.failed else []
    notes += [f"set {policy.set}"] if policy.set else []
    return f"{policy.name} ({', '.join(notes)})" if notes else policy.name


def _named(device: DeviceInfo) -> str:
    """Name a resource, and mark it if it is emulated or not up."""
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
    """Return whether the process has ended but its parent has not collected it yet."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


# ------------------------------------------------------------ check, backup, restore

ERRORS: dict[int, type[HetError]] = {
    2: InputError,
    4: NotFoundError,
    5: NotAllowedError,
}
"""Error class by exit status of the store module; others are plain failures."""

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of the task store.  [default: the folder of the daemon at the socket]",
)


@daemon_command.command("check")
@state_option
@shared
def check_command(state: Path | None, socket: Path | None, *, as_json: bool) -> int:
    """Check the whole task store; exit status 1 if it is damaged, or a value is invalid.

    The store is not changed, and a running daemon is not disturbed.
    """
    found = _run_store_module("check", _folder(state, socket))
    _print_store(
        found, "sound" if not found["problems"] else "damaged", as_json=as_json
    )
    return 1 if found["problems"] else 0


@daemon_command.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@state_option
@shared
def backup_command(
    file: Path, *, force: bool, state: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Save a copy of the task store, also while the daemon runs."""
    options = ["--force"] if force else []
    found = _run_store_module(
        "backup", _folder(state, socket), str(file.absolute()), *options
    )
    _print_store(found, f"saved in {file}", as_json=as_json)


@daemon_command.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@state_option
@shared
def restore_command(
    file: Path, *, state: Path | None, socket: Path | None, as_json: bool
) -> None:
    """Restore the task store from a backup; the daemon must not run.

    The present store is kept under another name. Tasks that were submitted since the
    backup are lost; their ids are not reused.
    """
    found = _run_store_module("restore", _folder(state, socket), str(file.absolute()))
    _print_store(found, f"restored from {file}", as_json=as_json)


def _folder(state: Path | None, socket: Path | None) -> Path:
    path = state or state_of((socket or default_socket()).absolute())
    return path.absolute()


def _run_store_module(action: str, state: Path, *words: str) -> dict[str, Any]:
    """Run the daemon's module for maintenance; return its report.

    Raises:
        HetError: the module failed; its exit status selects the class.
        UnicodeEncodeError: a path is not UTF-8, as the report has to be.

    """
    for path in (str(state), *words):
        path.encode()
    command = [sys.executable, "-m", "hetd.maintenance", action, str(state), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own interpreter and module
    if not done.stdout:
        lines = done.stderr.strip().splitlines() or [
            "the check of the store failed without a message"
        ]
        raise ERRORS.get(done.returncode, HetError)(lines[-1])
    found: dict[str, Any] = {"format": "hetctl/store-1", **json.loads(done.stdout)}
    return found


def _print_store(found: dict[str, Any], word: str, *, as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    say(f"{found['path']}: {word}")
    for problem in found["problems"]:
        say(f"  {problem}")
    if found["unended"] is not None:
        say(
            f"  {found['unended']} unfinished and {found['ended']} ended tasks, "
            f"up to id {found['last_id']}; schema {found['schema']}"
        )
    for path in found["aside"]:
        say(f"  the former store is kept as {path}")
    if found["problems"]:
        say("  hetctl daemon restore FILE restores a backup", err=True)


# ------------------------------------------------------------ config

CONFIG_HEADINGS = ("key", "value", "from", "")


@click.group("config")
def config_command() -> None:
    """Show the daemon's configuration."""


@config_command.command("show")
@click.option(
    "--changed", is_flag=True, help="Show only values that differ from the default."
)
@parsable_option
@shared
def show_config(
    *, changed: bool, parsable: bool, socket: Path | None, as_json: bool
) -> None:
    """Show all values in force and their sources.

    Sources: default; file: hetd.toml; command line; operator: hetctl policy set; start:
    the file has changed since the start, and its new value counts from the next start.
    Only administrators see the limits of other users.
    """
    with connect(socket) as client:
        found = client.config()
    values = [each for each in found.values if not changed or each.source != "default"]
    if as_json:
        emit(
            {
                "format": "hetctl/config-1",
                "file": found.file or None,
                "values": [_value_document(each) for each in values],
            }
        )
        return
    if not parsable:
        say(f"read from {found.file}" if found.file else "no hetd.toml")
    rows = [
        (each.key, json.dumps(each.value), each.source, each.text) for each in values
    ]
    table(CONFIG_HEADINGS, rows, parsable=parsable)


def _value_document(each: ConfigValue) -> dict[str, object]:
    text = each.text or None
    return {"key": each.key, "value": each.value, "source": each.source, "text": text}


# ------------------------------------------------------------ policy


@click.group("policy")
def policy_command() -> None:
    """Show, list or set the policy, or reset it to the configured one."""


@policy_command.command("show")
@shared
def show_policy(*, socket: Path | None, as_json: bool) -> None:
    """Show the policy in force and its parameters."""
    with connect(socket) as client:
        _print_policy(client.policy(), as_json=as_json)


@policy_command.command("list")
@shared
def list_policies(*, socket: Path | None, as_json: bool) -> None:
    """List the available policies with their packages."""
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
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter."
)
@shared
def set_policy(
    *, name: str, settings: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Set another policy; it stays in force after restarts.

    It takes precedence over the configuration until another policy is set, or until
    `hetctl policy reset`. If it fails, another one decides in its place, and the exit
    status is 1.
    """
    parameters = assignments(settings)
    with connect(socket) as client:
        info = client.policy(name, **parameters)
    _print_policy(info, as_json=as_json)
    _refuse_failed(info)


@policy_command.command("reset")
@shared
def reset_policy(*, socket: Path | None, as_json: bool) -> None:
    """Reset the policy to the configured one."""
    with connect(socket) as client:
        info = client.configured_policy()
    _print_policy(info, as_json=as_json)
    _refuse_failed(info)


def _print_policy(info: PolicyInfo, *, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "format": "hetctl/policy-1",
                "name": info.name,
                "parameters": info.parameters,
                "set": info.set or None,
                "configured": info.configured,
                "failed": info.failed or None,
                "fault": info.fault or None,
            }
        )
        return
    say(f"{info.name}: {info.available.get(info.name, '')}")
    for key, value in info.parameters.items():
        say(f"  {key} = {value}")
    if info.failed:
        say(f"in place of {info.failed}, which failed: {info.fault}")
    if info.set:
        which = f"{info.failed} was set" if info.failed else "set"
        back = f"`hetctl policy reset` resets it to the configured {info.configured}"
        say(f"{which} {info.set}; {back}")


def _refuse_failed(info: PolicyInfo) -> None:
    """Raise an error if the chosen policy failed as soon as it had to decide."""
    if info.failed:
        raise HetError(
            f"policy {info.failed} failed: {info.fault};"
            f" {info.name} decides until another is set"
        )
