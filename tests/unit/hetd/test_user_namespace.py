"""Users that the kernel cannot tell apart are nobody."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import zmq

from hetd.transport import router as routers
from hetd.transport.router import Router
from hetd.transport.user_namespace import our_shared_uid, shared_uid
from libtask import messages as m
from unit.scripted_daemon import PATIENCE


@pytest.mark.parametrize(
    ("uid_map", "uid"),
    [
        ("         0          0 4294967295\n", None),
        ("0 0 1000\n1000 1000 4294966295\n", None),
        ("0 1000 1\n", 65534),
        ("0 100000 65536\n", 65534),
        ("", 65534),
    ],
    ids=["all", "all in two", "one", "a container's", "none"],
)
def test_who_is_not_known_shares_a_uid(uid_map: str, uid: int | None) -> None:
    assert shared_uid(uid_map, "65534\n") == uid


def test_our_own_is_read() -> None:
    known = Path("/proc/self/uid_map").read_text().split()[-1]

    assert (our_shared_uid() is None) == (known == "4294967295")


def test_what_such_a_user_says_comes_from_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routers, "our_shared_uid", os.getuid)
    hello = m.Register("client")
    with tempfile.TemporaryDirectory(prefix="hetd-") as folder:
        router = Router(Path(folder, "s"))
        context = zmq.Context()
        peer = context.socket(zmq.DEALER)
        peer.connect(f"ipc://{router.path}")
        peer.send(m.encode(hello))
        assert router.socket.poll(int(1000 * PATIENCE))
        heard = list(router.receive())
        peer.close(linger=0)
        context.term()
        router.close()

    assert [(each.peer.uid, each.message) for each in heard] == [(-1, hello)]
