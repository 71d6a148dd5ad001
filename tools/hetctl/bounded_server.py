"""A threading HTTP server with a bound on its connections and on the time of each.

Every account of the machine can connect to a port on loopback, and each connection takes a
thread of the user who started the server.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 64
"""Further connections are closed at once."""
CONNECTION_S = 30.0
"""Seconds after which a connection is closed, however much it still sends."""


class BoundedServer(ThreadingMixIn, HTTPServer):
    """Serves each connection in a thread, as long as there are not too many."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open: dict[Any, float] = {}
        """Connection -> when it is closed, monotonic seconds."""
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it."""
        if len(self._open) >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic() + CONNECTION_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Interrupt connections whose time is over; their threads close them."""
        super().service_actions()
        now = time.monotonic()
        for request, due in list(self._open.items()):
            if due <= now:
                with contextlib.suppress(OSError):  # closed meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors but those of connections that were interrupted."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
