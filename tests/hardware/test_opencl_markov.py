"""Power iteration on OpenCL: the same bits as on the CPU, after any hand-over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hardware.stretches import CPU, compute
from hetapps.markov import Markov
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord

if TYPE_CHECKING:
    from libtask.devices import Device

STRIP = 7
CHAINS: list[dict[str, Any]] = [
    {"n": 1, "stay": 0.5},
    {"n": 300, "stay": 0.5},
    {"n": 1100, "stay": 0.5},  # more than a tile of the FPGA
    {"n": 300, "stay": 0.5, "dtype": "float64", "tolerance": 1e-13},
    {"n": 700, "stay": 0.5, "density": 0.004},
    {"n": 300, "stay": 0.5, "density": 0.2, "dtype": "float64"},  # several windows
]


def outcome(task: Markov) -> list[Any]:
    return [array.tolist() for array in task.walk]


@pytest.mark.parametrize("parameters", CHAINS, ids=str)
def test_same_bits_as_the_cpu(device: Device, parameters: dict[str, Any]) -> None:
    here, there = Markov(**parameters), Markov(**parameters)
    here.load()
    there.load()

    compute(here, open_device(CPU), STRIP)
    compute(there, device, STRIP)

    assert here.walk.status[1]
    assert outcome(here) == outcome(there)


@pytest.mark.parametrize("parameters", [CHAINS[1], CHAINS[4]], ids=str)
def test_moving_there_and_back_changes_no_bit(
    device: Device, parameters: dict[str, Any]
) -> None:
    stayed, moved = Markov(**parameters), Markov(**parameters)
    stayed.load()
    moved.load()
    cpu = open_device(CPU)

    compute(stayed, cpu, STRIP)
    done = compute(moved, cpu, STRIP, stop=7)
    done = compute(moved, device, STRIP, start=done, stop=done + 1)
    assert moved.walk.status.tolist() == [14, 0]
    compute(moved, cpu, STRIP, start=done)

    assert outcome(moved) == outcome(stayed)


def test_overshooting_strips_on_a_pipelined_device(device: Device) -> None:
    """The runtime enqueues a strip before it has waited for the one before it."""
    task, same = Markov(n=300, stay=0.5), Markov(n=300, stay=0.5)
    task.load()
    same.load()
    checkpoint = Checkpoint(CheckpointRecord(total=100_000), StripSizer(1, fixed=9))
    marks = []

    for _ in Markov.implementations[device.spec.kind](task, device, checkpoint):
        marks.append(device.mark())
        if len(marks) > 1:
            marks[-2]()
    compute(same, open_device(CPU), STRIP)

    assert checkpoint.drawn - int(task.walk.status[0]) < 3 * 9
    np.testing.assert_array_equal(task.walk.pair, same.walk.pair)


def test_a_converged_task_ends_at_once_elsewhere(device: Device) -> None:
    task = Markov(n=100, stay=0.0)
    task.load()
    done = compute(task, open_device(CPU), STRIP)
    before = outcome(task)

    assert compute(task, device, STRIP, start=done) == done
    assert outcome(task) == before
