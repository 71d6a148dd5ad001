"""What befalls a daemon from outside: signals, clients that die, logs that nobody reads."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Literal

import psutil
import pytest
import zmq

from libtask.client.client import Client, Selection
from libtask.daemon.handshake import handshake
from libtask.messages import (
    PROTOCOL,
    Error,
    Register,
    Submit,
    Submitted,
    TaskSpec,
    decode_from_daemon,
    encode,
)
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually
from torture import zmtp
from torture.zmtp import RawPeer

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import FromDaemon, TaskInfo
    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]

LONG = {"seconds": {"gpu": 600.0}, "strips": 60_000}
DRAINS = 3
MORE_BYTES = 8 << 20
PIPE_BYTES = 4096
"""The smallest that a pipe can be made."""


def begin(daemon: PrivateDaemon) -> int:
    """Submit a task and wait until it runs in a worker."""
    task = daemon.client.submit("synthetic", LONG).id
    daemon.await_state(task, "running")
    eventually(daemon.workers, "a worker")
    return task


def ask(peer: RawPeer, message: bytes) -> FromDaemon:
    peer.send(message)
    return decode_from_daemon(peer.receive_frame())


# ---------------------------------------------------------------- signals


def test_signals_at_any_moment_of_a_stop_do_nothing_twice(
    private_daemon: Start,
) -> None:
    chance = random.Random(7)
    daemon = private_daemon(SETTINGS + 'on_stop = "preempt"\n' + RESOURCES)
    task = begin(daemon)
    (worker,) = daemon.workers()
    progress = 0.0

    for _ in range(DRAINS):
        status = _end_with_signals(daemon, chance)
        daemon.start()
        info = _grown(daemon, task, progress)
        assert status == 0, daemon.log.read_text()
        assert (info.state, daemon.workers()) == ("running", [worker])
        progress = info.progress
    assert daemon.info(task).attempts == 0


def _grown(daemon: PrivateDaemon, task: int, progress: float) -> TaskInfo:
    def look() -> TaskInfo | None:
        info = daemon.info(task)
        return info if info.progress > progress else None

    return eventually(look, "progress since the last stop")


def _end_with_signals(daemon: PrivateDaemon, chance: random.Random) -> int:
    """Stop the daemon, and send it more signals while it stops; return its status."""
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    os.kill(daemon.pid, signal.SIGTERM)
    for number in chance.sample(numbers, 3):
        time.sleep(chance.uniform(0.0, 0.02))  # any moment will do
        os.kill(daemon.pid, number)  # it is not reaped yet: the pid is still its own
    return daemon.wait()


# ---------------------------------------------------------------- clients


def test_what_was_asked_while_no_daemon_was_there_is_refused_when_it_comes(
    private_daemon: Start,
) -> None:
    daemon = private_daemon()
    assert daemon.terminate() == 0
    late = time.clock_gettime(time.CLOCK_MONOTONIC) - 0.001
    submit = Submit(7, [TaskSpec("app", hold=True)], key="k", expires=late)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(f"ipc://{daemon.socket}")
        dealer.send(encode(submit))  # ZeroMQ keeps it until somebody listens

        daemon.start()
        assert dealer.poll(int(1000 * PATIENCE))
        reply = decode_from_daemon(dealer.recv())

    assert isinstance(reply, Error)
    assert (reply.request, reply.code) == (7, "expired")
    assert daemon.client.tasks() == []


def test_a_client_that_is_killed_while_it_waits_takes_nothing_along(
    private_daemon: Start,
) -> None:
    daemon = private_daemon()
    task = begin(daemon)
    command = ["-m", "hetctl", "wait", str(task), "--socket", str(daemon.socket)]
    watchers = daemon.client.status().watchers
    waiting = subprocess.Popen([sys.executable, *command])
    eventually(lambda: daemon.client.status().watchers > watchers, "it to wait")

    waiting.kill()
    waiting.wait(PATIENCE)
    daemon.client.cancel(task)

    # its end is told to nobody, and harms nobody
    assert daemon.await_state(task, "cancelled").state == "cancelled"
    assert daemon.is_up()


@pytest.mark.parametrize("role", ["client", "launcher", "worker"])
@pytest.mark.parametrize("protocol", [0, PROTOCOL + 1])
def test_who_speaks_another_protocol_is_told_which_is_spoken(
    daemon: PrivateDaemon,
    role: Literal["client", "launcher", "worker"],
    protocol: int,
) -> None:
    workers = daemon.client.status().workers
    with RawPeer(daemon.socket) as peer:
        peer.greet(zmtp.ready())
        hello = Register(role, protocol, worker="w", own=True)
        reply = ask(peer, encode(hello))

        assert isinstance(reply, Error)
        assert reply.code == "protocol"
        assert f"protocol {protocol} is not spoken here" in reply.text
        assert f"hetd speaks {PROTOCOL}" in reply.text
        assert daemon.client.status().workers == workers


# ---------------------------------------------------------------- memory


def test_a_daemon_without_memory_loses_nothing(private_daemon: Start) -> None:
    daemon = private_daemon()
    task = begin(daemon)
    (worker,) = daemon.workers()
    size = psutil.Process(daemon.pid).memory_info().vms + MORE_BYTES
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (size, size))

    acknowledged = _submit_until_it_ends(daemon)
    # its memory is the limit of the process that it was
    daemon.kill9()
    daemon.start()

    found = [info.id for info in daemon.client.tasks(Selection(limit=1000))]
    assert set(acknowledged) < set(found)
    assert (daemon.info(task).state, daemon.info(task).attempts) == ("running", 0)
    assert daemon.workers() == [worker]


def _submit_until_it_ends(daemon: PrivateDaemon) -> list[int]:
    """Submit large tasks while the daemon answers; return those it acknowledged."""
    spec = TaskSpec("app", {"data": "x" * 900_000}, hold=True)
    ids: list[int] = []
    with RawPeer(daemon.socket) as peer, suppress(ConnectionError, EOFError):
        peer.greet()
        while len(ids) < MORE_BYTES // 100_000:
            reply = ask(peer, encode(Submit(1, [spec])))
            if not isinstance(reply, Submitted):
                break
            ids += reply.ids
    return ids


# ---------------------------------------------------------------- the log


def test_a_log_that_nobody_reads_holds_nobody_up(private_daemon: Start) -> None:
    daemon = private_daemon()
    task = begin(daemon)
    assert daemon.terminate() == 0
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(writer, b"x" * PIPE_BYTES)  # it is full from the start

    deaf = subprocess.Popen(daemon.command(), stderr=writer, stdin=subprocess.DEVNULL)
    os.close(writer)
    eventually(lambda: handshake(daemon.socket), "an answer without a log")
    with closing(Client(daemon.socket)) as client:
        for _ in range(100):
            deaf.send_signal(signal.SIGHUP)  # tells the log, each time
            assert client.show(task).state == "running"
    deaf.terminate()

    assert deaf.wait(PATIENCE) == 0
    os.close(reader)
    daemon.start()
