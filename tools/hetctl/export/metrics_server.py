"""The server of `hetctl metrics --listen`: on loopback, with a bound on connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from hetctl.bounded_server import LOOPBACK, BoundedServer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsServer(BoundedServer, WSGIServer):
    """Serves metrics in Prometheus's formats."""

    @property
    def address(self) -> str:
        """The URL of the metrics."""
        return f"http://{LOOPBACK}:{self.server_port}/metrics"


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Log nothing: scrapes come every few seconds."""


def metrics_server(registry: CollectorRegistry, port: int) -> MetricsServer:
    """Make a server of a registry's metrics.

    Args:
        registry: collected at each scrape.
        port: the port on loopback; 0: any free port.

    Raises:
        OSError: the port is taken or not allowed.

    """
    application = make_wsgi_app(registry)
    return make_server(LOOPBACK, port, application, MetricsServer, _SilentHandler)
