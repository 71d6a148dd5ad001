"""Metrics of a pool for Prometheus, read from its broker and nodes at each scrape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from hetctl.pool.gathering import nodes_of
from hetpool.jobs import ENDED, JobState
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from hetctl.pool.gathering import NodeView
    from hetpool.client.pool import Pool

LIVE = tuple(state for state in get_args(JobState) if state not in ENDED)
UP = "Whether the pool's scheduler answers."
DEVICE = ("node", "resource", "kind", "emulated")


class PoolCollector(Collector):
    """Reads the pool at each scrape; gives `hetpool_up 0` if it does not answer.

    Args:
        ask: connects to the pool, at the first scrape and after a failure: a connection
            takes a second.

    """

    def __init__(self, ask: Callable[[], Pool]) -> None:
        self._ask = ask
        self._pool: Pool | None = None

    def collect(self) -> Iterator[Metric]:
        try:
            if self._pool is None:
                self._pool = self._ask()
            views = nodes_of(self._pool)
            jobs = self._pool.tasks()
        except HetError:
            self._give_up()
            yield GaugeMetricFamily("hetpool_up", UP, value=0)
            return
        yield GaugeMetricFamily("hetpool_up", UP, value=1)
        yield from _of_tasks(
            Counter[str](job.state for job in jobs),
            Counter(job.node for job in jobs if job.node),
        )
        yield from _of_nodes(views)
        yield from _of_devices(views)

    def _give_up(self) -> None:
        """Close a connection that failed."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def registry_of(ask: Callable[[], Pool]) -> CollectorRegistry:
    """Return a registry with only the pool's metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Described(ask))
    return registry


class _Described(PoolCollector):
    """A collector that is not asked for figures when it is registered."""

    def describe(self) -> Sequence[Metric]:
        return [GaugeMetricFamily("hetpool_up", UP)]


def _of_tasks(states: Counter[str], places: Counter[str]) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("hetpool_tasks", "Unfinished tasks.", labels=["state"])
    for state in LIVE:
        tasks.add_metric([state], states.get(state, 0))
    yield tasks
    by_node = GaugeMetricFamily(
        "hetpool_node_tasks", "Unfinished tasks by node.", labels=["node"]
    )
    for node, count in sorted(places.items()):
        by_node.add_metric([node], count)
    yield by_node


def _of_nodes(views: Sequence[NodeView]) -> Iterator[Metric]:
    gauges: dict[str, tuple[str, Callable[[NodeView], float | None]]] = {
        "hetpool_node_up": (
            "Whether the node is connected.",
            lambda view: float(view.node.present),
        ),
        "hetpool_node_draining": (
            "Whether the node takes no further tasks.",
            lambda view: float(view.node.draining),
        ),
        "hetpool_node_ingress_bytes_per_second": (
            "Rate at which the node receives files, measured.",
            lambda view: view.node.inward,
        ),
        "hetpool_node_egress_bytes_per_second": (
            "Rate at which the node sends files, measured.",
            lambda view: view.node.egress,
        ),
    }
    for name, (text, value) in gauges.items():
        gauge = GaugeMetricFamily(name, text, labels=["node"])
        for view in views:
            figure = value(view)
            if figure is not None:
                gauge.add_metric([view.node.name], figure)
        yield gauge
    versions = InfoMetricFamily(
        "hetpool_node", "Versions on the node.", labels=["node"]
    )
    for view in views:
        if view.facts is not None:
            versions.add_metric([view.node.name], view.facts.versions)
    yield versions


def _of_devices(views: Sequence[NodeView]) -> Iterator[Metric]:
    running = GaugeMetricFamily(
        "hetpool_resource_running", "Tasks on the node's resource.", labels=DEVICE
    )
    queued = GaugeMetricFamily(
        "hetpool_resource_queued", "Tasks that wait for it.", labels=DEVICE
    )
    for view in views:
        for each in view.facts.devices if view.facts is not None else []:
            spec = each.spec
            labels = [view.node.name, spec.name, spec.kind, str(spec.emulated).lower()]
            running.add_metric(labels, len(each.running))
            queued.add_metric(labels, each.queued)
    yield running
    yield queued
