"""A threading HTTP server with a bound on its connections and on the time of each.

Every account of the machine can connect to a port on loopback, and each connection takes a
thread of the user who started the server. Half of the connections are kept for this user.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from http.server import HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 64
"""Further connections are closed at once."""
CONNECTION_S = 30.0
"""Seconds after which a connection is closed, however much it still sends."""
SOCKETS = Path("/proc/net/tcp")
LOCAL, REMOTE, UID, INODE = 1, 2, 7, 9
"""Columns of this table of the kernel."""


class BoundedServer(ThreadingMixIn, HTTPServer):
    """Serves each connection in a thread, as long as there are not too many."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._open: dict[Any, float] = {}
        """Connection -> when it is closed, monotonic seconds."""
        self.owner = os.getuid()
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it."""
        if not self._has_room(client_address):
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic() + CONNECTION_S
        super().process_request(request, client_address)

    def _has_room(self, client_address: Any) -> bool:
        count = len(self._open)
        if count < MOST_CONNECTIONS // 2:
            return True
        return count < MOST_CONNECTIONS and self._is_owners(client_address)

    def _is_owners(self, client_address: Any) -> bool:
        own = (_address(client_address), _address(self.server_address))
        with contextlib.suppress(OSError), SOCKETS.open() as table:
            for line in table:
                row = line.split()
                # a socket that its process has closed has no inode, and uid 0
                if (row[LOCAL], row[REMOTE]) == own and row[INODE] != "0":
                    return int(row[UID]) == self.owner
        return False

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


def _address(address: Any) -> str:
    """Return an IPv4 address as the kernel's table has it."""
    host, port = address
    number = int.from_bytes(socket.inet_aton(host), sys.byteorder)
    return f"{number:08X}:{port:04X}"
