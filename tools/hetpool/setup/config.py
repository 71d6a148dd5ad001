"""The configuration of a pool: `pool.toml`, checked key by key.

    scheduler = "tls://head:8786"
    planner = "ncjm"

    [[node]]
    name = "n1"
    address = "10.0.0.5"

Clients, agents and the broker read it; `hetctl pool up` writes one where there is none.
`read_settings` resolves it to `PoolSettings`, from which the engine and the broker get
theirs.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hetpool.errors import PoolUnreachableError
from hetpool.setup.endpoint import HIGHEST_PORT, Address, TlsFiles, parse_address
from hetpool.setup.settings import BrokerSettings, EngineSettings
from libtask.complaints import convert
from libtask.documents import check_numbers, decoded
from libtask.errors import InputError
from libtask.user_folders import user_folder
from libtask.whole_files import LARGEST_TEXT, read_whole
from libtask.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_VARIABLE = "HETPOOL_CONFIG"
"""Environment variable with the path of another `pool.toml`."""
SCHEDULER_VARIABLE = "HETPOOL_SCHEDULER"
"""Environment variable with the scheduler's address; it overrides the file's."""
FIRST_PORT = 9000
"""Port of a node's agent, if nothing else is given."""
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
"""Names of nodes: a task is `NODE:NUMBER`, so they hold no colon, comma or wildcard."""
MOST_NODES = 10_000
MOST_IN_GROUP = 1000
MEASURED = "measured"

PLANNERS = ("ncjm", "nim", "cim", "waves", "sjf", "ljf", "sct", "mmi", "mttf-lp")
"""Names of the planners; the module with their classes loads SciPy."""


class TlsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[tls]` table: the certificates, as files. Relative paths begin at the file's folder."""

    ca: str = "pool/ca.pem"
    """Certificate of the pool's own authority: only what it signed is accepted."""
    cert: str = "pool/this.pem"
    """Certificate of this machine."""
    key: str = "pool/this.key"
    """Its private key, of mode 0600."""


class NodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[node]]` table."""

    name: str
    """Its name, as tasks and listings show it: letters, digits, dots and hyphens."""
    address: str = ""
    """Host name or IP address at which the other nodes reach it. Empty: its name."""
    worker_port: int = FIRST_PORT
    """TCP port of its agent. It is fixed, so that an agent that is restarted gets its
    tasks back."""
    ingress: float | str = MEASURED
    """Bytes per second that it can receive; `measured`: what transfers reached."""
    gateway: bool = False
    """It has no hetd and runs no task: it only holds files of clients."""


class PoolFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set. Units stand in the names."""

    scheduler: str = ""
    """Address of the scheduler: `tls://HOST:PORT`. `$HETPOOL_SCHEDULER` overrides it."""
    planner: str = "ncjm"
    """Planner of batches; `hetsim plan` has the same ones."""
    goodput_share: float = 0.95
    """Share of a link's measured rate with which batches are planned, and to which
    transfers are limited."""
    lease_s: float = 10.0
    """Time without the scheduler after which a node holds the pool's tasks."""
    replace_s: float = 25.0
    """Time after which the tasks of a lost node run elsewhere: longer than `lease_s` and
    the longest strip together."""
    group_s: float = 0.5
    """Tasks that are expected to be shorter are sent in groups. 0: none are."""
    group_size: int = 50
    """Most tasks in such a group."""
    copy_s: float = 0.0
    """Seconds between two copies of a running task's snapshot to another node. 0: as often
    as pays, by the time that a copy takes and `node_mtbf_s`."""
    node_mtbf_s: float = 30 * 86_400.0
    """Mean time between failures of a node, seconds."""
    this: str = ""
    """Name of this machine's own node. Empty: it has none, it only has clients."""
    tls: TlsTable = TlsTable()
    node: list[NodeTable] = []


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A node of the pool."""

    name: str
    host: str
    port: int
    ingress: float | None
    """Bytes per second; None: to be measured."""
    gateway: bool


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A pool's settings, resolved: paths are absolute, defaults are filled in."""

    scheduler: Address
    tls: TlsFiles
    planner: str = "ncjm"
    goodput_share: float = 0.95
    lease_s: float = 10.0
    replace_s: float = 25.0
    group_s: float = 0.5
    group_size: int = 50
    copy_s: float = 0.0
    node_mtbf_s: float = 30 * 86_400.0
    nodes: tuple[NodeSettings, ...] = ()
    this: NodeSettings | None = None
    """The node of this machine; None: it has none."""
    file: Path | None = None
    """The file that they come from; None: there is none."""

    def engine(self) -> EngineSettings:
        """Return the settings of the engine."""
        tls = self.tls
        return EngineSettings(str(self.scheduler), tls.ca, tls.cert, tls.key)

    def broker(self) -> BrokerSettings:
        """Return the settings of the broker."""
        return BrokerSettings(
            planner=self.planner,
            share=self.goodput_share,
            lease_s=self.lease_s,
            replace_s=self.replace_s,
            group_s=self.group_s,
            group_size=self.group_size,
            copy_s=self.copy_s,
            node_mtbf_s=self.node_mtbf_s,
        )

    def node(self, name: str) -> NodeSettings | None:
        """Return the settings of a node; None: it is not listed."""
        return next((each for each in self.nodes if each.name == name), None)


