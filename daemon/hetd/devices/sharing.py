"""The parts of the node that resources share: as configured, or found with defaults.

`assembly` calls it at the start. Without a `[contention]` table nothing is modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.contention import ContentionModel, Load, SharedResource
from hetsched.estimates.point import shared_type
from hetsched.estimates.table import application
from libtask.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetd.config import ContentionTable
    from hetsched.contention import Loads
    from libtask.messages import DeviceInfo

CORES, MEMORY = "cores", "memory"
"""Names of what is found on every node; also their kinds."""


def make_model(
    table: ContentionTable, devices: Sequence[DeviceInfo], cores: int
) -> ContentionModel | None:
    """Make the model of contention; None: nothing is declared.

    Args:
        table: of the configuration.
        devices: the resources.
        cores: processor cores of the machine.

    Raises:
        InputError: the table names a resource or a shared resource that is not there.

    """
    shared = {each.name: each.resource() for each in table.shared}
    uses = {name: dict(kinds) for name, kinds in table.uses.items()}
    defaults: dict[str, Loads] = {}
    if table.discover:
        for device in devices:
            name, found = device.spec.name, _found(device)
            uses[name] = {each.kind: each.name for each in found} | uses.get(name, {})
            for each in found:
                if each.name in uses[name].values():
                    shared.setdefault(each.name, each)
            defaults[name] = _usual_loads(device, uses[name], cores)
    if not shared:
        return None
    _check(table, shared, uses, [device.spec.name for device in devices])
    return ContentionModel(
        shared.values(),
        uses,
        _loads(table, defaults),
        defaults=defaults,
        application=lambda kept: application(shared_type(kept)),
    )


def _loads(
    table: ContentionTable, defaults: dict[str, Loads]
) -> dict[tuple[str, str], Loads]:
    """Return the loads in the table; what it leaves out of an application is as usual."""
    named: dict[tuple[str, str], dict[str, Load]] = {}
    for each in table.load:
        key = each.app, each.resource
        if key not in named:
            named[key] = {load.shared: load for load in defaults.get(each.resource, ())}
        named[key][each.shared] = Load(each.shared, each.demand, each.bound)
    return {key: tuple(loads.values()) for key, loads in named.items()}


def _found(device: DeviceInfo) -> list[SharedResource]:
    """Return what a resource shares: emulations compute on the host's cores."""
    spec = device.spec
    if spec.kind == "cpu" or spec.emulated:
        return [SharedResource(CORES, CORES), SharedResource(MEMORY, MEMORY)]
    link = SharedResource(f"link-{spec.name}", "link", device.link_bytes_per_s)
    slices = SharedResource(f"slices-{spec.name}", "slices")
    return [link, slices] if spec.kind == "gpu" else [link]


def _usual_loads(device: DeviceInfo, uses: dict[str, str], cores: int) -> Loads:
    """Return the loads of a task that was never measured beside others.

    Its threads take cores; the rest is that of a typical kernel of the simulator's model
    (`hetpapers.banerjee.workload`): demand, and share of its time.
    """
    threads = cores if device.spec.emulated else device.spec.threads
    usual = {
        "cores": (min(1.0, threads / cores), 1.0),
        "memory": (0.3, 0.3),
        "link": (0.3, 0.3),
        "slices": (0.5, 0.5),
    }
    return tuple(
        Load(name, *usual[kind]) for kind, name in uses.items() if kind in usual
    )


def _check(
    table: ContentionTable,
    shared: dict[str, SharedResource],
    uses: dict[str, dict[str, str]],
    resources: Sequence[str],
) -> None:
    for name, kinds in uses.items():
        _check_name(f"contention.uses.{name}", name, resources)
        for kind, used in kinds.items():
            _check_name(f"contention.uses.{name}.{kind}", used, shared)
    for position, load in enumerate(table.load):
        where = f"contention.load[{position}]"
        _check_name(f"{where}.resource", load.resource, resources)
        _check_name(f"{where}.shared", load.shared, shared)


def _check_name(where: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InputError(f"{where}: no {name!r}; there are: {', '.join(known)}")
