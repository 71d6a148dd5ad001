"""The line to hetd: what is said on it is heard, up to the last word."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from libtask.errors import InputError
from libtask.messages import (
    MAX_FRAME,
    PROTOCOL,
    Abort,
    Aborted,
    Finished,
    FromDaemon,
    Recall,
    Register,
    Registered,
    Retire,
    Run,
    TaskSpec,
    decode_to_daemon,
    encode,
)
from libtask.worker.link import BATCHED_BYTES, SHORT_S, Link
from unit.scripted_daemon import PATIENCE, cpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import Message


class LastWords:
    """A socket that hears hetd's last word just after it was looked at in vain.

    Args:
        socket: the real one.
        router: hetd's end of it; it says `word` and is gone.
        lost: tells when the connection is known to be lost.

    """

    def __init__(self, socket: Any, router: Any, word: Message, lost: Any) -> None:
        self._socket = socket
        self._router = router
        self._word = word
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def getsockopt(self, option: int) -> Any:
        if self._router is None:
            return self._socket.getsockopt(option)
        router, self._router = self._router, None
        route = router.recv_multipart()[0]
        router.send_multipart([route, encode(self._word)])
        router.close(linger=1000 * PATIENCE)
        assert self._lost.poll(1000 * PATIENCE)
        return 0  # when it was looked at, there was nothing


@pytest.fixture
def router() -> Iterator[Any]:
    with zmq.Context() as context:
        yield context.socket(zmq.ROUTER)


def test_a_last_word_that_comes_between_two_looks_is_heard(
    tmp_path: Path, router: Any
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("launcher")])
    socket = link._socket
    link._socket = LastWords(socket, router, Retire(), link._monitor)  # type: ignore[assignment]  # stands in
    said: FromDaemon | None = link.receive(0)
    link._socket = socket
    link.close()

    assert said == Retire()


def test_a_link_knows_whether_somebody_is_there(tmp_path: Path, router: Any) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("launcher")])
    before = link.connected
    route = router.recv_multipart()[0]
    router.send_multipart(
        [route, encode(Registered(PROTOCOL, "test", 1, launcher=True))]
    )
    link.await_welcome(PATIENCE)
    answered = link.connected
    router.close(linger=0)
    assert link._monitor.poll(int(1000 * PATIENCE))

    assert (before, answered, link.connected) == (False, True, False)
    link.close(linger_ms=0)


def lose(link: Link, router: Any) -> None:
    router.recv_multipart()
    router.close(linger=0)
    assert link._monitor.poll(int(1000 * PATIENCE))


@pytest.mark.parametrize("runs", [True, False])
def test_a_lost_connection_is_renewed_as_long_as_a_call_runs(
    tmp_path: Path, router: Any, *, runs: bool
) -> None:
    """A registration while its end is reported might contain neither the run nor the end."""
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker", task=7, epoch=2)])
    lose(link, router)

    taken = link.take_abort(7, 2, lambda: runs)

    assert (taken, link.connections) == (False, 2 if runs else 1)
    link.close(linger_ms=0)


def test_a_call_that_was_running_before_is_aborted_by_the_next_hetd(
    tmp_path: Path, router: Any
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker", task=7, epoch=2)])
    lose(link, router)
    link.take_abort(7, 2, lambda: True)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as later:
        later.bind(f"ipc://{tmp_path}/s")
        route, registration = later.recv_multipart()
        later.send_multipart([route, encode(Abort(7, 2))])
        assert link._socket.poll(int(1000 * PATIENCE))

        assert link.take_abort(7, 2, lambda: True)
    assert decode_to_daemon(registration) == Register("worker", task=7, epoch=2)
    link.close(linger_ms=0)


def test_commands_of_a_lost_hetd_are_dropped_and_those_of_the_next_one_kept(
    tmp_path: Path, router: Any
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])
    link.defer(Abort(7, 2))
    lose(link, router)
    link.renew_if_lost()
    link.defer(Retire())

    link.restore_deferred()

    assert [link.receive(0), link.receive(0)] == [Retire(), None]
    link.close(linger_ms=0)


@pytest.mark.parametrize(("seconds", "waits"), [(SHORT_S, True), (2 * SHORT_S, False)])
def test_the_end_of_a_short_task_alone_waits_for_that_of_the_next_one(
    tmp_path: Path, router: Any, seconds: float, *, waits: bool
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])
    router.recv_multipart()
    spec = TaskSpec("app", {})
    link.put_back([Run(2, 1, cpu(), spec, follows=True)])
    link._batch_deadline = math.inf
    link._batched.append(Finished(0, 1))

    link.send_batched(Finished(1, 1, seconds=seconds))

    assert (len(link._batched) == 2) is waits
    link.close(linger_ms=0)
    router.close(linger=0)


@pytest.mark.parametrize(
    ("size", "sent"), [(100, []), (2 * BATCHED_BYTES, [Finished, Finished])]
)
def test_ends_with_small_results_wait_for_the_next_one(
    tmp_path: Path, router: Any, size: int, sent: list[type]
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])
    router.recv_multipart()
    link.put_back([Run(3, 1, cpu(), TaskSpec("app", {}), follows=True)])
    link._batch_deadline = math.inf
    link._batched.append(Finished(1, 1))

    link.send_batched(Finished(2, 1, result="x" * size))
    waiting = len(link._batched)
    link.close(linger_ms=0 if not sent else 1000)

    assert waiting == (0 if sent else 2)
    said = [decode_to_daemon(router.recv_multipart()[1]) for _ in sent]
    assert [type(each) for each in said] == sent
    router.close(linger=0)


def test_an_end_with_a_result_that_cannot_be_sent_is_refused(
    tmp_path: Path, router: Any
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])

    with pytest.raises(InputError, match="not a small plain value"):
        link.send_batched(Finished(1, 1, result="x" * (MAX_FRAME + 1)))

    assert link._batched == []
    link.close(linger_ms=0)
    router.close(linger=0)


def test_a_link_is_served_as_long_as_a_task_of_a_batch_runs(
    tmp_path: Path, router: Any
) -> None:
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])
    router.recv_multipart()
    before = link.serve()
    link.put_back([Run(2, 1, cpu(), TaskSpec("app", {}), follows=True)])
    link.receive(0)
    running = [link.serve(), link.receive(0), link.serve()]
    link.receive(1)

    assert (before, running, link.serve()) == (False, [True, None, True], False)
    link.close(linger_ms=0)
    assert not link.serve()
    router.close(linger=0)


def test_a_recall_is_read_before_the_task_that_came_before_it_begins(
    tmp_path: Path, router: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have arrived while another task computed."""
    router.bind(f"ipc://{tmp_path}/s")
    link = Link(tmp_path / "s", lambda: [Register("worker")])
    route, _ = router.recv_multipart()
    run = Run(2, 1, cpu(), TaskSpec("app", {}), follows=True)
    arrived = [[encode(run)], [encode(Recall(2, 1))]]
    monkeypatch.setattr(link, "_read", lambda: arrived.pop(0) if arrived else [])

    assert link.receive(0) is None
    assert router.recv_multipart() == [route, encode(Aborted(2, 1))]
    link.close(linger_ms=0)
    router.close(linger=0)
