"""Metrics of a real daemon, read by Prometheus's own parser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from system.private_daemon import eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from system.private_daemon import PrivateDaemon

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "docs" / "grafana" / "hetd.json"
RUNS = {"seconds": {"cpu": 0.2}, "strips": 2}
METERED = """
policy = "affinity"

[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
busy_watts = 100.0
idle_watts = 10.0
"""


def samples(text: str) -> dict[tuple[str, str], float]:
    """Parse what was scraped: (name, labels as text) -> value."""
    return {
        (each.name, " ".join(sorted(each.labels.values()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_the_figures_are_what_happened(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(METERED)
    ended = [daemon.client.submit("synthetic", RUNS) for _ in range(3)]
    held = daemon.client.submit("synthetic", RUNS, hold=True)
    gone = daemon.client.submit("synthetic", RUNS, hold=True)
    gone.cancel()
    for handle in ended:
        handle.result(60)
    ran = sum(segment_time(daemon.info(each.id)) for each in ended)

    seen = samples(Terminal(daemon)("metrics"))

    assert seen["hetd_up", ""] == 1
    assert seen["hetd_tasks_ended_total", "completed"] == 3
    assert seen["hetd_tasks_ended_total", "cancelled"] == 1
    assert seen["hetd_tasks", "held"] == 1
    assert seen["hetd_tasks", "running"] == 0
    assert seen["hetd_task_changes_total", "dispatched"] == 3
    assert seen["hetd_resource_slots", "cpu cpu false"] == 2
    busy = seen["hetd_resource_busy_seconds_total", "cpu cpu false"]
    assert busy == pytest.approx(ran, rel=0.01)
    assert seen["hetd_resource_busy_joules_total", "cpu cpu false modelled"] > 0
    assert seen["hetd_commits_total", ""] >= 3
    assert seen["hetd_scheduler_events_total", ""] >= 8
    assert held.info().state == "held"


def segment_time(info: Any) -> float:
    return float(sum(each.finish - each.start for each in info.segments))


def test_sums_only_grow(daemon: PrivateDaemon, hetctl: Terminal) -> None:
    before = samples(hetctl("metrics"))
    daemon.client.submit("synthetic", RUNS).result(60)
    after = samples(hetctl("metrics"))

    sums = [key for key in before if key[0].endswith("_total")]
    assert len(sums) > 10
    assert all(after[key] >= before[key] for key in sums)


def test_a_text_file_is_written_also_of_a_daemon_that_is_gone(
    private_daemon: Callable[..., PrivateDaemon], tmp_path: Path
) -> None:
    daemon = private_daemon()
    path = tmp_path / "hetd.prom"
    hetctl = Terminal(daemon)
    hetctl("metrics", "--textfile", str(path))
    up = samples(path.read_text())

    daemon.kill9()
    hetctl("metrics", "--textfile", str(path))
    down = samples(path.read_text())

    assert up["hetd_up", ""] == 1
    assert down == {("hetd_up", ""): 0.0}
    hetctl("metrics", status=3)
    assert [each.name for each in tmp_path.iterdir()] == ["hetd.prom"]


@pytest.fixture
def served(daemon: PrivateDaemon) -> Iterator[str]:
    """Serve a daemon's metrics; gives the address."""
    command = [sys.executable, "-m", "hetctl", "metrics", "--listen", "0"]
    with subprocess.Popen(
        [*command, "--socket", str(daemon.socket)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        yield re.search(r"http://127\.0\.0\.1:\d+/metrics", line)[0]  # type: ignore[index]  # fails the test where there is none
        process.terminate()


def test_a_port_serves_them_anew_at_each_scrape(
    daemon: PrivateDaemon, served: str
) -> None:
    def completed() -> float:
        with urlopen(served, timeout=30) as page:  # noqa: S310  our own, on loopback
            return samples(page.read().decode())["hetd_tasks_ended_total", "completed"]

    before = completed()
    daemon.client.submit("synthetic", RUNS).result(60)

    eventually(lambda: completed() == before + 1, "the task that ended")


def test_every_metric_of_the_dashboard_is_there(
    daemon: PrivateDaemon, hetctl: Terminal
) -> None:
    daemon.client.submit("synthetic", RUNS).result(60)
    known = {name for name, _ in samples(hetctl("metrics"))}
    text = json.loads(DASHBOARD.read_text())
    expressions = [
        target["expr"] for panel in text["panels"] for target in panel["targets"]
    ]

    asked = {name for each in expressions for name in re.findall(r"hetd_\w+", each)}

    assert len(asked) > 8
    assert asked - known == set()
