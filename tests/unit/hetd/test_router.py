"""The router: who speaks, what is not understood, and whose socket it is."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from hetd.transport.router import Peer, Router
from libtask.errors import InputError
from libtask.messages import (
    MAX_FRAME,
    Done,
    ListTasks,
    MalformedError,
    Register,
    Submit,
    TaskList,
    TaskSpec,
    decode_from_daemon,
    encode,
)
from libtask.messages import Error as Refusal
from torture.zmtp import RawPeer
from unit.scripted_daemon import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hetd.transport.router import Envelope

POLL_MS = int(1000 * PATIENCE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="hetd-") as name:
        yield Path(name)


@pytest.fixture
def router(folder: Path) -> Iterator[Router]:
    router = Router(folder / "s")
    yield router
    router.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Router], zmq.Socket[bytes]]]:
    """Connect as a peer."""
    context = zmq.Context()
    sockets = []

    def make(router: Router) -> zmq.Socket[bytes]:
        socket = context.socket(zmq.DEALER)
        socket.connect(f"ipc://{router.path}")
        sockets.append(socket)
        return socket

    yield make
    for socket in sockets:
        socket.close(linger=0)
    context.term()


def hear(router: Router, count: int = 1) -> list[Envelope]:
    heard: list[Envelope] = []

    def enough() -> bool:
        heard.extend(router.receive())
        return len(heard) >= count

    until(enough, f"{count} messages")
    return heard


def test_the_kernel_names_the_sender(router: Router, connect: Any) -> None:
    # what a peer says of itself, its pid here, is not believed
    connect(router).send(encode(Register("client", pid=1)))

    (envelope,) = hear(router)

    assert (envelope.peer.uid, envelope.peer.pid) == (os.getuid(), os.getpid())
    assert envelope.message == Register("client", pid=1)


def test_an_answer_reaches_the_one_who_asked(router: Router, connect: Any) -> None:
    one, other = connect(router), connect(router)
    one.send(encode(ListTasks(1)))
    (envelope,) = hear(router)

    assert router.send(envelope.peer.route, Done(1), Done(2))

    assert one.poll(POLL_MS)
    replies = [decode_from_daemon(frame) for frame in one.recv_multipart()]
    assert replies == [Done(1), Done(2)]
    assert not other.poll(0)


@pytest.mark.parametrize(
    "frames",
    [[b""], [b"\xc1"], [b"\x81\xa1t\xa4Nope"], [encode(Done(1))], [os.urandom(999)]],
    ids=["empty", "no-messagepack", "unknown", "from-the-daemon", "noise"],
)
def test_what_is_not_understood_is_an_error_of_its_sender(
    router: Router, connect: Any, frames: list[bytes]
) -> None:
    peer = connect(router)
    peer.send_multipart(frames)
    peer.send(encode(ListTasks(7)))

    bad, good = hear(router, 2)

    assert isinstance(bad.message, InputError)
    assert bad.peer.uid == os.getuid()
    assert good.message == ListTasks(7)


def test_a_malformed_request_keeps_its_number(router: Router, connect: Any) -> None:
    frame = encode(ListTasks(41, limit=12)).replace(b"\x0c", b"\xc3")
    connect(router).send(frame)

    (envelope,) = hear(router)

    assert isinstance(envelope.message, MalformedError)
    assert envelope.message.request == 41


def test_a_message_of_several_frames_is_refused(router: Router, connect: Any) -> None:
    peer = connect(router)
    peer.send_multipart([encode(ListTasks(1)), encode(ListTasks(2))])

    (envelope,) = hear(router)

    assert isinstance(envelope.message, InputError)
    assert str(envelope.message) == "a message of several frames"


def test_a_peer_that_sends_too_much_is_cut_off_alone(
    router: Router, connect: Any
) -> None:
    greedy, modest = connect(router), connect(router)
    greedy.send(b"x" * (MAX_FRAME + 1))
    modest.send(encode(ListTasks(1)))

    (envelope,) = hear(router)

    assert envelope.message == ListTasks(1)
    assert list(router.receive()) == []


def test_the_largest_message_passes(router: Router, connect: Any) -> None:
    room = MAX_FRAME - len(encode(_submit("")))
    message = _submit("x" * (room - 8))
    assert MAX_FRAME - 8 <= len(encode(message)) <= MAX_FRAME
    connect(router).send(encode(message))

    (envelope,) = hear(router)

    assert envelope.message == message


def _submit(text: str) -> Submit:
    return Submit(1, [TaskSpec("app", {"text": text})])


def test_a_reply_that_is_too_large_becomes_an_error(
    router: Router, connect: Any
) -> None:
    peer = connect(router)
    peer.send(encode(ListTasks(3)))
    (envelope,) = hear(router)

    router.send(envelope.peer.route, TaskList(3, [], total=1), _large_list())

    assert peer.poll(POLL_MS)
    first, second = map(decode_from_daemon, peer.recv_multipart())
    assert first == TaskList(3, [], total=1)
    assert isinstance(second, Refusal)
    assert (second.request, second.code) == (4, "bad-input")
    assert second.text.endswith("ask for less")


def _large_list() -> TaskList:
    from libtask.messages import TaskInfo

    task = TaskInfo(1, "a" * 1000, "t", "queued", "uid:0")
    return TaskList(4, [task] * 4400)


def test_a_peer_that_is_gone_is_counted_and_harms_nobody(router: Router) -> None:
    assert not router.send(b"nobody", Done(1))

    assert router.dropped == 1


def test_peers_that_flood_and_vanish_end_nobody(router: Router) -> None:
    # a heartbeat that falls due on what they leave would be the end of the process
    assert router.socket.getsockopt(zmq.HEARTBEAT_IVL) == 0
    frame = encode(ListTasks(1))
    for _ in range(4):
        with RawPeer(router.path) as peer:
            peer.greet()
            peer.socket.settimeout(0)
            with suppress(BlockingIOError):
                while True:
                    peer.send(frame)

    # whole messages that had come are handled; there was room for some from each
    assert hear(router, 100)[0].message == ListTasks(1)


def test_nobody_else_may_open_the_socket(router: Router) -> None:
    status = router.path.stat()

    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


def test_closing_removes_the_socket(folder: Path) -> None:
    router = Router(folder / "deep" / "er" / "s")
    router.close()

    assert not router.path.exists()
    assert stat.S_IMODE(router.path.parent.stat().st_mode) == 0o700


def test_a_socket_that_is_served_is_not_taken(router: Router) -> None:
    with pytest.raises(InputError, match="another daemon serves"):
        Router(router.path)

    router.self_test()


def test_a_socket_that_a_crash_left_is_taken(folder: Path) -> None:
    context = zmq.Context()
    crashed = context.socket(zmq.ROUTER)
    crashed.bind(f"ipc://{folder}/other")
    (folder / "other").rename(folder / "s")
    crashed.close(linger=0)
    context.term()

    router = Router(folder / "s")

    router.self_test()
    router.close()


def test_a_file_in_the_place_of_the_socket_is_kept(folder: Path) -> None:
    (folder / "notes").write_text("dear")

    with pytest.raises(
        InputError, match="notes: the path is a file that is not a socket"
    ):
        Router(folder / "notes")

    assert (folder / "notes").read_text() == "dear"


def test_a_path_that_no_socket_can_have_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="is too long, the limit is 107"):
        Router(folder / ("x" * 108))


def test_a_place_where_no_socket_can_be_is_refused(folder: Path) -> None:
    (folder / "file").touch()
    (folder / "s").mkdir()

    with pytest.raises(InputError, match=r"socket .*/file/s: "):
        Router(folder / "file" / "s")
    with pytest.raises(InputError, match=r"socket .*/s: "):
        Router(folder / "s")


def test_what_others_say_during_the_self_test_is_kept(
    router: Router, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = _as_stranger(monkeypatch)
    connect(router).send(encode(ListTasks(1)))
    assert router.socket.poll(POLL_MS)

    router.self_test()

    assert [e.message for e in router.receive()] == [ListTasks(1)]
    assert stranger == [ListTasks(1)]


def _as_stranger(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let every message but a hello come from another process; collect these."""
    from hetd.transport import router as module

    collected: list[Any] = []
    opened = module._open

    def open_as_stranger(*arguments: Any) -> Envelope:
        envelope = opened(*arguments)
        if isinstance(envelope.message, Register):
            return envelope
        collected.append(envelope.message)
        return module.Envelope(Peer(b"route", 12345, 1), envelope.message)

    monkeypatch.setattr(module, "_open", open_as_stranger)
    return collected
