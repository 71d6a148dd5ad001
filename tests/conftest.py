"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import gc
import math
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from builders import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# That a busy machine makes up values slowly is no fault of what is tested.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")

# A shell that runs the tests in the background ignores Ctrl-C for all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


FOLDERS = ["hardware", "hostile", "simulated", "sim", "pool", "system", "property"]
"""Those with long files, in the order in which they run; the others come after them."""


WITH_PROCESSES = ["hardware", "hostile", "pool", "system"]
"""Those whose tests run daemons, workers and drivers, all on the processors at hand."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let long files begin first: one that begins last keeps a single processor busy.

    A failed test of several processes runs once more: what other programs of the machine do
    meanwhile may exceed any deadline. The summary lists it under RERUN.
    """
    ranks = {folder: rank for rank, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: ranks.get(_folder(item), len(ranks)))
    if items and items[0].config.pluginmanager.has_plugin("rerunfailures"):
        for item in items:
            if _folder(item) in WITH_PROCESSES:
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    """Leave what was collected out of collections of garbage.

    Going through all modules and tests again and again took a tenth of the time of unit tests.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests on network namespaces ran: a machine may allow none."""
    reports = [
        (outcome, report)
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.getreports(outcome)
        if "namespaces" in report.keywords and report.when != "teardown"
    ]
    ran = {report.nodeid for outcome, report in reports if report.when == "call"}
    known = {report.nodeid for _, report in reports}
    if known:
        terminalreporter.write_line(f"pool-netns: {len(ran)} of {len(known)} ran")


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture
def full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no batch of tasks early, however slow the machine is."""
    monkeypatch.setattr("libtask.client.client.LINGER_S", math.inf)


@pytest.fixture
def a_scheduler() -> Iterator[Callable[..., Harness]]:
    """Make schedulers (see `Harness`) that are checked after every event and at the end."""
    made: list[Harness] = []

    def make(*args: Any, **kwargs: Any) -> Harness:
        made.append(Harness(*args, **kwargs))
        return made[-1]

    yield make
    for harness in made:
        harness.scheduler.check()
