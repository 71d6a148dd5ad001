"""Machines that are network namespaces of one machine, joined by links of a set rate.

A pool can be tried and tested on them without a second machine: each has addresses of its
own, a link whose rate the kernel keeps in both directions, and a link can be cut. Tests and
the demo of a pool run their processes in them (`LinkedMachines.command`). As root the
namespaces are made directly; another user makes them inside a user namespace, if the kernel
allows that. `obstacle` tries it and returns why it does not work here. A process of its own
removes them if this one is killed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAMS = ("ip", "tc", "unshare", "nsenter", "mount")
NETWORK = "10.97.0"
MOST_MACHINES = 250
HUB, BRIDGE, INTERFACE = "hub", "br0", "eth0"
BURST_S, LEAST_BURST = 0.01, 64 << 10
"""A link sends as much at once as it carries in this time: above one segment of TCP."""
QUEUE_S = 0.1
"""Packets that would wait longer in front of a link are dropped."""
PATIENCE_S = 30.0
REMOVE_AT_END = """
cat
for name in $(ip netns list | cut -d " " -f 1); do
    case $name in "$1"-*)
        inodes="$inodes $(stat -Lc %i /run/netns/$name)"
        ip netns delete $name
    esac
done
for look in 1 2; do
    stat -Lc "%i %n" /proc/[0-9]*/ns/net | while read inode link; do
        pid=${link#/proc/}
        pid=${pid%/ns/net}
        case "$inodes " in *" $inode "*)
            [ $pid = $2 ] || kill -9 $pid
        esac
    done
    sleep 0.1
done
"""
"""Waits for the end of the program that made the machines, or for its word, and removes them.

The names go first, so that nobody enters any more; the second look finds who had opened a
name before and had not entered yet. The program itself ($2) may be on one of its machines.
"""


class NamespaceError(HetError):
    """The machine does not allow network namespaces, or a name is in use."""

    code = "namespaces"


@dataclass(frozen=True, slots=True)
class LinkRates:
    """The rates of a machine's link, bytes a second; None = no limit.

    Attributes:
        ingress: into the machine.
        egress: out of it.

    """

    ingress: float | None = None
    egress: float | None = None


class _Direct:
    """Runs commands as this user, who is root."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def close(self) -> None:
        """Keep nothing."""


class _InUserNamespace:
    """Runs commands in a user namespace, where this user is root.

    A process holds the namespace, with a file system of its own at /run, where `ip` keeps
    the names of network namespaces; all of them are gone when it and what runs there end.
    It ends with its standard input, and so with this process, even if this one is killed.
    """

    def __init__(self) -> None:
        hold = "mount -t tmpfs tmpfs /run && echo ready && exec cat >&2"
        self._holder = subprocess.Popen(  # noqa: S603  commands of this module
            ["unshare", "-rnm", "sh", "-c", hold],  # noqa: S607  the user's own PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is not for it
        )
        assert self._holder.stdout is not None  # noqa: S101  it is a pipe
        if self._holder.stdout.readline().strip() != "ready":
            _, text = self._holder.communicate(timeout=PATIENCE_S)
            raise NamespaceError(f"no user namespace: {_last_line(text)}")

    def wrap(self, command: Sequence[str]) -> list[str]:
        enter = ["nsenter", "-t", str(self._holder.pid), "-U", "-n", "-m"]
        return [*enter, "--preserve-credentials", *command]

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate(timeout=PATIENCE_S)


