"""The configuration: a TOML file, checked key by key.

    policy = "migration"
    interval_ms = 50

    [policy_parameters]
    minimum_run_s = 1.0

    [[resource]]
    name = "gpu0"
    kind = "gpu"
    driver = "opencl"
    platform = "NVIDIA CUDA"
    device = "NVIDIA H200"

    [limits]
    tasks = 10000

    [limits.user.alice]
    running = 8

Without `[[resource]]` tables the resources are discovered.
"""

from __future__ import annotations

import logging
import math
import os
import pwd
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hetsched.contention import SharedResource
from hetsched.limits import Quota, Quotas
from libtask.complaints import convert
from libtask.documents import MAX_BYTES, check_numbers, decoded
from libtask.errors import InputError
from libtask.messages import ConfigValue, DeviceInfo, DeviceSpec, Kind, SnapshotSettings
from libtask.whole_files import LARGEST_TEXT, MIB, read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hetd.tasks.operator_settings import OperatorSetting


class ResourceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[resource]]` table. Watts and bandwidths serve the models of cost.

    `hetctl devices --write-config FILE` writes those that hetd found.
    """

    name: str
    """Its name: cpu, gpu0, fpga0, or any other."""
    kind: Kind
    """Kind of implementations that it runs."""
    driver: str = "cpu"
    """cpu, opencl, or null: computes nothing, for tests."""
    platform: str = ""
    """OpenCL platform, by name."""
    device: str = ""
    """OpenCL device, by name."""
    index: int = 0
    """Number of the device among those with that name, from 0."""
    uuid: str = ""
    """Its UUID, by which other libraries find it: CUDA counts cards in an order of its own."""
    threads: int = 1
    """Threads that a task may use on it."""
    slots: int = 1
    """Tasks that it runs at once; 1 on accelerators."""
    emulated: bool = False
    """It stands in for hardware that is not there; all listings say so."""
    binaries: dict[str, str] = {}
    """Prebuilt FPGA images: program -> path of the .aocx or .xclbin."""
    busy_watts: float = 0.0
    """Power while it computes, where it is not measured."""
    idle_watts: float = 0.0
    """Power while it does not."""
    memory_bytes: int = 0
    """Its own memory, for tasks that state how much they need of it; 0: it is not counted."""
    link_bytes_per_s: float | None = None
    """Bandwidth between host memory and the device; left out: it is the host's memory."""
    reconfigure_s: float = 0.0
    """Time to load another image into a board."""
    shared: bool = False
    """Its tasks share its speed: each of n takes n times as long as alone."""

    def device_info(self) -> DeviceInfo:
        """Return the resource as it travels."""
        names = set(DeviceSpec.__struct_fields__) & set(self.__struct_fields__)
        spec = {name: getattr(self, name) for name in names}
        own = {name: getattr(self, name) for name in self.__struct_fields__}
        rest = {name: own[name] for name in own if name not in names}
        return DeviceInfo(msgspec.convert(spec, DeviceSpec), **rest)


Count = int | Literal["unlimited"]


class UserTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[limits.user.NAME]` table; NAME is a login name or a uid.

    What it leaves out is as for everybody.
    """

    tasks: Count | None = None
    """Unfinished tasks of the user; a submit that would exceed it is refused."""
    running: Count | None = None
    """Slots that the user's tasks take at once; further tasks wait."""
    share: float | None = None
    """Weight: users whose tasks of equal priority wait for a resource share its time in
    this proportion."""
    stored_mb: Count | None = None
    """Disk space for the records of the user, in MiB; above it the oldest ended tasks are
    removed."""
    unended_mb: Count | None = None
    """Memory and disk space for the user's unfinished tasks, in MiB; a submit that would
    exceed it is refused."""
    priority: Count | None = None
    """Highest priority of the user's tasks; its negative is the lowest."""


class LimitsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[limits]` table: what each user may have at once."""

    tasks: Count = "unlimited"
    """Unfinished tasks of a user; a submit that would exceed it is refused."""
    running: Count = "unlimited"
    """Slots that a user's tasks take at once; further tasks wait."""
    share: float = 1.0
    """Weight: users whose tasks of equal priority wait for a resource share its time in
    this proportion."""
    stored_mb: Count = 2048
    """Disk space for the records of a user, in MiB: parameters, results and records of
    tasks and the answers to requests. Above it the oldest ended tasks are removed."""
    unended_mb: Count = 256
    """Memory and disk space for a user's unfinished tasks, in MiB, mostly their
    parameters; a submit that would exceed it is refused."""
    priority: Count = 1000
    """Highest priority of a user's tasks; its negative is the lowest. Administrators may
    use any priority."""
    user: dict[str, UserTable] = {}
    """Exceptions for single users, by login name or uid."""


class SnapshotsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[snapshots]` table: when workers write their tasks' progress to disk."""

    mtbf_s: float = 86_400.0
    """Seconds between two failures of a worker or the machine; the interval between
    snapshots follows from it and from what one takes. 0: write none by themselves."""
    minimum_s: float = 10.0
    """Computing between two snapshots at least: shorter tasks have none."""
    low_memory: float = 0.05
    """Share of the machine's memory: with less available, tasks that wait in a worker
    are written to disk and their memory is given back. 0: never."""
    kept_s: float = 86_400.0
    """Time for which the snapshots of a task that failed or was cancelled are kept, for
    `hetctl requeue --from-snapshot`, within the storage limit of its owner. 0: none are."""

    def terms(self) -> SnapshotSettings:
        """Return the table as it travels."""
        return SnapshotSettings(self.mtbf_s, self.minimum_s, self.low_memory)


class SharedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[contention.shared]]` table: a part of the node that several tasks use at once."""

    name: str
    """Its name: memory, or any other."""
    kind: Literal["cores", "memory", "link", "slices", "bus", "network"]
    """Its kind; hetd reads counters of `cores`, `memory`, `link` and `slices`."""
    bytes_per_s: float | None = None
    """Rate of a transfer that has a link, bus or network for itself; bandwidth of a memory,
    without which counters of its traffic are not read."""

    def resource(self) -> SharedResource:
        """Return it as the scheduler knows it."""
        return SharedResource(self.name, self.kind, self.bytes_per_s)


class LoadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[contention.load]]` table: an application's load, where it is known."""

    app: str
    """Application, or one of its task types."""
    resource: str
    """Resource that it runs on."""
    shared: str
    """Shared resource that it loads from there."""
    demand: float
    """Load that a task offers to it; 1 is its capacity."""
    bound: float
    """Share of the task's time alone that depends on it."""


class ContentionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[contention]` table: what the resources share, for policies that use it.

    Without it nothing is modelled, and every policy decides as before.
    """

    discover: bool = False
    """Find what the resources share: cores and memory, the links and time slices of
    accelerators, with usual loads for applications that were not measured."""
    every_s: float = 2.0
    """Seconds between two readings of counters, while the policy uses them."""
    shared: list[SharedTable] = []
    uses: dict[str, dict[str, str]] = {}
    """Shared resources of each resource: resource -> kind -> name."""
    load: list[LoadTable] = []


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set. Units stand in the names."""

    policy: str = "finish-time"
    """Name of the scheduling policy; `hetctl policy list` shows them, those of installed
    packages too. `hetctl policy set` overrides it until `hetctl policy reset`."""
    policy_parameters: dict[str, Any] = {}
    """Parameters of that policy, as `hetctl policy show` names them."""
    interval_ms: float = 50.0
    """Target time between checkpoints."""
    cores: int = 0
    """Processor cores for tasks that state how many they need; 0: all that hetd may use."""
    task_memory_mb: int = 0
    """Memory for tasks that state how much they need, in MiB; 0: all of the machine's."""
    stage: int = 1
    """Tasks staged ahead for each slot."""
    attempts: int = 3
    """Workers that a task may lose before it fails; the count restarts when it progresses,
    by a strip or a snapshot."""
    cancel_grace_s: float = 5.0
    """Time for a cancelled task to reach its next checkpoint before it is killed."""
    restore_grace_s: float = 5.0
    """Time after a start for running tasks to report before they run again, if no launcher
    reports their workers."""
    strip_limit_s: float = 60.0
    """Time without a checkpoint after which the worker of a running task is ended; 20 times
    the usual time of its strips, if that is longer."""
    setup_limit_s: float = 600.0
    """Time limit for loading, compiling and the first strips, and for saving."""
    device_errors: int = 3
    """Consecutive errors of a device after which it gets no task until it passes a self-test."""
    avoid_s: float = 60.0
    """Time for which an application avoids a resource on which it crashed, hung or did not
    compile; it doubles with each further failure there, up to a day."""
    log_mb: int = 64
    """Disk space for the log of one worker, in MiB; 0: unlimited."""
    processes_per_user: int = 0
    """Maximum processes and threads of a user while tasks run; 0: unlimited. It has no
    effect on root."""
    resident_share: float = 0.2
    """Share of an accelerator's memory in which results stay for the next task of the same
    user; 0: none do. On emulated ones 512 MiB at most."""
    migration_ms: float = 5.0
    """Expected time of a migration, in addition to copying the data."""
    queue_limit: int = 3
    """Tasks that may wait for a resource, under policies that bound local queues."""
    probing: float = 1.0
    """Expected time on a resource where an application was never measured, as a multiple of
    the time on the others: below 1 such resources are tried, at 1 they are not."""
    meters: bool = True
    """Measure power if the machine can; otherwise model it from the figures of watts."""
    on_stop: Literal["leave", "preempt"] = "leave"
    """Running tasks when hetd is stopped: `leave` lets them go on without it, `preempt` stops
    them at a checkpoint and writes snapshots."""
    stop_timeout_s: float = 60.0
    """Time limit for those snapshots."""
    socket_group: str = ""
    """Group whose members may use the socket, if hetd creates it. Empty: only its own user.
    A socket passed by the service manager keeps its group."""
    admin_group: str = "hetd-admin"
    """Members may drain resources, change the policy, and touch all users' tasks."""
    limits: LimitsTable = LimitsTable()
    connections_per_user: int = 1024
    """Connections of one user at the same time; each worker and each client is one."""
    memory_mb: int = 256
    """Memory growth caused by peers, in MiB, above which flooding peers are disconnected."""
    snapshots: SnapshotsTable = SnapshotsTable()
    contention: ContentionTable = ContentionTable()
    history_days: float = 90.0
    """Days for which ended tasks are kept."""
    history_tasks: int = 1_000_000
    """Number of ended tasks that are kept, the newest; 0.7 KiB of disk each, or more."""
    resource: list[ResourceTable] = []


RELOADABLE = (
    "interval_ms",
    "migration_ms",
    "cancel_grace_s",
    "on_stop",
    "stop_timeout_s",
    "admin_group",
    "limits",
    "snapshots",
)
"""Keys that SIGHUP reloads; the others are read at a start."""

SMALLEST = {
    "interval_ms": 0.1,
    "stage": 0,
    "attempts": 1,
    "cancel_grace_s": 0,
    "restore_grace_s": 0,
    "migration_ms": 0,
    "stop_timeout_s": 0,
    "connections_per_user": 8,
    "memory_mb": 16,
    "strip_limit_s": 0.1,
    "setup_limit_s": 0.1,
    "device_errors": 1,
    "avoid_s": 0.1,
    "cores": 0,
    "task_memory_mb": 0,
    "log_mb": 0,
    "processes_per_user": 0,
    "history_days": 0,
    "history_tasks": 0,
}


def read_config(path: Path | None) -> Config:
    """Read and check a configuration file; None: the defaults.

    Raises:
        InputError: unreadable, not TOML, an unknown key or a wrong value; says where.

    """
    return read_document(path)[0]


def read_document(path: Path | None) -> tuple[Config, dict[str, Any]]:
    """Do as `read_config`; return also what the file says."""
    if path is None:
        return Config(), {}
    try:
        text = read_whole(path, LARGEST_TEXT).decode()
        document: dict[str, Any] = decoded(tomllib.loads, text)
        check_numbers(document)
        config = convert(document, Config)
        _check(config)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, InputError) as error:
        raise InputError(f"{path}: {error}") from error
    return config, document


def _check(config: Config) -> None:
    if not 0 < config.probing <= 1:
        raise InputError("probing: expected a number above 0, and 1 at most")
    if not 0 <= config.resident_share < 1:
        raise InputError("resident_share: expected a number from 0 to below 1")
    if config.queue_limit < 0:
        raise InputError(f"queue_limit: expected at least 0, got {config.queue_limit}")
    _check_limits(config.limits)
    for name, least in SMALLEST.items():
        if getattr(config, name) < least:
            raise InputError(f"{name}: expected at least {least}")
    _check_snapshots(config.snapshots)
    _check_contention(config.contention)
    _check_resources(config)


def _check_snapshots(table: SnapshotsTable) -> None:
    for name in ("mtbf_s", "minimum_s", "kept_s"):
        if not 0 <= getattr(table, name) < math.inf:
            raise InputError(f"snapshots.{name}: expected a number from 0")
    if not 0 <= table.low_memory <= 1:
        raise InputError("snapshots.low_memory: expected a share from 0 to 1")


LEAST_SHARE, LARGEST_SHARE = 1e-6, 1e6
"""Bounds of a weight: with others, sums of virtual times would not be exact or finite."""
UUID = re.compile("[0-9a-f]{32}")
LEAST_EVERY_S = 0.1
MOST_SHARED = 64
MOST_LOADS = 1000
LARGEST_LOAD = 16.0
"""Nothing offers more times a resource's capacity."""


def _check_contention(table: ContentionTable) -> None:
    if not LEAST_EVERY_S <= table.every_s < math.inf:
        raise InputError(f"contention.every_s: expected at least {LEAST_EVERY_S:g}")
    if len(table.shared) > MOST_SHARED or len(table.load) > MOST_LOADS:
        text = f"expected at most {MOST_SHARED} shared and {MOST_LOADS} load tables"
        raise InputError(f"contention: {text}")
    names = [each.name for each in table.shared]
    for position, shared in enumerate(table.shared):
        where = f"contention.shared[{position}]"
        if names.index(shared.name) != position:
            raise InputError(f"{where}.name: {shared.name!r} is taken")
        if shared.bytes_per_s is not None and not 0 < shared.bytes_per_s < math.inf:
            raise InputError(f"{where}.bytes_per_s: expected a number above 0")
    _check_loads(table.load)


def _check_loads(loads: list[LoadTable]) -> None:
    for position, load in enumerate(loads):
        where = f"contention.load[{position}]"
        if not 0 <= load.demand <= LARGEST_LOAD:
            raise InputError(f"{where}.demand: expected 0 to {LARGEST_LOAD:g}")
        if not 0 <= load.bound <= 1:
            raise InputError(f"{where}.bound: expected a share from 0 to 1")


def _check_resources(config: Config) -> None:
    names = [table.name for table in config.resource]
    for position, table in enumerate(config.resource):
        where = f"resource[{position}]"
        if names.index(table.name) != position:
            raise InputError(f"{where}.name: {table.name!r} is taken")
        if table.slots < 1 or table.threads < 1:
            raise InputError(f"{where}: slots and threads are at least 1")
        if not 0 <= table.memory_bytes <= MAX_BYTES:
            raise InputError(f"{where}.memory_bytes: expected 0 to {MAX_BYTES}")
        if table.uuid and not UUID.fullmatch(table.uuid):
            raise InputError(f"{where}.uuid: expected 32 hexadecimal digits")
        if table.driver not in ("cpu", "opencl", "null"):
            raise InputError(f"{where}.driver: expected cpu, opencl or null")
        if table.kind != "cpu" and table.slots != 1:
            raise InputError(f"{where}.slots: accelerators run one task at a time")


def _check_limits(limits: LimitsTable) -> None:
    tables: dict[str, LimitsTable | UserTable] = {"limits": limits}
    tables |= {f"limits.user.{name}": each for name, each in limits.user.items()}
    for where, table in tables.items():
        for name in ("tasks", "running", "stored_mb", "unended_mb", "priority"):
            count = getattr(table, name)
            if isinstance(count, int) and count < 0:
                raise InputError(f"{where}.{name}: expected at least 0, got {count}")
        if table.share is not None and not 0 < table.share < math.inf:
            raise InputError(f"{where}.share: expected a number above 0")
        if table.share is not None and not LEAST_SHARE <= table.share <= LARGEST_SHARE:
            bounds = f"from {LEAST_SHARE:g} to {LARGEST_SHARE:g}"
            raise InputError(f"{where}.share: expected a number {bounds}")


log = logging.getLogger("hetd")


def quotas(table: LimitsTable) -> Quotas:
    """Tell the scheduler what users' tasks may take at once."""
    everybody = Quota(_number(table.running), table.share)
    single = {
        uid: Quota(
            _number(table.running if user.running is None else user.running),
            table.share if user.share is None else user.share,
        )
        for uid, user in _users(table).items()
    }
    return Quotas(everybody, single)


class UserLimit:
    """One limit, for everybody and for single users.

    Args:
        table: of the configuration.
        name: of the limit in it.
        unit: what its numbers count.

    """

    def __init__(self, table: LimitsTable, name: str, unit: int = 1) -> None:
        self._everybody = _in_units(getattr(table, name), unit)
        self._single = {
            uid: _in_units(getattr(user, name), unit)
            for uid, user in _users(table).items()
            if getattr(user, name) is not None
        }

    def of(self, uid: int) -> int | None:
        """Return the limit of a user; None: there is none."""
        return self._single.get(uid, self._everybody)


class UserLimits:
    """The limits of each user that the scheduler does not enforce.

    Attributes:
        tasks: number of unfinished tasks.
        stored: bytes on disk; `unfinished`: bytes of unfinished tasks.
        priority: the highest priority; its negative is the lowest.

    """

    def __init__(self, table: LimitsTable) -> None:
        self.tasks = UserLimit(table, "tasks")
        self.stored = UserLimit(table, "stored_mb", MIB)
        self.unfinished = UserLimit(table, "unended_mb", MIB)
        self.priority = UserLimit(table, "priority")


def _users(table: LimitsTable) -> dict[int, UserTable]:
    found = {uid_of(name): user for name, user in table.user.items()}
    return {uid: user for uid, user in found.items() if uid is not None}


def uid_of(name: str) -> int | None:
    """Find a user by login name or number; log a warning and return None if there is none."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        log.warning("limits.user.%s: there is no such user; ignored", name)
        return None


def _in_units(count: Count, unit: int) -> int | None:
    number = _number(count)
    return None if number is None else number * unit


def _number(count: Count) -> int | None:
    return None if count == "unlimited" else count


STANDARD_ERROR = Path("/proc/self/fd/2")


@dataclass(slots=True)
class Origins:
    """The sources of the configuration, and the locations of hetd's files.

    Attributes:
        file: the configuration; None without one.
        policy: that of the command line, if it names one.
        state: the folder of the store.
        log: destination of the log: a file, or `journal`; empty: a terminal or a pipe.
        managed: whether a service manager started the daemon.
        document: what the file says, as it was read last.

    """

    file: Path | None = None
    policy: str | None = None
    state: Path | None = None
    log: str = ""
    managed: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Config:
        """Read the configuration; what the command line says goes before it."""
        config, self.document = read_document(self.file)
        if self.policy is None:
            return config
        return msgspec.structs.replace(config, policy=self.policy)


class ActiveConfig:
    """The configuration in force; it is replaced when the daemon reads it again.

    Attributes:
        value: the configuration.
        limits: its limits of each user that the scheduler does not enforce.
        origins: where it comes from.

    """

    def __init__(self, value: Config, origins: Origins | None = None) -> None:
        self.origins = origins or Origins()
        self.replace(value)

    def replace(self, value: Config) -> None:
        """Put another configuration in force."""
        self.value = value
        self.limits = UserLimits(value.limits)


def log_of_this_process() -> str:
    """Return the file that standard error goes to; `journal`; empty: something else."""
    if "JOURNAL_STREAM" in os.environ:
        return "journal"
    try:
        target = STANDARD_ERROR.readlink()
    except OSError:
        return ""
    try:
        return str(target) if target.is_file() else ""
    except (
        OSError
    ):  # the starting user may write there, although hetd itself may not look
        return str(target)


def values(
    config: Config, origins: Origins, setting: OperatorSetting | None
) -> Iterator[ConfigValue]:
    """Tell every value of the configuration in force, by its key, and its source.

    Args:
        config: the one in force.
        origins: where it comes from.
        setting: the policy that an operator has put in force.

    """
    said = dict(_flat(origins.document))
    for key, value in _flat(msgspec.to_builtins(config)):
        if key == "policy" and setting is not None:
            told = f"hetctl policy set, {setting.describe()}; configured: {value}"
            yield ConfigValue(key, setting.policy, "operator", told)
        elif key == "policy" and origins.policy is not None:
            yield ConfigValue(key, value, "command line")
        elif key in said and said[key] == value:
            yield ConfigValue(key, value, "file")
        elif key in said:
            told = f"the file says {said[key]}: from the next start on"
            yield ConfigValue(key, value, "start", told)
        else:
            yield ConfigValue(key, value, "default")


def _flat(document: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the values of nested tables by dotted keys."""
    if isinstance(document, dict) and (document or not place):
        for key, value in document.items():
            yield from _flat(value, f"{place}.{key}" if place else str(key))
    elif isinstance(document, list) and document and isinstance(document[0], dict):
        for number, value in enumerate(document):
            yield from _flat(value, f"{place}[{number}]")
    else:
        yield place, document
