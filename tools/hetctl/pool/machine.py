"""`hetctl pool up`, `join`, `down`: start and stop the processes of a pool."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from hetctl.output import emit, say
from hetctl.pool.connection import check_extra, file_of, opened, pooled, present
from hetctl.units import Duration
from libtask.errors import HetError, InputError

if TYPE_CHECKING:
    from hetctl.pool.hosts import Host, Way
    from hetpool.setup.certificates import Authority
    from hetpool.setup.config import PoolFile, PoolSettings
    from hetpool.setup.folders import PoolFiles

LARGEST_INVITATION = 1 << 20
LOOK_S = 0.2
"""Seconds between two looks whether the pool is up."""
BATCH = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]
"""ssh asks nothing: several hosts are called at the same time."""

root_option = click.option(
    "--allow-root",
    is_flag=True,
    help="Run as root, for a private pool in a container: its members are root then.",
)


# ------------------------------------------------------------ up


@click.command("up")
@click.option(
    "--hosts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of hosts, one a line: [USER@]HOST[:SSH-PORT] [NAME [PORT]].",
)
@click.option(
    "--address",
    help="Address of this machine for the other ones.  [default: the one that the first host sees]",
)
@click.option("--name", help="Name of this machine's node.  [default: its host name]")
@click.option(
    "--gateway",
    is_flag=True,
    help="Run no tasks on this machine: it only gives its files to the nodes.",
)
@click.option("--ssh", default="ssh", show_default=True, help="How ssh is called.")
@click.option(
    "--hetctl",
    default="hetctl",
    show_default=True,
    help="How hetctl is called on the hosts.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="60s",
    show_default=True,
    help="Time allowed for all nodes to come.",
)
@root_option
@pooled
def up_command(
    *, config: str | None, as_json: bool, timeout: float, **given: Any
) -> int:
    """Start a pool: on this machine, or with --hosts on several, over ssh.

    The first call makes ~/.config/hetd/pool.toml and the pool's own certificates; later
    ones renew certificates that end within 60 days. The processes are units of systemd
    --user where that runs, else a supervisor starts them again when they end. On a machine
    without a running hetd, the pool has a private one.
    """
    check_extra()
    from hetpool.setup.certificates import Authority
    from hetpool.setup.folders import place_of
    from hetpool.setup.settings import refuse_root

    refuse_root(allowed=given["allow_root"])
    place = place_of({"HETPOOL_CONFIG": str(file_of(config))})
    hosts = _hosts(given["hosts"])
    joined = (place.certificates / "ca.pem").exists()
    if joined and not (place.certificates / "ca.key").exists():
        if hosts:
            raise InputError(
                "this machine joined a pool: --hosts goes with its first machine"
            )
        _start_here(place, scheduler=False, root=given["allow_root"])
        return _report(place, timeout, [], as_json=as_json)
    settings = _settings(place, hosts, given)
    authority = Authority(place.certificates, present())
    _certify_this(authority, settings)
    _start_here(place, scheduler=True, root=given["allow_root"])
    failed = _start_hosts(place, authority, settings, hosts, given)
    return _report(place, timeout, failed, as_json=as_json)


def _hosts(path: Path | None) -> list[Host]:
    from hetctl.pool.hosts import read_hosts

    return read_hosts(path) if path is not None else []


def _settings(place: PoolFiles, hosts: list[Host], given: dict[str, Any]) -> PoolFile:
    """Return the settings; write a file where there is none, and add hosts to it."""
    from hetpool.setup.config import read_file
    from hetpool.setup.folders import add_nodes, write_settings

    if not place.file.exists():
        write_settings(place.file, _new_settings(hosts, given))
    add_nodes(place.file, [host.node for host in hosts])
    found = read_file(place.file)
    if hosts and _is_loopback(found.scheduler) and not all(map(_is_near, hosts)):
        raise InputError(
            f"{place.file}: scheduler: the hosts cannot reach {found.scheduler}; write "
            "this machine's address there"
        )
    return found


def _new_settings(hosts: list[Host], given: dict[str, Any]) -> PoolFile:
    from hetpool.setup.config import FIRST_PORT, NodeTable, PoolFile
    from hetpool.setup.endpoint import Address, parse_address
    from hetpool.setup.folders import LOOPBACK, address_towards, free_port

    address = given["address"]
    if address is None:
        address = address_towards(hosts[0].address) if hosts else LOOPBACK
    host = parse_address(
        f"[{address}]" if ":" in address else address, "--address"
    ).host
    name = given["name"] or socket.gethostname().partition(".")[0] or "n1"
    taken = {each.port for each in hosts if each.address == host}
    port = next(
        each for each in range(FIRST_PORT, 1 << 16)
        if each not in taken and free_port(host, each) == each
    )  # fmt: skip
    node = NodeTable(name, host, port, gateway=given["gateway"])
    scheduler = str(Address(host, free_port(host)))
    return PoolFile(scheduler=scheduler, this=name, node=[node])


def _is_loopback(scheduler: str) -> bool:
    return "//127." in scheduler or "//[::1]" in scheduler or "//localhost" in scheduler


def _is_near(host: Host) -> bool:
    return host.address.startswith("127.") or host.address in ("::1", "localhost")


def _certify_this(authority: Authority, settings: PoolFile) -> None:
    from hetpool.setup.certificates import THIS, Member
    from hetpool.setup.endpoint import parse_address

    own = [
        each.address or each.name
        for each in settings.node
        if each.name == settings.this
    ]
    hosts = {parse_address(settings.scheduler, "scheduler").host, *own}
    authority.member(Member(THIS, sorted(hosts)))


def _start_here(place: PoolFiles, *, scheduler: bool, root: bool) -> None:
    from hetpool.setup.config import read_file
    from hetpool.setup.folders import runs, start

    if not runs(place):
        has_node = bool(read_file(place.file).this)
        start(place, scheduler=scheduler, node=has_node, root=root)


def _start_hosts(
    place: PoolFiles,
    authority: Authority,
    settings: PoolFile,
    hosts: list[Host],
    given: dict[str, Any],
) -> list[str]:
    """Let the hosts join; name those that could not be asked to, and say why."""
    if not hosts:
        return []
    from hetctl.pool.hosts import Way, call, on_each, remember
    from hetpool.setup.certificates import Member
    from hetpool.setup.folders import invitation

    way = Way([*shlex.split(given["ssh"]), *BATCH], shlex.split(given["hetctl"]))
    remember(place.state, way, hosts)
    words = ["pool", "join", *["--allow-root"] * given["allow_root"]]

    def invite(host: Host) -> None:
        files = authority.member(Member(host.name, [host.address]))
        call(way, host, words, invitation(_for_host(settings, host), files))

    failed = on_each(hosts, invite)
    for host, error in failed:
        say(f"hetctl: {host.name} ({host.login}): {error}", err=True)
    return [host.name for host, _ in failed]


def _for_host(settings: PoolFile, host: Host) -> PoolFile:
    """Return the settings of a host: those of this machine, but for its own node."""
    from hetpool.setup.config import TlsTable

    nodes = [each for each in settings.node if each.name == host.name]
    return replace(settings, this=host.name, tls=TlsTable(), node=nodes)


# ------------------------------------------------------------ report


def _report(
    place: PoolFiles, timeout: float, failed: list[str], *, as_json: bool
) -> int:
    """Wait for the nodes, and print the state of the pool; return the exit status.

    Args:
        place: where its files are.
        timeout: seconds.
        failed: nodes that were not reached: they are not waited for.
        as_json: for programs.

    """
    from hetctl.pool.nodes import print_state
    from hetpool.setup.config import read_settings

    settings = read_settings(place.file)
    deadline = time.monotonic() + timeout
    _await_scheduler(settings, place, deadline)
    with opened(settings) as pool:
        wanted = {each.name for each in settings.nodes}
        while True:
            absent = wanted - {node.name for node in pool.nodes() if node.present}
            if absent <= set(failed) or time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        print_state(pool, settings, as_json=as_json)
    if not as_json:
        for name in sorted(absent.difference(failed)):
            say(
                f"hetctl: {name} has not come after {timeout:g} s{_hint(place)}",
                err=True,
            )
    return 1 if absent or failed else 0


def _await_scheduler(settings: PoolSettings, place: PoolFiles, deadline: float) -> None:
    from hetpool.errors import PoolUnreachableError
    from hetpool.setup.certificates import check_files
    from hetpool.setup.endpoint import probe

    check_files(settings.tls, present())
    while True:
        try:
            probe(settings.scheduler, settings.tls)
        except PoolUnreachableError as error:
            if time.monotonic() > deadline:
                raise HetError(f"{error}{_hint(place)}") from error
            time.sleep(LOOK_S)
        else:
            return


def _hint(place: PoolFiles) -> str:
    """Name the logs, and quote the last line of them."""
    logs = [place.state / f"{name}.log" for name in ("scheduler", "node", "hetd")]
    for log in logs:
        if log.exists() and (lines := log.read_text("utf-8", "replace").strip()):
            return f" ({log}: {lines.splitlines()[-1][:300]})"
    return " (journalctl --user -u hetpool-scheduler -u hetpool-node)"


# ------------------------------------------------------------ join, down


@click.command("join")
@root_option
@pooled
def join_command(*, config: str | None, as_json: bool, allow_root: bool) -> None:
    """Read an invitation from standard input, and start this machine's node.

    `hetctl pool up --hosts FILE` calls this over ssh. An invitation has the private key of
    this machine; it is for no other channel.
    """
    check_extra()
    from hetpool.setup.folders import accept, place_of, start, stop
    from hetpool.setup.settings import refuse_root

    refuse_root(allowed=allow_root)
    content = sys.stdin.buffer.read(LARGEST_INVITATION)
    place = place_of({"HETPOOL_CONFIG": str(file_of(config))})
    settings = accept(content, place)
    stop(place)
    running = start(place, scheduler=False, node=True, root=allow_root)
    if as_json:
        emit(
            _stopped(settings.scheduler, place)
            | {"running": True, "nodes": [settings.this]}
        )
    else:
        say(
            f"{settings.this} joins {settings.scheduler} (kept running by {running.by})"
        )


def _stopped(scheduler: str, place: PoolFiles) -> dict[str, Any]:
    return {
        "format": "hetctl/pool-1",
        "running": False,
        "scheduler": scheduler,
        "file": str(place.file),
    }


@click.command("down")
@click.option(
    "--here",
    is_flag=True,
    help="Stop only this machine's processes, not those of hosts.",
)
@pooled
def down_command(*, config: str | None, here: bool, as_json: bool) -> int:
    """Stop the processes of the pool, on this machine and on the hosts of `up --hosts`.

    Tasks that run go on under the hetd of their nodes; a private hetd that `up` started
    ends, and its tasks report when it is back.
    """
    check_extra()
    from hetctl.pool.hosts import call, forget, on_each, remembered
    from hetpool.setup.config import read_file
    from hetpool.setup.folders import place_of, stop

    place = place_of({"HETPOOL_CONFIG": str(file_of(config))})
    known = None if here else remembered(place.state)
    failed = []
    if known is not None:
        way, hosts = known
        failed = on_each(hosts, lambda host: _down(call, way, host))
        for host, error in failed:
            say(f"hetctl: {host.name} ({host.login}): {error}", err=True)
    stopped = stop(place)
    if known is not None and not failed:
        forget(place.state)
    scheduler = read_file(place.file).scheduler if place.file.exists() else ""
    if as_json:
        emit(_stopped(scheduler, place))
    elif stopped or known is not None:
        say("stopped")
    else:
        say("no processes of a pool run here", err=True)
    return 1 if failed else 0


def _down(call: Any, way: Way, host: Host) -> None:
    call(way, host, ["pool", "down", "--here"])
