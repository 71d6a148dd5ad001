"""Copies of large arrays between host and device: through pinned memory, by several threads.

A driver copies ordinary memory through a pinned buffer of its own with one thread, which
is a fraction of what the link to the card carries. Here an array is cut into a part for
each lane: a thread with a queue and two pinned chunks of its own, which fills or empties
one chunk while the device transfers the other. Memory that is touched for the first time
gains most, as the threads share its page faults.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyopencl

from libtask.kept_threads import keep

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

STAGED_BYTES = 32 << 20
"""Least bytes of an array: on an NVIDIA H200 16 MiB gain nothing, 64 MiB a factor of two."""
CHUNK_BYTES = 4 << 20
"""Smaller chunks cost the threads more hand-overs than they save."""
MOST_LANES = 4
CORES_OF_LANE = 4
"""Processor cores for each lane: a single lane is as quick as the driver."""
CHUNKS = 2
"""Of a lane: one for its thread, one for the device."""

Bytes: TypeAlias = "NDArray[np.uint8]"
Copy: TypeAlias = "Callable[[_Lane, pyopencl.Buffer, Bytes, range], None]"
HOST_ACCESS: Any = pyopencl.map_flags.READ | pyopencl.map_flags.WRITE


class StagedCopies:
    """Copies between arrays of the host and buffers of a device.

    Args:
        context: of the device.
        lanes: threads at work at once.
        chunk_bytes: size of a pinned chunk; each lane has two.

    Raises:
        pyopencl.Error: the driver gives no pinned memory.

    """

    def __init__(
        self, context: pyopencl.Context, lanes: int, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._lanes = [_Lane(context, chunk_bytes) for _ in range(lanes)]
        self._chunk_bytes = chunk_bytes
        self._threads = ThreadPoolExecutor(lanes, "copies", _keep_thread)

    def copy_in(self, buffer: pyopencl.Buffer, array: NDArray[Any]) -> None:
        """Copy an array to a buffer; return when all of it is there.

        Raises:
            pyopencl.Error: the driver's; no lane is at work any more.

        """
        self._share(_Lane.copy_in, buffer, _bytes_of(array))

    def copy_out(self, array: NDArray[Any], buffer: pyopencl.Buffer) -> None:
        """Copy a buffer to an array; return when all of it is there.

        Raises:
            pyopencl.Error: the driver's; no lane is at work any more.

        """
        self._share(_Lane.copy_out, buffer, _bytes_of(array))

    def close(self) -> None:
        """End the threads, and free the pinned memory."""
        self._threads.shutdown()
        for lane in self._lanes:
            lane.close()

    def _share(self, copy: Copy, buffer: pyopencl.Buffer, data: Bytes) -> None:
        """Let each lane copy a run of whole chunks."""
        chunks = -(-data.size // self._chunk_bytes)
        each = -(-chunks // len(self._lanes)) * self._chunk_bytes
        starts = range(0, data.size, each)
        futures = [
            self._threads.submit(
                copy, lane, buffer, data, range(start, min(start + each, data.size))
            )
            for lane, start in zip(self._lanes, starts, strict=False)
        ]
        wait(futures)  # the caller releases the buffer: no lane may be at work any more
        for future in futures:
            future.result()


def _keep_thread() -> None:
    """Keep a lane's thread for the worker's next tasks."""
    keep(threading.current_thread())


class _Lane:
    """A thread's queue and its pinned chunks, which alternate."""

    def __init__(self, context: pyopencl.Context, chunk_bytes: int) -> None:
        self._queue = pyopencl.CommandQueue(context)
        self._chunk_bytes = chunk_bytes
        flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.ALLOC_HOST_PTR
        self._memory = [
            pyopencl.Buffer(context, flags, chunk_bytes) for _ in range(CHUNKS)
        ]
        self._chunks: list[Bytes] = [
            pyopencl.enqueue_map_buffer(
                self._queue, memory, HOST_ACCESS, 0, (chunk_bytes,), np.dtype(np.uint8)
            )[0]
            for memory in self._memory
        ]

    def copy_in(self, buffer: pyopencl.Buffer, data: Bytes, part: range) -> None:
        """Copy the bytes `part` of `data` to the same place of the buffer."""
        try:
            self._fill(buffer, data, part)
        finally:
            self._queue.finish()  # also after an error: the next copy uses the chunks

    def copy_out(self, buffer: pyopencl.Buffer, data: Bytes, part: range) -> None:
        """Copy the bytes `part` of the buffer to the same place of `data`."""
        try:
            self._empty(buffer, data, part)
        finally:
            self._queue.finish()

    def close(self) -> None:
        """Free the pinned memory."""
        for chunk in self._chunks:
            chunk.base.release(self._queue)  # type: ignore[union-attr]  # a MemoryMap
        self._queue.finish()
        for memory in self._memory:
            memory.release()

    def _fill(self, buffer: pyopencl.Buffer, data: Bytes, part: range) -> None:
        pending: list[pyopencl.Event | None] = [None] * CHUNKS
        for number, start in enumerate(part[:: self._chunk_bytes]):
            here = number % CHUNKS
            event = pending[here]
            if event is not None:
                event.wait()
            source = data[start : min(start + self._chunk_bytes, part.stop)]
            chunk = self._chunks[here][: source.size]
            chunk[:] = source
            pending[here] = self._enqueue(buffer, chunk, {"dst_offset": start})

    def _empty(self, buffer: pyopencl.Buffer, data: Bytes, part: range) -> None:
        starts = part[:: self._chunk_bytes]

        def transfer(number: int) -> tuple[Bytes, Bytes, pyopencl.Event]:
            start = starts[number]
            target = data[start : min(start + self._chunk_bytes, part.stop)]
            chunk = self._chunks[number % CHUNKS][: target.size]
            return target, chunk, self._enqueue(chunk, buffer, {"src_offset": start})

        pending = [transfer(number) for number in range(min(CHUNKS, len(starts)))]
        for number in range(len(starts)):
            target, chunk, event = pending.pop(0)
            event.wait()
            target[:] = chunk
            if number + CHUNKS < len(starts):
                pending.append(transfer(number + CHUNKS))

    def _enqueue(
        self, target: Any, origin: Any, place: dict[str, Any]
    ) -> pyopencl.Event:
        event: pyopencl.Event = pyopencl.enqueue_copy(
            self._queue, target, origin, is_blocking=False, **place
        )
        self._queue.flush()
        return event


def _bytes_of(array: NDArray[Any]) -> Bytes:
    """Return the memory of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def staged_copies(context: pyopencl.Context) -> StagedCopies | None:
    """Return copies with as many lanes as the machine's cores allow; None: the driver's are best."""
    lanes = min(MOST_LANES, len(os.sched_getaffinity(0)) // CORES_OF_LANE)
    if lanes < 2:  # noqa: PLR2004
        return None
    try:
        return StagedCopies(context, lanes)
    except pyopencl.Error:
        return None
