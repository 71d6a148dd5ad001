"""Metrics of a daemon for Prometheus.

Each scrape reads all figures from the daemon; nothing is stored here. Counters start at
the daemon's start; `hetd_start_time_seconds` shows a restart.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from libtask.errors import HetError
from libtask.messages import ENDED, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, StatusInfo

LIVE = tuple(state for state in get_args(TaskState) if state not in ENDED)
RESOURCE = ("resource", "kind", "emulated")
STATES = ("up", "draining", "lost")


class DaemonCollector(Collector):
    """Reads the daemon at each scrape; gives `hetd_up 0` if it does not answer.

    Args:
        ask: connects to the daemon; called for each scrape.

    """

    def __init__(self, ask: Callable[[], Client]) -> None:
        self._ask = ask

    def collect(self) -> Iterator[Metric]:
        try:
            with self._ask() as client:
                status, devices = client.status(), client.devices()
        except HetError:
            yield GaugeMetricFamily("hetd_up", "Whether the daemon answers.", value=0)
            return
        yield GaugeMetricFamily("hetd_up", "Whether the daemon answers.", value=1)
        yield from _of_daemon(status)
        yield from _of_tasks(status)
        yield from _of_resources(devices)


def registry_of(ask: Callable[[], Client]) -> CollectorRegistry:
    """Return a registry with only the daemon's metrics."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(ask))
    return registry


def _of_daemon(status: StatusInfo) -> Iterator[Metric]:
    about = {"version": status.version, "policy": status.policy}
    yield InfoMetricFamily("hetd", "The daemon.", value=about)
    gauges = {
        "hetd_start_time_seconds": ("Start of the daemon, Unix time.", status.started),
        "hetd_resident_memory_bytes": ("Memory of the daemon.", status.memory_bytes),
        "hetd_jobs": (
            "Unfinished jobs: tasks with a name in common, or that depend on each other.",
            status.jobs,
        ),
        "hetd_workers": ("Running worker processes.", status.workers),
        "hetd_launchers": ("Users with a running launcher.", status.launchers),
        "hetd_watchers": ("Connections that watch tasks.", status.watchers),
        "hetd_store_has_room": (
            "Whether new tasks can be stored.",
            float(status.shortage is None),
        ),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value=value)
    sums = {
        "hetd_scheduler_events": ("Events that the scheduler handled.", status.decided),
        "hetd_scheduler_seconds": ("Time spent on decisions.", status.deciding_s),
        "hetd_commits": ("Commits of the store.", status.commits),
        "hetd_commit_seconds": ("Time spent on commits.", status.commit_s),
        "hetd_refused_messages": ("Invalid messages.", status.refused),
        "hetd_migrations": (
            "Moves of tasks between resources, counted after the first strip there.",
            status.migrations,
        ),
    }
    for name, (text, total) in sums.items():
        yield CounterMetricFamily(name, text, value=total)


def _of_tasks(status: StatusInfo) -> Iterator[Metric]:
    now = GaugeMetricFamily("hetd_tasks", "Tasks by state.", labels=["state"])
    for state in LIVE:
        now.add_metric([state], status.tasks.get(state, 0))
    yield now
    ended = CounterMetricFamily(
        "hetd_tasks_ended", "Tasks that ended, by outcome.", labels=["outcome"]
    )
    for outcome in sorted(ENDED):
        ended.add_metric([outcome], status.tasks.get(outcome, 0))
    yield ended
    changes = CounterMetricFamily(
        "hetd_task_changes", "Changes of tasks, by event.", labels=["event"]
    )
    for event, count in sorted(status.records.items()):
        changes.add_metric([event], count)
    yield changes


def _of_resources(devices: list[DeviceInfo]) -> Iterator[Metric]:
    gauges: dict[str, tuple[str, Callable[[DeviceInfo], float]]] = {
        "hetd_resource_slots": (
            "Tasks that the resource runs at once.",
            lambda d: d.slots,
        ),
        "hetd_resource_running": ("Tasks on the resource.", lambda d: len(d.running)),
        "hetd_resource_queued": (
            "Tasks that wait for the resource.",
            lambda d: d.queued,
        ),
    }
    for name, (text, value) in gauges.items():
        gauge = GaugeMetricFamily(name, text, labels=RESOURCE)
        for device in devices:
            gauge.add_metric(_labels(device), value(device))
        yield gauge
    yield _states(devices)
    yield from _times(devices)
    yield from _energy(devices)


def _states(devices: list[DeviceInfo]) -> Metric:
    text = "State of a resource: 1 for the present state."
    states = GaugeMetricFamily("hetd_resource_state", text, labels=[*RESOURCE, "state"])
    for device in devices:
        for state in STATES:
            states.add_metric([*_labels(device), state], float(device.state == state))
    return states


def _times(devices: list[DeviceInfo]) -> Iterator[Metric]:
    for name, text, read in (
        ("metered", "Time accounted for.", attrgetter("metered_s")),
        (
            "busy",
            "Time of slots with a task, summed; without attempts that failed before their first strip.",
            attrgetter("busy_s"),
        ),
    ):
        seconds = CounterMetricFamily(
            f"hetd_resource_{name}_seconds", text, labels=RESOURCE
        )
        for device in devices:
            seconds.add_metric(_labels(device), read(device))
        yield seconds


def _energy(devices: list[DeviceInfo]) -> Iterator[Metric]:
    for name, text, read in (
        ("busy", "Energy while tasks ran, joules.", attrgetter("busy_joules")),
        ("idle", "Energy without running tasks, joules.", attrgetter("idle_joules")),
    ):
        joules = CounterMetricFamily(
            f"hetd_resource_{name}_joules", text, labels=[*RESOURCE, "source"]
        )
        for device in devices:
            source = "measured" if device.measured else "modelled"
            joules.add_metric([*_labels(device), source], read(device))
        yield joules


def _labels(device: DeviceInfo) -> list[str]:
    spec = device.spec
    return [spec.name, spec.kind, str(spec.emulated).lower()]
