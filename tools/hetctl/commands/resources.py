"""`hetctl devices`, `drain`, `resume`: the resources of the node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.completing import resources
from hetctl.options import connect, shared
from hetctl.output import emit, say, table
from hetctl.views.avoidance import avoided_document, avoided_text
from hetctl.views.load import show_load
from libtask.arrays import installed
from libtask.errors import InputError
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetctl.documents.node import DevicePart, Devices
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo

HEADINGS = (
    "name",
    "kind",
    "device",
    "slots",
    "state",
    "running",
    "queued",
    "watts",
    "link",
)
LIVE = (
    "state",
    "reason",
    "rejected",
    "testing",
    "libraries",
    "version",
    "running",
    "queued",
    "busy_joules",
    "idle_joules",
    "starting_joules",
    "metered_s",
    "busy_s",
    "starting_s",
    "measured",
    "avoided",
)
"""Fields of a resource that are not part of a configuration."""
LOOK_S = 0.1
"""Seconds between two polls of running tests."""


@click.command("devices")
@click.option(
    "--write-config",
    "path",
    type=click.Path(path_type=Path),
    help="Write the resources to a hetd.toml.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--test", is_flag=True, help="Test the drivers of OpenCL devices first.")
@click.option(
    "--load",
    is_flag=True,
    help="Show what other programs are believed to use of what the resources share.",
)
@shared
def devices_command(  # noqa: PLR0913  options
    *,
    path: Path | None,
    force: bool,
    test: bool,
    load: bool,
    socket: Path | None,
    as_json: bool,
) -> None:
    """List the resources of the node."""
    if load and (path is not None or test):
        raise click.UsageError("--load: takes no other option")
    if load:
        with connect(socket) as client:
            show_load(client.node_load(), as_json=as_json)
        return
    with connect(socket) as client:
        devices = _tested(client) if test else client.devices()
    if path is not None:
        _write(path, devices, force=force)
        say(f"{path}: {len(devices)} resources written", err=as_json)
    if as_json:
        emit(_documents(devices))
    elif path is None:
        _show(devices)


def _tested(client: Client) -> list[DeviceInfo]:
    """Test the drivers; return the resources after the tests."""
    client.test_devices()
    devices = client.devices()
    while any(device.testing for device in devices):
        time.sleep(LOOK_S)
        devices = client.devices()
    return devices


def _show(devices: list[DeviceInfo]) -> None:
    table(HEADINGS, [_row(each) for each in devices])
    for each in devices:
        if each.reason:
            say(f"{each.spec.name}: {each.reason}")
        for rejected in each.rejected:
            say(f"{each.spec.name}: rejected alternative: {rejected}")
        for pair in each.avoided:
            say(avoided_text(pair))
    say(_array_libraries(devices))


def _array_libraries(devices: list[DeviceInfo]) -> str:
    """Say in a line which library is `device.xp` on each resource, in this environment."""
    words = [f"{each.spec.name}: {_array_library(each) or 'none'}" for each in devices]
    return f"device.xp here: {', '.join(words)}"


def _array_library(device: DeviceInfo) -> str:
    """Return the array library of this environment for a resource; empty: none."""
    kind = device.spec.kind
    return "" if kind == "fpga" else installed(kind, Task.array_libraries)


def _documents(devices: list[DeviceInfo]) -> Devices:
    return {
        "format": "hetctl/devices-1",
        "devices": [device_document(each) for each in devices],
    }


def device_document(device: DeviceInfo) -> DevicePart:
    """Return the document of a resource."""
    return {
        "name": device.spec.name,
        "kind": device.spec.kind,
        "driver": device.spec.driver,
        "platform": device.spec.platform,
        "device": device.spec.device,
        "index": device.spec.index,
        "threads": device.spec.threads,
        "emulated": device.spec.emulated,
        "slots": device.slots,
        "state": device.state,
        "reason": device.reason or None,
        "rejected": device.rejected,
        "version": device.spec.version or None,
        "running": device.running,
        "queued": device.queued,
        "busy_watts": device.busy_watts,
        "idle_watts": device.idle_watts,
        "link_bytes_per_s": device.link_bytes_per_s,
        "reconfigure_s": device.reconfigure_s,
        "busy_joules": device.busy_joules,
        "idle_joules": device.idle_joules,
        "metered_s": device.metered_s,
        "energy_source": "measured" if device.measured else "modelled",
        "avoided": [avoided_document(each) for each in device.avoided],
        "array_library": _array_library(device) or None,
    }


def _row(device: DeviceInfo) -> tuple[str, ...]:
    mark = " (emulated)" if device.spec.emulated else ""
    bandwidth = device.link_bytes_per_s
    return (
        device.spec.name + mark,
        device.spec.kind,
        device.spec.device or device.spec.driver,
        str(device.slots),
        _state_of(device),
        ",".join(str(task) for task in device.running) or "-",
        str(device.queued),
        f"{device.idle_watts:.0f}-{device.busy_watts:.0f}",
        "-" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
    )


def _state_of(device: DeviceInfo) -> str:
    """Return the state of a resource; one that no task has any longer is drained."""
    if device.state == "draining" and not device.running:
        return "drained"
    return device.state


def _write(path: Path, devices: list[DeviceInfo], *, force: bool) -> None:
    import tomli_w

    document = {"resource": [_resource(device) for device in devices]}
    header = "# Resources detected by hetd; `hetd --config` reads this file.\n\n"
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(header + tomli_w.dumps(document))
    except FileExistsError as error:
        raise InputError(f"{path}: exists; use --force to overwrite it") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _resource(device: DeviceInfo) -> dict[str, Any]:
    """Return a resource in the form of the configuration, a flat table."""
    known: dict[str, Any] = msgspec.structs.asdict(device)
    spec: dict[str, Any] = msgspec.structs.asdict(known.pop("spec"))
    kept = {k: v for k, v in (spec | known).items() if k not in LIVE}
    return {key: value for key, value in kept.items() if value not in (None, "", {})}


# ------------------------------------------------------------ drain, resume


named_resources = click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="RESOURCE...",
    shell_complete=resources,
)


@click.command("drain")
@named_resources
@shared
def drain_command(
    *, names: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Keep resources free of tasks; running ones leave at their next checkpoint.

    The resources stay drained, also after a restart of the daemon, until `hetctl resume`.
    """
    with connect(socket) as client:
        _change(names, client.drain, "draining", as_json=as_json)


@click.command("resume")
@named_resources
@shared
def resume_command(
    *, names: tuple[str, ...], socket: Path | None, as_json: bool
) -> None:
    """Return drained resources to the scheduler.

    A resource that is missing at the moment takes tasks when it is back.
    """
    with connect(socket) as client:
        _change(names, client.resume, "up", as_json=as_json)


def _change(
    names: tuple[str, ...],
    change: Callable[[str], None],
    state: str,
    *,
    as_json: bool,
) -> None:
    """Change resources in their order and report each; stop at the first that is refused."""
    done: list[str] = []
    try:
        for name in names:
            change(name)
            done.append(name)
            if not as_json:
                say(f"{name} is {state}")
    finally:
        if as_json and done:
            document = {"format": "hetctl/resource-1", "name": done[0], "state": state}
            emit(document | {"names": done})
