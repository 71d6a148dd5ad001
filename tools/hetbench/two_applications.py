"""Execution times of two applications on each resource, for Figs 5 and 8 of mokhtari-felare.

Each task runs alone on the node, pinned to one resource; the rounds go through all of
them in turn, so that other load on the machine falls on all alike. Medians count. What
it prints is kept in docs/measurements/felare-two-applications.json.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from hetapps.gaussian_blur import GaussianBlur
from hetapps.markov import Markov
from libtask.characterisation import execution_seconds
from libtask.daemon.private import private_daemon

if TYPE_CHECKING:
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo
    from libtask.task import Task

TASKS: dict[str, Task] = {
    "gaussian-blur": GaussianBlur(n=4096, sigma=8.0),
    "markov": Markov(n=2048, stay=0.999, tolerance=1e-7, iterations=300),
}
"""One that the CPU does far sooner than an emulated GPU, and one on which both are alike;
of sizes that take tenths of a second to a few seconds."""
ROUNDS = 9
PATIENCE_S = 120.0

Place = tuple[str, str]
"""Application and resource."""


def run() -> list[dict[str, Any]]:
    """Measure both applications on all resources."""
    with private_daemon() as client:
        devices = {device.spec.name: device for device in client.devices()}
        places = [(app, name) for app in TASKS for name in devices]
        for place in places:  # programs compile, workers start
            _seconds(client, place)
        rounds = [
            {place: _seconds(client, place) for place in places} for _ in range(ROUNDS)
        ]
    return [
        _row(place, devices[place[1]], [each[place] for each in rounds])
        for place in places
    ]


def _seconds(client: Client, place: Place) -> float:
    """Run a task alone; return what it took: set-up, transfers and strips."""
    app, resource = place
    task = client.submit(TASKS[app], resources=[resource])
    task.result(PATIENCE_S)
    return execution_seconds(task.info())


def _row(place: Place, device: DeviceInfo, times: list[float]) -> dict[str, Any]:
    app, resource = place
    task = TASKS[app]
    return {
        "app": app,
        "type": f"{app}/{task.size().signature}",
        "parameters": _parameters(task),
        "resource": resource,
        "device": device.spec.device or device.spec.kind,
        "emulated": device.spec.emulated,
        "median_s": round(statistics.median(times), 3),
        "least_s": round(min(times), 3),
        "greatest_s": round(max(times), 3),
        "runs": len(times),
    }


def _parameters(task: Task) -> dict[str, float]:
    """Return what sets the work; the rest is as the application has it by default."""
    names = ("n", "sigma", "stay", "tolerance", "iterations")
    return {name: getattr(task, name) for name in names if hasattr(task, name)}
