"""Compilations of Numba count as setting up, not as computing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from numba import njit

from libtask.checkpoint import StripSizer
from libtask.devices import open_device
from libtask.messages import CheckpointRecord, DeviceSpec
from libtask.worker.compile_time import compiled_ns
from libtask.worker.execution import Execution, RunCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def a_kernel() -> Any:
    """Make a function that is not compiled yet, and cached nowhere."""

    @njit
    def kernel(n: int) -> int:
        total = 0
        for i in range(n):
            total += i * i
        return total

    return kernel


def run(implementation: Callable[..., Iterator[None]]) -> Execution:
    record = CheckpointRecord(0, 3)
    checkpoint = RunCheckpoint(record, StripSizer(50_000_000, fixed=1))
    device = open_device(DeviceSpec(name="cpu", kind="cpu", threads=1))
    execution = Execution(implementation, None, device, checkpoint, lambda _: None)
    execution.run()
    return execution


def test_a_compilation_in_the_first_strip_is_part_of_the_set_up() -> None:
    kernel = a_kernel()
    compiled_ns()
    spans = []

    def implementation(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        for _ in checkpoint.strips():
            began = time.perf_counter()
            kernel(10)
            spans.append(time.perf_counter() - began)
            yield

    measures = run(implementation).measures
    compiling = spans[0] - spans[1]
    assert measures.strips == 3
    assert measures.set_up > 0.5 * compiling
    assert measures.computing_ns / 1e9 < 0.5 * compiling
    assert 0.5 * compiling < measures.compiling_ns / 1e9 <= measures.set_up


def test_a_compilation_before_the_first_strip_is_counted_once() -> None:
    kernel = a_kernel()
    compiled_ns()
    spans = []

    def implementation(_task: Any, _device: Any, checkpoint: Any) -> Iterator[None]:
        began = time.perf_counter()
        kernel(10)
        spans.append(time.perf_counter() - began)
        for _ in checkpoint.strips():
            kernel(10)
            yield

    measures = run(implementation).measures
    assert measures.computing_ns > 0
    assert spans[0] <= measures.set_up < 1.5 * spans[0] + 0.1
    assert 0.5 * spans[0] < measures.compiling_ns / 1e9 <= spans[0]
