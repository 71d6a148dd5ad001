"""The server of pages and metrics: strangers may connect, but not without bound."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from threading import Thread, active_count
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from hetctl import bounded_server as module
from hetctl.bounded_server import LOOPBACK, BoundedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 30.0
MOST = 4


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/fault":
            raise ValueError("a fault of the program")
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BoundedServer]:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", MOST)
    with BoundedServer((LOOPBACK, 0), Hello) as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def said(server: BoundedServer) -> bytes:
    page = f"http://{LOOPBACK}:{server.server_port}/"
    with urlopen(page, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def connected(server: BoundedServer) -> Iterator[socket.socket]:
    """Connect, and send a part of a request."""
    address = (LOOPBACK, server.server_port)
    with socket.create_connection(address, timeout=PATIENCE_S) as made:
        made.sendall(b"GET / HTTP/1.1\r\n")
        yield made


def still_open(connection: socket.socket) -> bool:
    try:
        return not is_closed(connection)
    except TimeoutError:
        return True


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_beyond_the_bound_take_no_thread(server: BoundedServer) -> None:
    threads = active_count()
    with ExitStack() as stack:
        held = [stack.enter_context(connected(server)) for _ in range(MOST)]
        deadline = time.monotonic() + PATIENCE_S
        while active_count() < threads + MOST and time.monotonic() < deadline:
            time.sleep(0.01)

        others = [stack.enter_context(connected(server)) for _ in range(20)]

        assert all(map(is_closed, others))
        assert active_count() == threads + MOST
        held[0].sendall(b"\r\n")
        assert held[0].recv(100).startswith(b"HTTP/1.0 200")


def test_other_users_cannot_take_the_connections_of_the_owner(
    server: BoundedServer,
) -> None:
    server.owner = os.getuid() + 1
    with ExitStack() as stack:
        held = [stack.enter_context(connected(server)) for _ in range(MOST)]
        assert all(map(is_closed, held[MOST // 2 :]))

        server.owner = os.getuid()

        assert said(server) == b"hello"
        held[0].sendall(b"\r\n")
        assert held[0].recv(100).startswith(b"HTTP/1.0 200")


def test_a_peer_that_sends_for_ever_is_interrupted(
    server: BoundedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTION_S", 0.2)
    with connected(server) as slow:
        slow.settimeout(0.01)
        deadline = time.monotonic() + PATIENCE_S
        while still_open(slow) and time.monotonic() < deadline:
            with suppress(OSError):  # closed in between
                slow.sendall(b"x")

        assert not still_open(slow)
        assert said(server) == b"hello"


def test_only_errors_of_the_program_are_printed(
    server: BoundedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(server) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    address = (LOOPBACK, server.server_port)
    with socket.create_connection(address, timeout=PATIENCE_S) as made:
        made.sendall(b"GET /fault HTTP/1.1\r\n\r\n")
        assert is_closed(made)

    error = capfd.readouterr().err
    assert "a fault of the program" in error
    assert "ConnectionResetError" not in error
