"""The files and processes of a pool on this machine, and how another machine joins it.

`hetctl pool up`, `join` and `down` are this module with words around it. A machine that
joins gets an `Invitation`: its settings and its certificate, over ssh. Processes run as
units of `systemd --user` where that is there, else under `hetpool.setup.supervisor`.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import tomli_w
from msgspec import Meta

from hetpool.setup import supervisor
from hetpool.setup.config import (
    FILE_VARIABLE,
    NodeTable,
    PoolFile,
    default_file,
    read_file,
)
from hetpool.setup.endpoint import DEFAULT_PORT, TlsFiles
from hetpool.setup.supervisor import Role
from libtask.endpoint import default_socket, probe
from libtask.errors import DaemonUnreachableError, HetError, InputError
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hetpool.setup.config import PoolSettings

LOOPBACK = "127.0.0.1"
SCHEDULER_UNIT = "hetpool-scheduler.service"
NODE_UNIT = "hetpool-node.service"
PATIENCE_S = 60.0
"""Seconds for a command of systemd."""
Pem = Annotated[str, Meta(max_length=1 << 16, pattern="^-----BEGIN ")]


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a machine needs to join a pool, its private key included."""

    format: Literal["hetpool/invitation-1"]
    settings: PoolFile
    ca: Pem
    cert: Pem
    key: Pem


@dataclass(frozen=True, slots=True)
class PoolFiles:
    """The paths of a pool's files on this machine."""

    file: Path
    """`pool.toml`."""

    @property
    def certificates(self) -> Path:
        return self.file.parent / "pool"

    @property
    def state(self) -> Path:
        """Folder of logs and of the supervisor: beside a file that is not the user's own."""
        if self.usual:
            return user_folder("state") / "pool"
        return self.file.with_name(f"{self.file.name}.state")

    @property
    def usual(self) -> bool:
        """Whether the units of systemd find the file by themselves."""
        try:
            return self.file == default_file({})
        except InputError:  # there is no home directory
            return False


def place_of(environment: Mapping[str, str] = os.environ) -> PoolFiles:
    """Return the place of the pool that the environment names, else of the user's own."""
    return PoolFiles(default_file(environment))


# ------------------------------------------------------------ files


def write_settings(path: Path, found: PoolFile) -> None:
    """Write a `pool.toml` with what differs from the defaults."""
    plain = msgspec.to_builtins(found)
    kept = {key: value for key, value in plain.items() if value != _default(key)}
    kept.pop("node", None)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(tomli_w.dumps(kept) + _tables(found.node), encoding="utf-8")
    new.replace(path)


def _tables(nodes: list[NodeTable]) -> str:
    """Return the tables of nodes, in the form that other ones can be appended to."""
    every: list[dict[str, object]] = msgspec.to_builtins(nodes)
    texts = (
        tomli_w.dumps({k: v for k, v in node.items() if v != _default_of_node(k)})
        for node in every
    )
    return "".join(f"\n[[node]]\n{text}" for text in texts)


def _default(key: str) -> object:
    return msgspec.to_builtins(PoolFile())[key]


def _default_of_node(key: str) -> object:
    return msgspec.to_builtins(NodeTable("")).get(key)


def add_nodes(path: Path, nodes: list[NodeTable]) -> list[NodeTable]:
    """Append the tables of nodes that a file does not list yet; return those.

    What is in the file, comments included, stays as it is.

    Raises:
        InputError: a node is listed otherwise; the file would be wrong.

    """
    known = {each.name: each for each in read_file(path).node}
    for node in nodes:
        listed = known.get(node.name, node)
        if (listed.address, listed.worker_port) != (node.address, node.worker_port):
            raise InputError(
                f"{path}: node {node.name!r} is at {listed.address or listed.name}:"
                f"{listed.worker_port}, not {node.address}:{node.worker_port}"
            )
    new = [node for node in nodes if node.name not in known]
    if not new:
        return []
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(_tables(new).encode())
    try:
        read_file(path)
    except InputError:
        path.write_bytes(before)
        raise
    return new


def invitation(settings: PoolFile, files: TlsFiles) -> bytes:
    """Return an invitation as JSON."""
    texts = (path.read_text("ascii") for path in (files.ca, files.cert, files.key))
    return msgspec.json.encode(Invitation("hetpool/invitation-1", settings, *texts))


def accept(content: bytes, place: PoolFiles) -> PoolFile:
    """Write the files of an invitation; return its settings.

    Raises:
        InputError: it is malformed, or this machine has another pool's settings.

    """
    try:
        found = msgspec.json.decode(content, type=Invitation)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"not an invitation: {error}") from error
    if place.file.exists():
        known = read_file(place.file)
        if known.scheduler != found.settings.scheduler:
            raise InputError(
                f"{place.file}: this machine belongs to the pool of {known.scheduler or '?'}; "
                "`hetctl pool down` and move this file away first"
            )
    from hetpool.setup.certificates import own_folder, write_private

    own_folder(place.certificates)
    names = {"ca.pem": found.ca, "this.pem": found.cert, "this.key": found.key}
    for name, text in names.items():
        write_private(place.certificates / name, text.encode())
    write_settings(place.file, found.settings)
    return read_file(place.file)


