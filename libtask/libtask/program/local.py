"""The resources of this machine, for a program that runs alone.

Names are those that hetd gives: `cpu`, `gpu0`…, `fpga0`…
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libtask.errors import InputError, NotFoundError
from libtask.messages import DeviceSpec, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.devices.report import FoundDevice
    from libtask.task import Task

POCL = "Portable Computing Language"
"""Runs OpenCL on the CPU: it stands in for a GPU where there is none."""


def choose(task: Task, name: str | None) -> DeviceSpec:
    """Choose what to run a task on: an accelerator, else the CPU, else an emulation.

    Args:
        task: the task; only kinds that it implements count.
        name: the resource that the user wants; None: the best.

    Raises:
        NotFoundError: there is no such resource.
        InputError: the task has no implementation for it, or for any there is.

    """
    there = [cpu(), *(() if name == "cpu" else _opencl(task))]
    if name is not None:
        return _named(task, name, there)
    fitting = [spec for spec in there if spec.kind in task.implementations]
    if not fitting:
        kinds = ", ".join(task.implementations) or "no kind"
        raise InputError(f"{type(task).__name__} runs on {kinds}; there is none here")
    best: DeviceSpec = min(fitting, key=_rank)
    return best


def cpu() -> DeviceSpec:
    """Describe the whole CPU."""
    return DeviceSpec("cpu", "cpu", threads=len(os.sched_getaffinity(0)))


def name_devices(found: list[FoundDevice]) -> list[DeviceSpec]:
    """Name OpenCL devices as resources; real ones come before emulated ones."""
    specs: list[DeviceSpec] = []
    for kind in ("gpu", "fpga"):
        candidates = [spec for device in found for spec in _as(device, kind)]
        candidates.sort(key=lambda spec: spec.emulated)
        specs += [
            replace(spec, name=f"{kind}{number}")
            for number, spec in enumerate(candidates)
        ]
    return specs


def _as(device: FoundDevice, kind: Kind) -> Iterator[DeviceSpec]:
    """Yield the device as a resource of this kind, if it can be one."""
    platform = device.platform.lower()
    threaded_pocl = device.platform == POCL and not device.device.startswith("basic")
    if kind == "gpu":
        fits = device.type == "gpu" or threaded_pocl
        emulated = device.type != "gpu"
    else:
        fits = device.type == "accelerator" and (
            "fpga" in platform or "xilinx" in platform
        )
        emulated = "emulation" in platform
    if fits:
        yield DeviceSpec(
            "", kind, "opencl", device.platform, device.device, device.index,
            emulated=emulated,
        )  # fmt: skip


def _opencl(task: Task) -> list[DeviceSpec]:
    if not {"gpu", "fpga"} & set(task.implementations):
        return []  # asking drivers takes time
    try:
        from libtask.devices.probe import probe
    except ImportError:
        return []
    return name_devices(probe().devices)


def _named(task: Task, name: str, there: list[DeviceSpec]) -> DeviceSpec:
    for spec in there:
        if spec.name == name:
            _check_kind(task, spec)
            return spec
    names = ", ".join(spec.name for spec in there)
    raise NotFoundError(f"no resource {name!r} here; there are: {names}")


def _check_kind(task: Task, spec: DeviceSpec) -> None:
    if spec.kind not in task.implementations:
        kinds = ", ".join(task.implementations) or "nothing"
        raise InputError(
            f"{type(task).__name__} has no implementation for {spec.kind}"
            f" ({spec.name}); it runs on: {kinds}"
        )


def _rank(spec: DeviceSpec) -> tuple[bool, int]:
    return spec.emulated, ("gpu", "fpga", "cpu").index(spec.kind)
