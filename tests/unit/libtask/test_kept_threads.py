"""Threads of a worker: those that tasks leave behind, and those that are kept on purpose."""

from __future__ import annotations

import threading

import pytest

from libtask.kept_threads import keep, stray_threads


@pytest.mark.parametrize("kept", [False, True])
def test_only_a_thread_that_nobody_keeps_is_stray(*, kept: bool) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    if kept:
        keep(thread)
    thread.start()
    try:
        assert (thread in stray_threads()) is not kept
    finally:
        over.set()
        thread.join()
    assert thread not in stray_threads()


def test_the_thread_that_asks_is_not_stray() -> None:
    assert threading.current_thread() not in stray_threads()