@dataclass(slots=True, eq=False)
class LinkedMachines:
    """Machines with links to one switch; made by `make`, which removes them if it fails.

    Attributes:
        tag: begins the names of all namespaces; this run's own.
        names: of the machines, in the order of their addresses.

    """

    tag: str
    names: list[str] = field(default_factory=list)
    _way: _Direct | _InUserNamespace = field(default_factory=_Direct)
    _remover: subprocess.Popen[bytes] | None = None
    _closed: bool = False

    @classmethod
    def make(
        cls,
        machines: Mapping[str, LinkRates],
        *,
        tag: str = "",
        in_user_namespace: bool | None = None,
    ) -> Self:
        """Make machines and their links.

        Args:
            machines: rates by name.
            tag: begins the names of the namespaces; empty: one of this run's own.
            in_user_namespace: None: unless this user is root.

        Raises:
            NamespaceError: the machine does not allow it, or a name is in use.
            InputError: too many machines, or a name that cannot be one.

        """
        _check(machines)
        rootless = os.geteuid() != 0 if in_user_namespace is None else in_user_namespace
        tag = tag or f"hetd-{os.getpid()}-{secrets.token_hex(3)}"
        made = cls(tag, _way=_InUserNamespace() if rootless else _Direct())
        try:
            made._refuse_names_in_use()
        except BaseException:
            made._way.close()
            raise
        try:
            made._make(machines)
        except BaseException:
            made.close()
            raise
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return f"{NETWORK}.{self.names.index(name) + 1}"

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` on a machine, for `subprocess`."""
        return self._way.wrap(["ip", "netns", "exec", self._full(name), *command])

    def set_rates(self, name: str, rates: LinkRates) -> None:
        """Change the rates of a machine's link."""
        self._limit(HUB, self._port(name), rates.ingress)
        self._limit(name, INTERFACE, rates.egress)

    def cut(self, name: str) -> None:
        """Cut the link of a machine: packets vanish, connections stay as they are."""
        self._ip("-n", self._full(HUB), "link", "set", self._port(name), "down")

    def mend(self, name: str) -> None:
        """Connect a machine again whose link was cut."""
        self._ip("-n", self._full(HUB), "link", "set", self._port(name), "up")

    def processes(self, name: str) -> list[int]:
        """List the processes on a machine, without the calling one."""
        shown = self._ip("netns", "pids", self._full(name))
        # in a user namespace the numbers are those outside, as /proc is
        return [pid for pid in map(int, shown.split()) if pid != os.getpid()]

    def close(self) -> None:
        """End what runs on the machines, and remove them."""
        if self._closed:
            return
        self._closed = True
        if self._remover is not None:
            self._remover.communicate(timeout=PATIENCE_S)
        self._way.close()

    # ------------------------------------------------------------------ parts

    def _make(self, machines: Mapping[str, LinkRates]) -> None:
        self._remover = subprocess.Popen(  # noqa: S603  a command of this module
            self._way.wrap(
                ["sh", "-c", REMOVE_AT_END, "sh", self.tag, str(os.getpid())]
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        self._add(HUB)
        hub = self._full(HUB)
        self._ip("-n", hub, "link", "add", BRIDGE, "type", "bridge")
        self._ip("-n", hub, "link", "set", BRIDGE, "up")
        for name, rates in machines.items():
            self.names.append(name)
            self._add(name)
            self._connect(name)
            self.set_rates(name, rates)

    def _add(self, name: str) -> None:
        self._ip("netns", "add", self._full(name))
        self._ip("-n", self._full(name), "link", "set", "lo", "up")

    def _connect(self, name: str) -> None:
        hub, port, own = self._full(HUB), self._port(name), self._full(name)
        pair = ["type", "veth", "peer", "name", INTERFACE, "netns", own]
        self._ip("-n", hub, "link", "add", port, *pair)
        self._ip("-n", hub, "link", "set", port, "master", BRIDGE, "up")
        address = f"{self.address(name)}/24"
        self._ip("-n", own, "address", "add", address, "dev", INTERFACE)
        self._ip("-n", own, "link", "set", INTERFACE, "up")

    def _limit(self, name: str, interface: str, rate: float | None) -> None:
        where = ["-n", self._full(name), "qdisc"]
        if rate is None:
            with suppress(NamespaceError):  # it had no limit
                self._run(["tc", *where, "del", "dev", interface, "root"])
            return
        burst = int(max(rate * BURST_S, LEAST_BURST))
        limit = int(max(rate * QUEUE_S, LEAST_BURST) + burst)
        bits = f"{int(rate * 8)}bit"
        kept = ["tbf", "rate", bits, "burst", str(burst), "limit", str(limit)]
        self._run(["tc", *where, "replace", "dev", interface, "root", *kept])

    def _refuse_names_in_use(self) -> None:
        listed = self._ip("netns", "list").splitlines()
        used = [line.split()[0] for line in listed if line.startswith(f"{self.tag}-")]
        if used:
            raise NamespaceError(
                f"network namespace {used[0]} is there already: another run uses the tag "
                f"{self.tag}"
            )

    def _full(self, name: str) -> str:
        return f"{self.tag}-{name}"

    def _port(self, name: str) -> str:
        return f"port{self.names.index(name) + 1}"

    def _ip(self, *arguments: str) -> str:
        return self._run(["ip", *arguments])

    def _run(self, command: Sequence[str]) -> str:
        return _output(self._way.wrap(command))


def obstacle(*, in_user_namespace: bool | None = None) -> str:
    """Return why machines cannot be made here; empty: they can. It makes two."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no program {missing[0]}"
    rates = LinkRates(1e6, 1e6)
    try:
        with LinkedMachines.make(
            {"a": rates, "b": rates}, in_user_namespace=in_user_namespace
        ) as made:
            _output(made.command("a", ["true"]))
    except NamespaceError as error:
        return str(error)
    return ""


def _check(machines: Mapping[str, LinkRates]) -> None:
    if not 0 < len(machines) <= MOST_MACHINES:
        raise InputError(f"1 to {MOST_MACHINES} machines, got {len(machines)}")
    for name in machines:
        if not name.replace("-", "").isalnum() or not name.isascii() or name == HUB:
            raise InputError(
                f"machine {name!r}: letters, digits and -, and not {HUB!r}"
            )


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603  commands of this module
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NamespaceError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise NamespaceError(f"{' '.join(command)}: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
