"""The hosts of a pool: a file that lists them, and commands on them over ssh."""

from __future__ import annotations

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hetpool.setup.config import FIRST_PORT, NAME, NodeTable
from hetpool.setup.endpoint import HIGHEST_PORT
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT_ONCE = 16
"""Hosts that are spoken to at the same time."""
PATIENCE_S = 120.0
"""Seconds for a command on a host."""
LARGEST = 1 << 20
"""Bytes of a file of hosts."""
LINE = re.compile(
    r"(?P<login>(?:[A-Za-z0-9_.][A-Za-z0-9_.-]*@)?)"
    r"(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*))"
    r"(?::(?P<ssh_port>\d{1,5}))?"
    r"(?:\s+(?P<name>\S+))?(?:\s+(?P<port>\d{1,5}))?"
)


class Host(msgspec.Struct, frozen=True):
    """A host that ssh reaches."""

    login: str
    """Destination for ssh: `alice@n1`."""
    address: str
    """Its host name or IP address, where its node listens."""
    name: str
    """Name of its node."""
    port: int = FIRST_PORT
    """Port of its node."""
    ssh_port: int = 0
    """0: the one of ssh's configuration."""

    @property
    def node(self) -> NodeTable:
        return NodeTable(self.name, self.address, self.port)


class Way(msgspec.Struct, frozen=True):
    """How commands get to hosts.

    Attributes:
        ssh: the words of ssh.
        hetctl: the words that call hetctl on a host.

    """

    ssh: list[str]
    hetctl: list[str]


def read_hosts(path: Path) -> list[Host]:
    """Read a file of hosts: `[USER@]HOST[:SSH-PORT] [NAME [PORT]]` a line, # for remarks.

    Raises:
        InputError: unreadable, or a line of another form; names the line.

    """
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1).decode()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file") from error
    if len(text) > LARGEST:
        raise InputError(f"{path}: expected {LARGEST} bytes at most")
    hosts: list[Host] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.partition("#")[0].strip()
        if bare:
            hosts.append(_host(bare, f"{path}:{number}"))
    _check_alike(path, hosts)
    return hosts


def _host(line: str, where: str) -> Host:
    found = LINE.fullmatch(line)
    if found is None:
        raise InputError(
            f"{where}: expected [USER@]HOST[:SSH-PORT] [NAME [PORT]], got {line[:80]!r}"
        )
    address = found["six"] or found["host"]
    name = found["name"] or address.partition(".")[0]
    if found["name"] is None and (found["six"] or address.replace(".", "").isdigit()):
        name = address.replace(":", "-")  # an IP address as a whole is the name
    if not NAME.fullmatch(name):
        raise InputError(f"{where}: {name[:80]!r} is not a name for a node")
    ports = [int(found[each] or 0) for each in ("port", "ssh_port")]
    if max(ports) > HIGHEST_PORT:
        raise InputError(f"{where}: expected ports up to {HIGHEST_PORT}")
    return Host(
        found["login"] + address, address, name, ports[0] or FIRST_PORT, ports[1]
    )


def _check_alike(path: Path, hosts: Sequence[Host]) -> None:
    if not hosts:
        raise InputError(f"{path}: no hosts")
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: two hosts have the name {name!r}")


# ------------------------------------------------------------ commands on hosts


def on_each(
    hosts: Sequence[Host], act: Callable[[Host], None]
) -> list[tuple[Host, HetError]]:
    """Do something with all hosts, several at the same time; return the failures."""

    def tried(host: Host) -> HetError | None:
        try:
            act(host)
        except HetError as error:
            return error
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = list(threads.map(tried, hosts))
    pairs = zip(hosts, outcomes, strict=True)
    return [(host, error) for host, error in pairs if error is not None]


def call(way: Way, host: Host, words: Sequence[str], content: bytes = b"") -> str:
    """Run hetctl on a host; return what it printed.

    Args:
        way: how.
        host: where.
        words: of hetctl.
        content: its standard input.

    Raises:
        HetError: ssh or the command fails; the text is the last line of its errors.

    """
    port = ["-p", str(host.ssh_port)] if host.ssh_port else []
    remote = shlex.join([*way.hetctl, *words])
    command = [*way.ssh, *port, "--", host.login, remote]
    try:
        done = subprocess.run(  # noqa: S603  the user's own ssh
            command, input=content, capture_output=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        raise HetError(f"no end after {PATIENCE_S:g} s") from error
    except OSError as error:
        raise HetError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HetError(lines[-1] if lines else f"exit status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def remember(folder: Path, way: Way, hosts: Sequence[Host]) -> None:
    """Record the hosts, so that `pool down` stops them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder / "hosts.json.new"
    new.write_bytes(msgspec.json.encode((way, list(hosts))))
    new.replace(folder / "hosts.json")


def remembered(folder: Path) -> tuple[Way, list[Host]] | None:
    """Return the recorded hosts; None: there are none.

    Raises:
        HetError: the record is damaged.

    """
    path = folder / "hosts.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Way, list[Host]])
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise HetError(f"{path}: {error}") from error


def forget(folder: Path) -> None:
    """Remove the record of hosts."""
    (folder / "hosts.json").unlink(missing_ok=True)
