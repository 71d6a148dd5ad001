"""The page's server: on loopback only, with a secret in the address, for one host name.

Every account of the machine can reach a port on loopback. The secret in the address
grants the view of the user who started the server. Requests with another `Host` are
refused, which stops DNS rebinding. Orders are refused unless the server was started with
`--control`.
"""

from __future__ import annotations

import hmac
import re
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from hetctl.bounded_server import LOOPBACK, BoundedServer
from hetctl.options import connect
from hetctl.views.explanation import explanation_text
from hetctl.web.state import State
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    NotAllowedError,
    NotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from libtask.client.client import Client

TYPES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
"""Last part of the address -> file, type."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Content policy: resources that the page may load, and a ban on framing it."""
MOST_BODY = 4096
LENGTH = re.compile("[0-9]{1,9}")
EXPLAIN = re.compile("explain/([0-9]{1,18})")
STATUS = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (NotAllowedError, HTTPStatus.FORBIDDEN),
    (InputError, HTTPStatus.BAD_REQUEST),
    (DaemonUnreachableError, HTTPStatus.BAD_GATEWAY),
)
"""HTTP status by error; the first match counts."""


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """A request of the page: a verb for a task, or a policy."""

    verb: str
    id: int = 0
    to: str = ""


_ORDERS = msgspec.json.Decoder(Order)
"""Made before any request comes: two threads that meet a type first crash msgspec."""

VERBS: dict[str, Callable[[Client, Order], object]] = {
    "hold": lambda client, order: client.hold(order.id),
    "release": lambda client, order: client.release(order.id),
    "cancel": lambda client, order: client.cancel(order.id),
    "migrate": lambda client, order: client.migrate(order.id, order.to),
    "policy": lambda client, order: client.policy(order.to),
}


class PageServer(BoundedServer):
    """Serves the page of one daemon.

    Args:
        socket: the daemon's socket.
        port: the port on loopback; 0: any free port.
        control: whether orders are accepted.

    Raises:
        InputError: the port is taken or not allowed.

    """

    def __init__(self, socket: Path | None, port: int, *, control: bool) -> None:
        self.socket_path = socket
        self.control = control
        self.secret = secrets.token_urlsafe(24)
        self.state = State()
        self.reading = Lock()
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            raise InputError(f"port {port}: {error.strerror}") from error
        self.names = {f"{host}:{self.server_port}" for host in (LOOPBACK, "localhost")}

    @property
    def address(self) -> str:
        """The page's address, with the secret."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"


def _status_of(error: HetError) -> HTTPStatus:
    return next(
        (status for kind, status in STATUS if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    server_version = "hetctl"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(self._look)

    def do_POST(self) -> None:
        self._answer(self._execute)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Log nothing: the address contains the secret."""

    def _answer(self, work: Callable[[str], None]) -> None:
        self.close_connection = True
        secret, _, rest = self.path.lstrip("/").partition("/")
        if self.headers.get("Host") not in self.server.names:
            self._say(HTTPStatus.FORBIDDEN, "wrong host name")
        elif not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            self._say(HTTPStatus.FORBIDDEN, "wrong secret in the address")
        else:
            try:
                work(rest)
            except HetError as error:
                self._say(_status_of(error), str(error))

    def _look(self, what: str) -> None:
        if what in TYPES:
            name, kind = TYPES[what]
            self._send(
                HTTPStatus.OK, kind, files(__package__).joinpath(name).read_bytes()
            )
        elif what == "state":
            self._json(self._state())
        elif asked := EXPLAIN.fullmatch(what):
            with connect(self.server.socket_path) as client:
                self._json({"text": explanation_text(client, int(asked[1]))})
        else:
            raise NotFoundError(f"no such page: {what!r}")

    def _state(self) -> dict[str, Any]:
        with connect(self.server.socket_path) as client, self.server.reading:
            seen = self.server.state.read(client)
            policies = sorted(client.policy().available) if self.server.control else []
        return seen | {"control": self.server.control, "policies": policies}

    def _execute(self, what: str) -> None:
        if what != "order":
            raise NotFoundError(f"no such page: {what!r}")
        if not self.server.control:
            raise NotAllowedError(
                "read-only: start the server with --control to allow orders"
            )
        order = self._order()
        with connect(self.server.socket_path) as client:
            VERBS[order.verb](client, order)
        self._json({"done": order.verb})

    def _order(self) -> Order:
        length = self.headers.get("Content-Length", "")
        if not LENGTH.fullmatch(length) or int(length) > MOST_BODY:
            raise InputError(f"expected an order as JSON, at most {MOST_BODY} bytes")
        try:
            order = _ORDERS.decode(self.rfile.read(int(length)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"not an order: {error}") from error
        if order.verb not in VERBS:
            raise InputError(f"no verb {order.verb!r}; there are: {', '.join(VERBS)}")
        return order

    # ------------------------------------------------------------ answers

    def _json(self, value: object) -> None:
        self._send(HTTPStatus.OK, "application/json", msgspec.json.encode(value))

    def _say(self, status: HTTPStatus, text: str) -> None:
        body = msgspec.json.encode({"error": text})
        self._send(status, "application/json", body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
