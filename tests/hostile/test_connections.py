"""Peers that are up to something, at a real daemon: everybody else goes on."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from hostile.conftest import DESCRIPTORS, MEMORY_MB, descriptors, resident
from libtask.messages import (
    Amend,
    Done,
    Error,
    Lagged,
    ListTasks,
    Policies,
    PolicyInfo,
    Register,
    Registered,
    Submit,
    Submitted,
    Subscribe,
    TaskChanged,
    TaskList,
    TaskSpec,
    decode_from_daemon,
    encode,
)
from system.private_daemon import PATIENCE, eventually
from torture import zmtp
from torture.zmtp import RawPeer

if TYPE_CHECKING:
    from libtask.messages import FromDaemon
    from system.private_daemon import PrivateDaemon

CASES = int(os.environ.get("HETD_FUZZ_ZMTP", "100000"))
SEED = int(os.environ.get("HETD_FUZZ_SEED", "1"))
CHANGES = 2500
"""More than fit into the queue to one peer (`SNDHWM`) and what the kernel holds."""
HELLO = encode(Register("client"))


def ask(peer: RawPeer, message: bytes) -> FromDaemon:
    peer.send(message)
    return decode_from_daemon(peer.receive_frame())


@pytest.mark.timeout(120 + CASES // 1000)
def test_broken_zmtp_and_broken_messages(besieged: PrivateDaemon) -> None:
    tally = zmtp.fuzz(besieged.socket, CASES, SEED)

    assert sum(tally.values()) == CASES
    assert min(tally.values()) > CASES // 40


def test_twenty_thousand_connections_at_once(besieged: PrivateDaemon) -> None:
    made = 0
    while made < 20_000:
        flood = zmtp.flood_connections(besieged.socket, 500)
        made += len(flood)
        for each in flood:
            each.close()

    assert "cut off a connection" in besieged.log.read_text()


def test_connections_that_are_held_are_cut_off(besieged: PrivateDaemon) -> None:
    with ExitStack() as stack:
        for each in zmtp.flood_connections(besieged.socket, 800):
            stack.callback(each.close)
        eventually(lambda: descriptors(besieged) < 500, "the end of most of them")


@pytest.mark.parametrize("part", [1, 1_000_000])
def test_a_message_without_end_is_cut_off(besieged: PrivateDaemon, part: int) -> None:
    taken = zmtp.flood_parts(besieged.socket, 1 << 30, part)

    assert taken < 1 << 30
    assert resident(besieged) < (2 * MEMORY_MB << 20) + (512 << 20)


def test_a_message_of_very_many_parts_is_refused(besieged: PrivateDaemon) -> None:
    many = zmtp.frame(b"", more=True) * 100_000
    with RawPeer(besieged.socket) as peer:
        peer.greet()
        peer.socket.sendall(many)
        reply = ask(peer, b"")

    assert isinstance(reply, Error)
    assert (reply.code, reply.text) == ("bad-input", "a message of several frames")


def test_nobody_gets_the_answers_of_another_by_his_name(
    besieged: PrivateDaemon,
) -> None:
    with RawPeer(besieged.socket) as owner, RawPeer(besieged.socket) as thief:
        owner.greet(zmtp.ready(b"worker-7"))
        assert isinstance(ask(owner, HELLO), Registered)
        thief.greet(zmtp.ready(b"worker-7"))
        thief.send(HELLO)

        assert ask(owner, encode(ListTasks(3, limit=1))).request == 3  # type: ignore[union-attr]  # a list
        thief.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            thief.receive_frame()


def test_claimed_routing_ids_are_of_no_use(besieged: PrivateDaemon) -> None:
    # the ids that libzmq would give to the next connections, were they foreseeable
    with ExitStack() as stack:
        for number in range(100):
            peer = stack.enter_context(RawPeer(besieged.socket))
            claimed = struct.pack(">BI", 0, 0x6B8B4567 + number)
            with suppress(ConnectionError):
                peer.greet(zmtp.ready(claimed))
        for _ in range(100):
            newcomer = stack.enter_context(RawPeer(besieged.socket))
            newcomer.greet()
            assert isinstance(ask(newcomer, HELLO), Registered)


def test_what_a_peer_says_of_itself_is_not_believed(besieged: PrivateDaemon) -> None:
    forged = b"".join(
        zmtp.metadata(name, value)
        for name, value in (
            (b"User-Id", b"4242"),
            (b"Peer-Address", b"localhost:4242:4242:1"),
            (b"__fd", b"0"),
        )
    )
    with RawPeer(besieged.socket) as peer:
        peer.greet(zmtp.ready(extra=forged))
        listed = ask(peer, encode(ListTasks(1)))

    assert isinstance(listed, TaskList)
    # another user would see none of the tasks of ours
    assert listed.tasks


def test_who_greets_without_end_takes_no_descriptors(besieged: PrivateDaemon) -> None:
    before = descriptors(besieged)
    with RawPeer(besieged.socket) as peer:
        peer.greet()
        for number in range(2 * DESCRIPTORS):
            hello = Register("worker", worker=f"w{number}", own=True)
            assert isinstance(ask(peer, encode(hello)), Registered)
            peer.send(encode(Policies(1)))
            # a connection is one worker's: the one before is not there any more
            assert isinstance(decode_from_daemon(peer.receive_frame()), PolicyInfo)
        assert descriptors(besieged) < before + 16


def test_peers_that_say_nothing_are_let_go(besieged: PrivateDaemon) -> None:
    openings = (b"", zmtp.GREETING[:12], zmtp.GREETING)
    with ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(besieged.socket)) for _ in openings]
        for peer, opening in zip(peers, openings, strict=True):
            peer.socket.sendall(opening)

        assert all(peer.is_cut_off() for peer in peers)


@pytest.mark.parametrize("length", [(1 << 20) + 1, 1 << 33, (1 << 63) - 1])
def test_giant_frames_are_not_waited_for(besieged: PrivateDaemon, length: int) -> None:
    with RawPeer(besieged.socket) as peer:
        peer.greet()
        peer.socket.sendall(b"\x02" + struct.pack(">Q", length) + b"x" * 100)

        assert peer.is_cut_off()


def test_who_does_not_read_is_told_that_he_lags(besieged: PrivateDaemon) -> None:
    long = "t" * 1024  # so that the kernel does not keep many of the changes
    spec = TaskSpec("app", type=long, hold=True)
    watch = encode(Subscribe(1))
    with zmtp.deaf(besieged.socket, watch) as deaf, RawPeer(besieged.socket) as asker:
        asker.greet()
        # else hetd may take the other one's message first
        assert decode_from_daemon(deaf.receive_frame()) == Done(1)
        submitted = ask(asker, encode(Submit(1, [spec])))
        assert isinstance(submitted, Submitted)
        for number in range(CHANGES):
            changed = ask(
                asker, encode(Amend(number, submitted.ids, priority=number % 1000))
            )
            assert isinstance(changed, Done)

        told = 0
        while isinstance(
            heard := decode_from_daemon(deaf.receive_frame()), TaskChanged
        ):
            told += 1
        assert isinstance(heard, Lagged)
        # with its submission; each is an order of a user's, and what came of it
        assert told + heard.dropped == 2 * (CHANGES + 1)
        # and from now on it is told again
        ask(asker, encode(Amend(1, submitted.ids, priority=-1)))
        assert isinstance(decode_from_daemon(deaf.receive_frame()), TaskChanged)


def test_unread_answers_do_not_fill_the_memory(besieged: PrivateDaemon) -> None:
    spec = TaskSpec("app", {"data": "x" * 900_000}, hold=True)
    with RawPeer(besieged.socket) as peer:
        peer.greet()
        reply = ask(peer, encode(Submit(1, [spec])))
        assert isinstance(reply, Submitted)
        listing = encode(ListTasks(2, ids=reply.ids, detail=True))
        with suppress(ConnectionError):
            for _ in range(1000):  # a gigabyte of answers
                peer.send(listing)
            assert peer.is_cut_off()


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv to be another user",
)
def test_another_user_is_kept_out(besieged: PrivateDaemon) -> None:
    program = (
        "import sys\n"
        "from libtask.endpoint import probe\n"
        "from pathlib import Path\n"
        "probe(Path(sys.argv[1]))\n"
    )
    stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*stranger, sys.executable, "-c", program, str(besieged.socket)]

    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert done.returncode == 1
    assert "PermissionError" in done.stderr or "no permission" in done.stderr
