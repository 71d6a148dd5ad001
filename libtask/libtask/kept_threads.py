"""Threads that a worker keeps between tasks: the idle helpers of kernels.

A worker whose task leaves another Python thread behind exits, as nobody knows what that
thread does. A new worker takes half a second to load compiled kernels.
"""

from __future__ import annotations

import threading
import weakref

_kept: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def keep(thread: threading.Thread) -> None:
    """Declare that a thread does nothing between tasks, and serves later ones."""
    _kept.add(thread)


def stray_threads() -> list[threading.Thread]:
    """List the other Python threads of this process, without those that are kept.

    Threads of native libraries are not among them.
    """
    if threading.active_count() == 1:
        return []
    own = threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if thread is not own and thread not in _kept
    ]
