"""The ends of processes: noticed when they come, and when they have come already."""

from __future__ import annotations

import subprocess
import sys

from hetd.transport.router import Peer
from hetd.wakes import Guarded, Wakes

FOREVER_MS = 60_000


def a_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_the_end_of_a_process_ends_the_wait() -> None:
    process = a_process()
    guarded = Guarded(Peer(b"route", 1, process.pid), "worker")
    wakes = Wakes()
    wakes.guard(guarded)
    assert wakes.wait(0) == []

    process.communicate()

    assert wakes.wait(FOREVER_MS) == [guarded]
    assert wakes.wait(0) == [], "it ends once"


def test_a_process_that_is_gone_already_has_ended() -> None:
    process = a_process()
    process.communicate()
    guarded = Guarded(Peer(b"route", 1, process.pid), None)
    wakes = Wakes()

    wakes.guard(guarded)

    assert wakes.wait(FOREVER_MS) == [guarded]
    assert wakes.wait(0) == []
