"""`hetctl devices`: the node's resources, and a configuration file made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hetctl.options import connect, shared
from hetctl.output import emit, table
from hetctl.terminal import say
from libtask.errors import InputError

if TYPE_CHECKING:
    from hetctl.documents.node import DevicePart
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
    "running",
    "queued",
    "busy_joules",
    "idle_joules",
    "metered_s",
    "busy_s",
    "measured",
)
"""What a configuration does not say of a resource."""


@click.command("devices")
@click.option(
    "--write-config",
    "path",
    type=click.Path(path_type=Path),
    help="Write them to a hetd.toml.",
)
@click.option("--force", is_flag=True, help="Write over an existing file.")
@shared
def devices_command(
    *, path: Path | None, force: bool, socket: Path | None, as_json: bool
) -> None:
    """List the resources of the node."""
    with connect(socket) as client:
        devices = client.devices()
    if path is not None:
        _write(path, devices, force=force)
        say(f"{path}: {len(devices)} resources written", err=as_json)
    if as_json:
        emit(
            {
                "format": "hetctl/devices-1",
                "devices": [_document(each) for each in devices],
            }
        )
    elif path is None:
        table(HEADINGS, [_row(each) for each in devices])
        for each in devices:
            if each.reason:
                say(f"{each.spec.name}: {each.reason}")


def _document(device: DeviceInfo) -> DevicePart:
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
    }


def _row(device: DeviceInfo) -> tuple[str, ...]:
    mark = " (emulated)" if device.spec.emulated else ""
    bandwidth = device.link_bytes_per_s
    return (
        device.spec.name + mark,
        device.spec.kind,
        device.spec.device or device.spec.driver,
        str(device.slots),
        device.state,
        ",".join(str(task) for task in device.running) or "-",
        str(device.queued),
        f"{device.idle_watts:.0f}-{device.busy_watts:.0f}",
        "-" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s",
    )


def _write(path: Path, devices: list[DeviceInfo], *, force: bool) -> None:
    import tomli_w

    document = {"resource": [_resource(device) for device in devices]}
    header = "# Resources as hetd found them; `hetd --config` reads this file.\n\n"
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(header + tomli_w.dumps(document))
    except FileExistsError as error:
        raise InputError(f"{path}: exists; --force writes over it") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _resource(device: DeviceInfo) -> dict[str, Any]:
    """Write a resource as the configuration has it: one flat table."""
    known: dict[str, Any] = msgspec.structs.asdict(device)
    spec: dict[str, Any] = msgspec.structs.asdict(known.pop("spec"))
    merged = spec | {key: value for key, value in known.items() if key not in LIVE}
    return {key: value for key, value in merged.items() if value not in (None, "", {})}
