"""The cost of preemptibility: a checkpoint's poll, and strips against one long run.

The kernel is heat on the CPU, driven by the same `Execution` that a worker uses, with
the worker's checkpoint hook on a silent socket.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from hetapps.heat import Heat
from libtask.checkpoint import StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.checkpoint_hook import CheckpointHook
from libtask.worker.execution import Execution, RunCheckpoint
from libtask.worker.link import Link
from libtask.worker.segment_output import SegmentOutput

if TYPE_CHECKING:
    from libtask.devices import Device

POLLS = 1_000_000
ROUNDS = 41
INTERVAL_NS = 50_000_000
SIDE = 1024
LENGTHS = (3000, 20_000)
"""Steps: about half a second and some seconds. A task's first strips are short, until the
runtime knows how long they take; that counts less the longer it is."""


def run() -> list[dict[str, Any]]:
    """Measure both; the uncut and the strip-mined runs alternate."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "s"
        router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        router.bind(f"ipc://{socket}")
        link = Link(socket, list)
        hook = CheckpointHook(link, 1, 1, SegmentOutput(""))
        rows = [_poll(hook), *(_strips(hook, steps) for steps in LENGTHS)]
        link.close()
        router.close(0)
    return rows


def _poll(hook: CheckpointHook) -> dict[str, Any]:
    """Time what the main thread does at each checkpoint to learn of a preemption."""
    device = open_device(DeviceSpec("cpu", "cpu"))
    execution = _execution(device, hook, LENGTHS[0], fixed=LENGTHS[0])
    hook.follow(execution, time.perf_counter_ns())
    begin = time.perf_counter_ns()
    for _ in range(POLLS):
        hook(time.perf_counter_ns())
    mean = (time.perf_counter_ns() - begin) / POLLS
    hook.leave()
    return {"case": "checkpoint poll", "mean_ns": round(mean), "polls": POLLS}


def _strips(hook: CheckpointHook, steps: int) -> dict[str, Any]:
    device = open_device(DeviceSpec("cpu", "cpu", threads=1))
    times: dict[str, list[float]] = {"uncut": [], "strips": []}
    strips = 0
    for _ in range(ROUNDS):
        for case, fixed in (("uncut", steps), ("strips", None)):
            execution = _execution(device, hook, steps, fixed=fixed)
            hook.follow(execution, time.perf_counter_ns())
            begin = time.perf_counter()
            execution.run()
            times[case].append(time.perf_counter() - begin)
            hook.leave()
            strips = execution.measures.strips
    ratios = [b / a for a, b in zip(times["uncut"], times["strips"], strict=True)]
    return {
        "case": f"heat {SIDE}x{SIDE}, {steps} steps, 1 thread",
        "uncut_s": round(statistics.median(times["uncut"]), 4),
        "strips_s": round(statistics.median(times["strips"]), 4),
        "strips": strips,
        "cost_percent": round(100 * (statistics.median(ratios) - 1), 2),
    }


def _execution(
    device: Device, hook: CheckpointHook, steps: int, *, fixed: int | None
) -> Execution:
    task = Heat(n=SIDE, steps=steps)
    task.load()
    sizer = StripSizer(INTERVAL_NS, fixed=fixed)
    checkpoint = RunCheckpoint(CheckpointRecord(total=steps), sizer)
    return Execution(Heat.implementations["cpu"], task, device, checkpoint, hook)
