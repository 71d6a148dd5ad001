"""The resources of this machine, for a program without a daemon.

Their names are those of hetd: `cpu`, `gpu0`…, `fpga0`…
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from libtask.devices.discovery import Offer, Verdict, discover_devices
from libtask.errors import InputError, NotFoundError
from libtask.messages import DeviceSpec

if TYPE_CHECKING:
    from libtask.task import Task


def choose(task: Task, name: str | None) -> DeviceSpec:
    """Choose a resource: an accelerator, else the CPU, else an emulated device.

    Args:
        task: the task; only kinds with an implementation count.
        name: the resource that the user named; None: the best.

    Raises:
        NotFoundError: the resource does not exist.
        InputError: the task has no implementation for it, or for any resource.

    """
    offers = [Offer(cpu(), Verdict()), *(() if name == "cpu" else _opencl(task))]
    if name is not None:
        return _named(task, name, offers)
    usable = [offer.spec for offer in offers if not offer.verdict.fault]
    fitting = [spec for spec in usable if spec.kind in task.kinds()]
    if not fitting:
        kinds = ", ".join(task.implementations) or "no kind"
        raise InputError(f"{type(task).__name__} runs on {kinds}; there is none here")
    best: DeviceSpec = min(fitting, key=_rank)
    return best


def cpu() -> DeviceSpec:
    """Describe the whole CPU."""
    return DeviceSpec("cpu", "cpu", threads=len(os.sched_getaffinity(0)))


def _opencl(task: Task) -> list[Offer]:
    if not {"gpu", "fpga"} & set(task.implementations):
        return []  # discovery takes time
    return discover_devices()


def _named(task: Task, name: str, offers: list[Offer]) -> DeviceSpec:
    for offer in offers:
        if offer.spec.name == name:
            _check_kind(task, offer.spec)
            if offer.verdict.fault:
                raise InputError(f"{name} is unusable: {offer.verdict.fault}")
            return offer.spec
    names = ", ".join(offer.spec.name for offer in offers)
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
