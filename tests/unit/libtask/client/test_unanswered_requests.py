"""Requests that get no answer are repeated with their keys, but not for ever."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.errors import DaemonUnreachableError
from libtask.messages import (
    AddSamples,
    Control,
    Done,
    Drain,
    Error,
    Migrate,
    Policies,
    Stop,
    Submit,
)
from unit.fake_daemon import FakeDaemon, specs
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.messages import Message


def test_unanswered_submit_is_repeated_with_its_key(daemon: FakeDaemon) -> None:
    daemon.mute.add(Submit)

    with Client(daemon.path, timeout=0.2) as client:
        handle = client.submit_specs(specs(1))[0]

    first, second = daemon.requests(Submit)
    assert first.key == second.key != ""
    assert (handle.id, len(daemon.tasks), len(daemon.peers)) == (1, 1, 2)


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda client: client.cancel(1), Control),
        (lambda client: client.migrate(1, "cpu"), Migrate),
        (lambda client: client.policy("affinity"), Policies),
        (lambda client: client.drain("cpu"), Drain),
        (lambda client: client.learn([]), AddSamples),
    ],
    ids=["control", "migrate", "policy", "drain", "learn"],
)
def test_every_unanswered_change_is_repeated_with_its_key(
    daemon: FakeDaemon, ask: Callable[[Client], object], kind: type
) -> None:
    daemon.mute.add(kind)

    with Client(daemon.path, timeout=0.2) as client:
        ask(client)

    first, second = daemon.requests(kind)
    assert first.key == second.key != ""
    assert first.expires < second.expires < time.monotonic() + 0.2
    assert len(daemon.peers) == 2  # over another connection


def test_who_is_put_off_asks_again(client: Client, daemon: FakeDaemon) -> None:
    put_off = [1, 2]

    def answer(message: Control) -> list[Message]:
        if put_off:
            put_off.pop()
            return [Error(message.request, "busy", "others want something too")]
        return [Done(message.request, message.ids)]

    daemon.answers[Control] = answer

    assert client.cancel(1) == [1]
    assert len({each.key for each in daemon.requests(Control)}) == 1


def test_a_daemon_that_never_answers_is_given_up(daemon: FakeDaemon) -> None:
    daemon.answers[Stop] = daemon.answers[Control] = lambda _: []

    refused = pytest.raises(DaemonUnreachableError, match=r"no answer in 0\.05 s")
    with Client(daemon.path, timeout=0.05) as client, refused:
        client.cancel(1)

    assert len(daemon.requests(Control)) == 2


def test_a_daemon_that_goes_away_whenever_it_is_asked_is_given_up(
    tmp_path: Path,
) -> None:
    fakes: list[FakeDaemon] = []
    starting = threading.Lock()  # a new one may be asked before it is in the list

    def crash(_: Control) -> list[Message]:
        threading.Thread(target=restart).start()
        return []

    def restart() -> None:
        with starting:
            fakes[-1].close()
            start()

    def start() -> None:
        fakes.append(FakeDaemon(tmp_path / "s", answers={Control: crash}))

    def keys() -> list[str]:
        return [each.key for fake in fakes for each in fake.requests(Control)]

    start()
    refused = pytest.raises(DaemonUnreachableError, match="went away 5 times")
    with Client(tmp_path / "s") as client, refused:
        client.cancel(1)
    until(lambda: len(fakes) == 1 + len(keys()), "the end of the restarts")
    fakes[-1].close()
    # a connection may be lost before the request goes over it
    assert 1 < len(keys()) <= 5
    assert len(set(keys())) == 1


def test_a_daemon_that_has_gone_already_needs_not_be_stopped(
    tmp_path: Path,
) -> None:
    fake = FakeDaemon(tmp_path / "s")
    with Client(fake.path) as client:
        fake.close()
        fake.path.unlink()
        until(lambda: client._session._connection is None, "the loss to be noticed")

        client.stop()


def test_daemon_that_stops_without_a_word(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s")
    leaving = threading.Thread(target=fake.close)

    def leave(_: Stop) -> list[Message]:
        leaving.start()
        return []

    fake.answers[Stop] = leave

    with Client(fake.path) as client:
        client.stop()
    leaving.join()
    assert len(fake.requests(Stop)) == 1
