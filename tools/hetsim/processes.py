"""Processes that share the runs of a command, and end with it however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Case = TypeVar("Case")
Done = TypeVar("Done")

FEW = 4
"""Number of cases up to which one process is faster than several."""


def on_all_cores(one: Callable[[Case], Done], cases: Sequence[Case]) -> list[Done]:
    """Apply a function to each case, in order, on all cores that this process may use."""
    workers = min(len(os.sched_getaffinity(0)), len(cases))
    if len(cases) <= FEW or workers == 1:
        return [one(case) for case in cases]
    with process_pool(workers) as pool:
        return map_in(pool, one, cases)


def map_in(
    pool: ProcessPoolExecutor, one: Callable[[Case], Done], cases: Iterable[Case]
) -> list[Done]:
    """Apply a function to each case in the processes of a pool, in order.

    `pool.map` cancels what is left when an exception ends it, and a pool with cancelled
    calls does not survive the end of its processes.
    """
    calls = [pool.submit(one, case) for case in cases]
    return [call.result() for call in calls]


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes for the time of a block; if an exception leaves it, end them at once."""
    # Not forked: the numeric libraries of this process may have threads.
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, context, _begin) as pool:
        try:
            _start_all(pool, workers)
            yield pool
        except BaseException:
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise


def _start_all(pool: ProcessPoolExecutor, workers: int) -> None:
    """Start the processes with SIGINT blocked: a Ctrl-C during their imports is the parent's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(workers):
            pool.submit(os.getpid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Prepare a process: one thread in numeric libraries, and an end with the parent."""
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent was killed, which no pool tells its processes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
