"""The guard: who is cut off, who is not, and when the daemon is to end."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hetd.transport import connection_guard as module
from hetd.transport.connection_guard import Allowance
from hetd.transport.router import Router
from libtask.messages import (
    MAX_IDS,
    Control,
    ListTasks,
    Request,
    Submit,
    TaskSpec,
    encode,
)
from torture.zmtp import RawPeer, flood_parts
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make() -> Iterator[Callable[[Allowance], Router]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hetd-")))

        def open_router(allowance: Allowance) -> Router:
            router = Router(folder / "s", allowance)
            stack.callback(router.close)
            return router

        yield open_router


def _connect(router: Router, count: int, stack: ExitStack) -> list[RawPeer]:
    return [stack.enter_context(RawPeer(router.path)) for _ in range(count)]


def test_a_user_has_so_many_connections_and_no_more(
    make: Callable[[Allowance], Router],
) -> None:
    router = make(Allowance(connections=10))
    with ExitStack() as stack:
        peers = _connect(router, 10, stack)
        surplus = _connect(router, 5, stack)

        assert all(peer.is_cut_off() for peer in surplus)
        for peer in peers:
            peer.greet()
        until(lambda: router.guard.cut == 5, "the count, which follows the cut")


def test_who_leaves_makes_room(make: Callable[[Allowance], Router]) -> None:
    router = make(Allowance(connections=4))
    for _ in range(5):
        with ExitStack() as stack:
            for peer in _connect(router, 4, stack):
                peer.greet()
        until(lambda: not router.guard._uids, "the end of the connections")

    assert router.guard.cut == 0


def test_the_daemon_is_to_end_when_nothing_else_helps(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = [0]
    monkeypatch.setattr(module, "_resident", lambda: 100 << 20 | grown[0])
    router = make(Allowance(memory=1 << 20))
    router.guard.begin(0)

    grown[0] = 1 << 30
    begun = time.monotonic()

    until(lambda: bool(router.guard.exhausted), "a call for the end")
    assert router.guard.exhausted.startswith("out of the memory allowed: grown by ")
    assert time.monotonic() - begun >= module.BEYOND_S


def test_the_less_memory_is_left_the_sooner_the_next_check(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_MS", 1_000_000)  # longer than the test may take
    router = make(Allowance())
    router.guard.begin(0)
    until(lambda: not router.guard._active, "a quiet guard")
    pauses = []

    # megabytes; from 500 to 500 nobody fills anything
    for grown in (0, 320, 390, 500, 500, 510):
        router.guard._choose_pause(400_000_000, grown * 1_000_000)
        pauses.append(router.guard._pause_ms)

    assert pauses == [100.0, 20.0, 10.0, 10.0, 100.0, 10.0]


def _await_strain(router: Router, wanted: bool) -> None:  # noqa: FBT001  what is awaited
    until(lambda: router.guard.strained is wanted, "a look at the memory")


def test_large_requests_wait_while_there_is_little_memory(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = [100 << 20]
    monkeypatch.setattr(module, "_resident", lambda: size[0])
    router = make(Allowance(memory=100 << 20))
    router.guard.begin(0)
    large = Submit(7, [TaskSpec("app", {"data": "x" * 70_000})])
    many = Control(9, "cancel", list(range(1 << 31, (1 << 31) + MAX_IDS)))
    read = []

    for grown, strained in ((80 << 20, True), (0, False)):
        size[0] = (100 << 20) + grown
        _await_strain(router, strained)
        with RawPeer(router.path) as peer:
            peer.greet()
            for message in (large, ListTasks(8), many):
                peer.send(encode(message))
                until(router.waiting, "a request")
                read += [each.message for each in router.receive()]

    # a bare request is one that was not read; the loop says that it is busy
    assert read == [Request(7), ListTasks(8), many, large, ListTasks(8), many]


def test_what_arrives_at_a_quiet_daemon_is_followed_by_a_check(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_MS", 1_000_000)  # longer than the test may take
    size = [100 << 20]
    monkeypatch.setattr(module, "_resident", lambda: size[0])
    router = make(Allowance(memory=100 << 20))
    router.guard.begin(0)
    with RawPeer(router.path) as peer:
        peer.greet()
        for _ in range(3):
            until(lambda: not router.guard._active, "a quiet guard")
            peer.send(encode(ListTasks(8)))
            until(router.waiting, "a message")
            size[0] += 80 << 20
            assert len(list(router.receive())) == 1
            _await_strain(router, wanted=True)
            size[0] -= 80 << 20
            _await_strain(router, wanted=False)  # without an arrival: memory was short


def test_the_memory_that_the_service_manager_allows_counts(tmp_path: Path) -> None:
    own, group = tmp_path / "cgroup", tmp_path / "hetd.service"
    group.mkdir()
    own.write_text("0::/hetd.service\n", encoding="ascii")

    none = module.memory_bound(tmp_path, own)
    (group / "memory.max").write_text("max\n", encoding="ascii")
    unlimited = module.memory_bound(tmp_path, own)
    (group / "memory.max").write_text("3221225472\n", encoding="ascii")
    (group / "memory.high").write_text("2147483648\n", encoding="ascii")

    assert (none, unlimited) == (math.inf, math.inf)
    assert module.memory_bound(tmp_path, own) == 2 << 30
    assert module.memory_bound(tmp_path, tmp_path / "absent") == math.inf


def test_what_tasks_need_is_no_growth(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = [100 << 20]
    monkeypatch.setattr(module, "_resident", lambda: size[0])
    router = make(Allowance(memory=1 << 20))
    router.guard.begin(0)

    size[0] += 500 << 20
    router.guard.granted = 500 << 20

    assert router.guard._growth() == 0


def test_memory_that_ended_tasks_took_is_no_growth(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python keeps it for later tasks, and does not return it to the system
    size = [100 << 20]
    monkeypatch.setattr(module, "_resident", lambda: size[0])
    router = make(Allowance(memory=100 << 20))
    router.guard.begin(0)
    size[0] = (100 << 20) + (500 << 20)
    router.guard.granted = 800 << 20
    until(lambda: router.guard._kept == 500 << 20, "a look at the memory")

    router.guard.granted = 0
    assert router.guard._growth() == 0
    size[0] += 80 << 20
    assert router.guard._growth() == 80 << 20
    _await_strain(router, wanted=True)
    size[0] = 100 << 20
    assert router.guard._growth() == 0
    _await_strain(router, wanted=False)
    size[0] += 80 << 20
    assert router.guard._growth() == 80 << 20


def test_memory_that_ended_tasks_took_is_free_for_large_requests(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = [100 << 20]
    monkeypatch.setattr(module, "_resident", lambda: size[0])
    monkeypatch.setattr(module, "memory_bound", lambda: 1000 << 20)
    router = make(Allowance())
    router.guard.begin(0)
    router.guard.granted = 800 << 20
    size[0] = 900 << 20
    _await_strain(router, wanted=True)

    router.guard.granted = 0
    _await_strain(router, wanted=False)


def test_a_flooder_is_cut_off_and_the_quiet_one_is_not(
    make: Callable[[Allowance], Router],
) -> None:
    router = make(Allowance(memory=16 << 20))
    with RawPeer(router.path) as quiet:
        quiet.greet()

        taken = flood_parts(router.path, 1 << 30, 1_000_000)

        assert taken < 1 << 30
        quiet.send(encode(ListTasks(7)))
        until(router.waiting, "the message of the quiet one")
        assert [each.message for each in router.receive()] == [ListTasks(7)]


def test_a_user_who_floods_gets_no_other_connection_for_a_while(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would fill each new connection as soon, until the daemon has to end."""
    monkeypatch.setattr(module, "TRUSTED", frozenset())
    monkeypatch.setattr(module, "REFUSAL_S", 1000.0)
    router = make(Allowance(memory=16 << 20))
    with RawPeer(router.path) as quiet:
        quiet.greet()
        flood_parts(router.path, 1 << 30, 1_000_000)
        until(lambda: router.guard.refuses(os.getuid()), "the refusal")

        with RawPeer(router.path) as again:
            assert again.is_cut_off()

        # a connection of theirs from before: what is large in it is not even decoded
        quiet.send(encode(Submit(6, [TaskSpec("a", {"b": "c" * 100_000})], key="k")))
        quiet.send(encode(ListTasks(7)))
        until(router.waiting, "the messages of the quiet one")
        got: list[object] = []

        def has_received() -> bool:
            got.extend(each.message for each in router.receive())
            return bool(got)

        until(has_received, "a small one")
        assert got == [ListTasks(7)]


def test_a_guard_that_fails_ends_the_daemon(
    make: Callable[[Allowance], Router], monkeypatch: pytest.MonkeyPatch
) -> None:
    router = make(Allowance())
    router.guard.begin(0)

    def fail() -> int:
        raise OSError("out of descriptors")

    monkeypatch.setattr(module, "_resident", fail)

    until(lambda: bool(router.guard.exhausted), "a call for the end")
    assert "its guard failed: out of descriptors" in router.guard.exhausted


def test_size_is_told_without_a_free_descriptor() -> None:
    program = (
        "import resource\n"
        "from hetd.transport import connection_guard as guard\n"
        "before = guard._resident()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "assert 0 < before <= guard._resident()\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_descriptor_that_is_no_connection_is_left_alone() -> None:
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()

    assert module._uid_of(reader) is None
    assert module._uid_of(10_000) is None
    assert module._uid_of(ours.fileno()) == os.getuid()
    ours.send(b"still open")  # borrowing did not close it

    for each in (reader, writer):
        os.close(each)
    for end in (ours, theirs):
        end.close()


def test_the_limit_on_descriptors_is_raised_to_what_is_allowed() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        module.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
