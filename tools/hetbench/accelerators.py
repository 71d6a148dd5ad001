"""The applications in sizes of real work on the CPU and on every accelerator of the node.

Emulated devices are left out: they compute on the CPU, and how fast tells nothing.
Each task runs alone, pinned to one resource; the rounds go through all resources in turn.
Its time is split into setting up (programs, inputs), transfers and strips. The results of
all resources must agree to a thousandth; that some do in every bit is for tests/hardware to say.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hetapps.correlation import Correlation
from hetapps.gaussian_blur import GaussianBlur
from hetapps.heat import Heat
from hetapps.markov import Markov
from libtask.apps import name_of
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, TaskInfo
    from libtask.task import Task

TASKS: tuple[Task, ...] = (
    Heat(n=1024, steps=4096),
    Heat(n=8192, steps=128),
    GaussianBlur(n=4096, sigma=8.0),
    GaussianBlur(n=12288, sigma=8.0),
    Markov(n=2048, stay=0.999, tolerance=1e-6, iterations=1000),
    Markov(n=8192, stay=0.999, tolerance=1e-6, iterations=200),
    Correlation(rows=20_000, columns=1_000),
    Correlation(rows=10_000, columns=4_000),
)
ROUNDS = 3
PATIENCE_S = 600.0
TOLERANCE = 1e-3
"""Relative; the numbers in the results are means, residuals and coefficients."""


def run() -> list[dict[str, Any]]:
    """Measure each task on each resource."""
    with private_daemon() as client:
        devices = {
            device.spec.name: device
            for device in client.devices()
            if not device.spec.emulated
        }
        return [row for task in TASKS for row in _rows(client, devices, task)]


def _rows(
    client: Client, devices: dict[str, DeviceInfo], task: Task
) -> list[dict[str, Any]]:
    """Run a task on every resource, first to warm up, then in turn."""
    print(f"  {name_of(type(task))} {_parameters(task)}", file=sys.stderr)
    results = [_ran(client, task, name)[0] for name in devices]
    if not all(_alike(results[0], each) for each in results):
        raise AssertionError(f"resources differ in their results: {results}")
    rounds = [
        {name: _ran(client, task, name)[1] for name in devices} for _ in range(ROUNDS)
    ]
    medians = {
        name: {
            part: statistics.median(each[name][part] for each in rounds)
            for part in rounds[0][name]
        }
        for name in devices
    }
    cpu = next(name for name in devices if devices[name].spec.kind == "cpu")
    return [
        {
            "app": name_of(type(task)),
            "parameters": _parameters(task),
            "resource": name,
            "device": devices[name].spec.device or devices[name].spec.kind,
            "emulated": devices[name].spec.emulated,
            "runs": ROUNDS,
            **{f"{part}_s": round(value, 4) for part, value in parts.items()},
            "strips_of_cpu": round(parts["strips"] / medians[cpu]["strips"], 4),
            "all_of_cpu": round(parts["all"] / medians[cpu]["all"], 4),
        }
        for name, parts in medians.items()
    ]


def _ran(
    client: Client, task: Task, resource: str
) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a task alone on a resource; return its result and the seconds of its parts."""
    handle = client.submit(task, resources=[resource])
    result = handle.result(PATIENCE_S)
    return result, _parts(handle.info())


def _parts(info: TaskInfo) -> dict[str, float]:
    found = {
        "set_up": sum(each.set_up for each in info.segments),
        "transfer_in": sum(each.transfer_in for each in info.segments),
        "strips": sum(each.seconds for each in info.segments),
        "transfer_out": sum(each.transfer_out for each in info.segments),
    }
    return {**found, "all": sum(found.values())}


def _parameters(task: Task) -> dict[str, Any]:
    """Return the parameters that differ from the application's defaults."""
    return {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(cast("Any", task))
        if getattr(task, field.name) != field.default
    }


def _alike(one: Any, other: Any) -> bool:
    """Compare results; sums of bits, and which of equal entries comes first, may differ."""
    if isinstance(one, dict):
        return all(
            _alike(one[key], other[key]) for key in one if key not in ("crc32", "top")
        )
    if isinstance(one, float):
        return bool(np.isclose(one, other, rtol=TOLERANCE, atol=TOLERANCE))
    return True
