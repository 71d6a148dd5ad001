"""The ends of processes: noticed when they come, and when they have come already."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hetd.transport.poller import Poller, WatchedProcess
from hetd.transport.router import Peer

FOREVER_MS = 60_000


def a_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_end_of_a_process_ends_the_wait() -> None:
    process = a_process()
    watched = WatchedProcess(Peer(b"route", 1, process.pid), "worker")
    poller = Poller()
    poller.watch(watched)
    assert poller.wait(0) == []

    process.communicate()

    assert poller.wait(FOREVER_MS) == [watched]
    assert poller.wait(0) == [], "it ends once"


def test_a_process_is_watched_by_one_descriptor_however_often_it_comes() -> None:
    process = a_process()
    poller = Poller()
    before = _descriptors()
    for number in range(100):
        poller.watch(WatchedProcess(Peer(b"%d" % number, 1, process.pid), "worker"))
    other = WatchedProcess(Peer(b"route", 1, process.pid), "another")
    poller.watch(other)

    assert _descriptors() == before + 1
    process.communicate()
    newest = WatchedProcess(Peer(b"99", 1, process.pid), "worker")
    assert poller.wait(FOREVER_MS) == [newest, other]
    assert _descriptors() == before - 1  # nor the pipe to it


def test_a_pid_that_is_used_again_is_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = a_process(), a_process()
    started = {77: first.pid}
    real = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", lambda pid: real(started[pid]))
    poller = Poller()
    one, other = (WatchedProcess(Peer(b"", 1, 77), name) for name in ("one", "other"))
    poller.watch(one)
    first.communicate()
    started[77] = second.pid
    poller.watch(other)

    assert poller.wait(FOREVER_MS) == [one]
    assert poller.wait(0) == []
    second.communicate()
    assert poller.wait(FOREVER_MS) == [other]


def test_who_has_ended_is_not_there_to_be_watched() -> None:
    unreaped, reaped = a_process(), a_process()
    reaped.communicate()
    poller = Poller()
    peers = [Peer(b"", 1, process.pid) for process in (unreaped, reaped)]
    assert poller.watch(WatchedProcess(peers[0], None))
    assert unreaped.stdin is not None
    unreaped.stdin.close()
    os.waitid(os.P_PID, unreaped.pid, os.WEXITED | os.WNOWAIT)

    assert [poller.watch(WatchedProcess(peer, None)) for peer in peers] == [False] * 2

    unreaped.wait()


def test_who_cannot_be_watched_now_is_watched_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = a_process()
    poller = Poller()
    watched = WatchedProcess(Peer(b"route", 1, process.pid), None)

    def fail(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", fail)
        poller.watch(watched)
        process.communicate()
        assert poller.wait(0) == []

    # it has ended meanwhile
    assert poller.wait(FOREVER_MS) == [watched]


def test_a_process_that_is_gone_already_has_ended() -> None:
    process = a_process()
    process.communicate()
    watched = WatchedProcess(Peer(b"route", 1, process.pid), None)
    poller = Poller()

    poller.watch(watched)

    assert poller.wait(FOREVER_MS) == [watched]
    assert poller.wait(0) == []