def default_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of `pool.toml`: `$HETPOOL_CONFIG`, else in the user's configuration."""
    named = environment.get(FILE_VARIABLE)
    if named:
        return Path(named).absolute()
    return user_folder("config") / "pool.toml"


def read_settings(
    path: Path | None = None, environment: Mapping[str, str] = os.environ
) -> PoolSettings:
    """Read and check the settings of a pool.

    Args:
        path: the file; None: the default one, which may be absent if the environment
            names the scheduler.
        environment: the variables of the process.

    Raises:
        InputError: unreadable, not TOML, an unknown key or a wrong value; says where.
        PoolUnreachableError: nothing names a scheduler.

    """
    place = path or default_file(environment)
    named = environment.get(SCHEDULER_VARIABLE, "")
    asked_for = path is not None or FILE_VARIABLE in environment
    if not asked_for and not place.exists():
        if not named:
            raise PoolUnreachableError(
                f"no pool: there is no {place}, and ${SCHEDULER_VARIABLE} is not set; "
                "`hetctl pool up` sets one up"
            )
        return _resolved(PoolFile(), place, named, exists=False)
    return _resolved(read_file(place), place, named, exists=True)


def read_file(path: Path) -> PoolFile:
    """Read and check a `pool.toml`.

    Raises:
        InputError: unreadable, not TOML, an unknown key or a wrong value; says where.

    """
    try:
        text = read_whole(path, LARGEST_TEXT).decode()
        document: dict[str, Any] = decoded(tomllib.loads, text)
        check_numbers(document)
        found = convert(document, PoolFile)
        _check(found)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, InputError) as error:
        raise InputError(f"{path}: {error}") from error
    return found


def _check(found: PoolFile) -> None:
    _check_planner(found.planner)
    _check_times(found)
    if not 0 < found.goodput_share <= 1:
        raise InputError("goodput_share: expected a share above 0, and 1 at most")
    if not 0 <= found.copy_s < math.inf:
        raise InputError("copy_s: expected a number of seconds from 0")
    if not 1 <= found.node_mtbf_s < math.inf:
        raise InputError("node_mtbf_s: expected a number of seconds from 1")
    if not 1 <= found.group_size <= MOST_IN_GROUP:
        raise InputError(f"group_size: expected 1 to {MOST_IN_GROUP}")
    if found.scheduler:
        parse_address(found.scheduler, "scheduler")
    _check_nodes(found.node)
    names = [each.name for each in found.node]
    if found.this and found.this not in names:
        raise InputError(f"this: no node {found.this!r}{suggestion(found.this, names)}")