def free_port(host: str, preferred: int = DEFAULT_PORT) -> int:
    """Return the preferred TCP port of a host of this machine if it is free, else another."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError:
                continue
            found: int = trial.getsockname()[1]
            return found
    raise InputError(f"{host}: not an address of this machine")


def address_towards(host: str) -> str:
    """Return the address of this machine that a host sees.

    Raises:
        InputError: the host has no address, or there is no way to it.

    """
    try:
        family, kind, _, _, there = socket.getaddrinfo(
            host, DEFAULT_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as trial:
            trial.connect(there)  # sends nothing
            found: str = trial.getsockname()[0]
            return found
    except OSError as error:
        raise InputError(f"{host}: {error.strerror or error}") from error


# ------------------------------------------------------------ processes


@dataclass(frozen=True, slots=True)
class StartedProcesses:
    """The processes that were started."""

    by: Literal["systemd", "supervisor"]
    units: tuple[str, ...] = ()
    pid: int = 0


def has_systemd() -> bool:
    """Return whether this user's systemd runs and has the pool's units."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not runtime or not shutil.which("systemctl"):
        return False
    private = Path(runtime) / "systemd" / "private"
    try:
        if not stat.S_ISSOCK(private.stat().st_mode):
            return False
    except OSError:
        return False
    return _systemctl("cat", NODE_UNIT).returncode == 0


def start(
    place: PoolFiles, *, scheduler: bool, node: bool, root: bool
) -> StartedProcesses:
    """Start the processes of this machine, to be kept running.

    Args:
        place: its files.
        scheduler: it has the scheduler.
        node: it has a node.
        root: allow that they run as root.

    Raises:
        InputError: they run already.
        HetError: they do not start.

    """
    units = tuple([SCHEDULER_UNIT] * scheduler + [NODE_UNIT] * node)
    if place.usual and not root and has_systemd():
        _ensure_hetd(place, node=node)
        done = _systemctl("enable", "--now", *units)
        if done.returncode:
            raise HetError(f"systemctl --user: {done.stderr.strip() or done.stdout}")
        return StartedProcesses("systemd", units)
    roles = roles_of(place, scheduler=scheduler, node=node, root=root)
    return StartedProcesses("supervisor", pid=supervisor.start(place.state, roles).pid)


def stop(place: PoolFiles) -> bool:
    """End the processes of this machine; return whether there were any.

    Tasks in hetd go on; a hetd that the supervisor looks after ends, and its running tasks
    report when it is back.
    """
    stopped = supervisor.stop(place.state)
    if place.usual and has_systemd():
        active = _systemctl("is-active", SCHEDULER_UNIT, NODE_UNIT).stdout
        _systemctl("disable", "--now", SCHEDULER_UNIT, NODE_UNIT)
        stopped |= "active" in active.split()
    return stopped


def runs(place: PoolFiles) -> bool:
    """Return whether processes of the pool run on this machine."""
    if supervisor.pid_of(place.state) is not None:
        return True
    if not (place.usual and has_systemd()):
        return False
    states = _systemctl("is-active", SCHEDULER_UNIT, NODE_UNIT).stdout.split()
    return "active" in states


def roles_of(
    place: PoolFiles, *, scheduler: bool, node: bool, root: bool
) -> list[Role]:
    """Return the processes of this machine, without systemd."""
    common = {FILE_VARIABLE: str(place.file)}
    allow = ["--allow-root"] if root else []
    roles: list[Role] = []
    if scheduler:
        roles.append(Role("scheduler", _module("hetpool", "scheduler", *allow), common))
    if not node:
        return roles
    found = read_file(place.file)
    this = next(each for each in found.node if each.name == found.this)
    if this.gateway:
        words = ["gateway"]
    else:
        hetd, path = _daemon(place)
        roles += hetd
        words = ["node", "--socket", str(path)]
    words += ["--name", this.name, *_folders(place), *allow]
    return [*roles, Role("node", _module("hetpool", *words), common)]


def _folders(place: PoolFiles) -> list[str]:
    """Return the options for a node's files, unless its pool is the user's usual one."""
    if place.usual:
        return []
    files, incoming = place.state / "files", place.state / "incoming"
    return ["--folder", str(files), "--incoming", str(incoming)]


def incoming_of(settings: PoolSettings) -> Path | None:
    """Return where clients leave files for the node of this machine; None: the default."""
    if settings.file is None:
        return None
    place = PoolFiles(settings.file)
    return None if place.usual else place.state / "incoming"


def _daemon(place: PoolFiles) -> tuple[list[Role], Path]:
    """Return the role of a private hetd if none runs, and the socket."""
    path = default_socket().absolute()
    with suppress(DaemonUnreachableError):
        probe(path)
        return [], path
    state = place.state / "hetd"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ["--socket", str(path), "--state", str(state)]
    return [Role("hetd", _module("hetd", *words))], path


def _module(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", name, *words)


def _ensure_hetd(place: PoolFiles, *, node: bool) -> None:
    """Enable this user's own hetd, if the node needs one and none listens."""
    found = read_file(place.file)
    gateway = any(each.gateway for each in found.node if each.name == found.this)
    if node and not gateway:
        try:
            probe(default_socket())
        except DaemonUnreachableError:
            _systemctl("enable", "--now", "hetd.socket")


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  fixed words
        ["systemctl", "--user", *words],  # noqa: S607  the one on the path
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