def _check_planner(name: str) -> None:
    if name not in PLANNERS:
        hint = suggestion(name, PLANNERS)
        raise InputError(
            f"planner: no planner {name[:80]!r}{hint}; there are: {', '.join(PLANNERS)}"
        )


def _check_times(found: PoolFile) -> None:
    for name in ("lease_s", "replace_s"):
        if not 1 <= getattr(found, name) < math.inf:
            raise InputError(f"{name}: expected a number of seconds from 1")
    if found.replace_s <= found.lease_s:
        raise InputError(
            f"replace_s: expected more than lease_s ({found.lease_s:g}), got "
            f"{found.replace_s:g}: tasks would run on two nodes at once"
        )
    if not 0 <= found.group_s < math.inf:
        raise InputError("group_s: expected a number of seconds from 0")


def _check_nodes(nodes: list[NodeTable]) -> None:
    if len(nodes) > MOST_NODES:
        raise InputError(f"node: expected {MOST_NODES} tables at most")
    names: set[str] = set()
    places: set[tuple[str, int]] = set()
    for number, node in enumerate(nodes):
        _check_node(node, f"node[{number}]")
        if node.name in names:
            raise InputError(f"node[{number}].name: {node.name!r} is taken")
        place = (node.address or node.name, node.worker_port)
        if place in places:
            raise InputError(
                f"node[{number}].worker_port: another node has {place[0]}:{place[1]}"
            )
        names.add(node.name)
        places.add(place)


def _check_node(node: NodeTable, where: str) -> None:
    if not NAME.fullmatch(node.name):
        raise InputError(
            f"{where}.name: expected letters, digits, dots and hyphens, 63 at most, "
            f"got {node.name[:80]!r}"
        )
    if node.address:
        parse_address(f"tls://{_bracketed(node.address)}:1", f"{where}.address")
    if not 0 < node.worker_port <= HIGHEST_PORT:
        raise InputError(
            f"{where}.worker_port: expected 1 to {HIGHEST_PORT}, got {node.worker_port}"
        )
    if node.ingress != MEASURED and not _is_rate(node.ingress):
        raise InputError(
            f"{where}.ingress: expected bytes per second above 0, or 'measured'"
        )


def _is_rate(value: float | str) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _resolved(
    found: PoolFile, place: Path, named: str, *, exists: bool
) -> PoolSettings:
    if named:
        scheduler = parse_address(named, f"${SCHEDULER_VARIABLE}")
    elif found.scheduler:
        scheduler = parse_address(found.scheduler, "scheduler")
    else:
        raise InputError(
            f"{place}: scheduler: no address; expected one as tls://head:8786"
        )
    nodes = {each.name: _node(each) for each in found.node}
    return PoolSettings(
        scheduler=scheduler,
        tls=tls_files(place, found.tls),
        planner=found.planner,
        goodput_share=found.goodput_share,
        lease_s=found.lease_s,
        replace_s=found.replace_s,
        group_s=found.group_s,
        group_size=found.group_size,
        copy_s=found.copy_s,
        node_mtbf_s=found.node_mtbf_s,
        nodes=tuple(nodes.values()),
        this=nodes.get(found.this),
        file=place if exists else None,
    )


def tls_files(place: Path, table: TlsTable) -> TlsFiles:
    """Return the paths of a table's files; `place` is the file that holds the table."""
    folder = place.parent
    return TlsFiles(*(folder / getattr(table, name) for name in ("ca", "cert", "key")))


def _node(table: NodeTable) -> NodeSettings:
    return NodeSettings(
        name=table.name,
        host=(table.address or table.name).strip("[]"),
        port=table.worker_port,
        ingress=table.ingress if isinstance(table.ingress, float) else None,
        gateway=table.gateway,
    )
