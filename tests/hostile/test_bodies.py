"""Hostile messages before the daemon's decoder and desks, in this process."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from libtask import messages as m
from libtask.errors import BugError
from torture.bodies import USERS, WORKERS, Desk, fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = int(os.environ.get("HETD_FUZZ_BODIES", "8000"))
SEED = int(os.environ.get("HETD_FUZZ_SEED", "1"))
USER = USERS[0]


@pytest.fixture
def desk(memory_folder: Path) -> Iterator[Desk]:
    made = Desk(memory_folder)
    yield made
    made.close()


@pytest.mark.timeout(120 + CASES // 1000)
def test_hostile_messages_are_answered_and_change_nothing_wrongly(
    memory_folder: Path,
) -> None:
    found = fuzz(memory_folder, CASES, SEED)

    assert found.bugs == []
    assert found.cases == CASES
    # and the cases were worth something
    reached = {"Submitted", "Run", "Stage", "TaskList", "Explained", "Abort", "Done"}
    refused = {"bad-input", "not-found", "not-allowed", "conflict", "expired"}
    assert reached | {f"Error {code}" for code in refused} <= set(found.answers)


# ---------------------------------------------------------------- what was found

HUGE = (1 << 63) - 1
FINDINGS: list[tuple[str, dict[str, Any]]] = [
    ("client", {"t": "ListTasks", "request": 1, "ids": [HUGE]}),
    ("client", {"t": "ListTasks", "request": 1, "ids": [1 << 63]}),
    ("client", {"t": "ListTasks", "request": 1, "limit": HUGE}),
    ("client", {"t": "ListTasks", "request": 1, "before": -(1 << 63)}),
    ("client", {"t": "ListTasks", "request": 1, "before": HUGE}),
    ("client", {"t": "Explain", "request": 1, "id": -(1 << 63)}),
    ("client", {"t": "Control", "request": 1, "verb": "cancel", "ids": [HUGE]}),
    ("client", {"t": "Control", "request": 1, "verb": "park", "ids": [HUGE]}),
    ("client", {"t": "Control", "request": 1, "verb": "park", "ids": [1] * 9_000}),
    ("client", {"t": "Subscribe", "request": 1, "name": "*a" * 127}),
    ("client", {"t": "Subscribe", "request": 1, "name": "[" * 256}),
    ("client", {"t": "Subscribe", "request": 1, "name": "x" * 300}),
    ("client", {"t": "Subscribe", "request": 1, "ids": [HUGE, -HUGE], "add": True}),
    ("client", {"t": "Subscribe", "request": 1, "ids": [], "resources": True}),
    ("client", {"t": "Renew", "request": 1, "lease": "x" * 300}),
    ("client", {"t": "Renew", "request": HUGE, "lease": "\x00/\n"}),
    (
        "client",
        {"t": "Submit", "request": 1, "tasks": [{"app": "a", "lease_s": math.nan}]},
    ),
    (
        "client",
        {"t": "Submit", "request": 1, "tasks": [{"app": "a", "lease_s": 1e300}]},
    ),
    (
        "client",
        {"t": "Submit", "request": 1, "tasks": [{"app": "a", "lease_s": 1e-300}]},
    ),
    ("client", {"t": "Migrate", "request": 1, "id": HUGE, "resource": "cpu"}),
    ("client", {"t": "Amend", "request": 1, "ids": [1], "deadline_s": 1e300}),
    ("client", {"t": "Amend", "request": 1, "ids": [1], "deadline_s": math.nan}),
    ("client", {"t": "Submit", "request": 1, "tasks": [{"app": "a", "work": 1e300}]}),
    (
        "client",
        {"t": "Submit", "request": 1, "tasks": [{"app": "a", "work": math.nan}]},
    ),
    ("client", {"t": "Submit", "request": 1, "tasks": [{"app": "a", "after": [HUGE]}]}),
]


@pytest.mark.parametrize(("role", "plain"), FINDINGS)
def test_a_finding_stays_harmless(desk: Desk, role: str, plain: dict[str, Any]) -> None:
    desk.say(USER, m.Submit(1, [m.TaskSpec("app")]))
    desk.put(USER, role, msgpack.packb(plain))

    desk.loop.turn([])

    assert desk.inlet.answers["Error bug"] == 0
    desk.runtime.scheduler.check()


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 1e300])
def test_a_worker_cannot_report_impossible_durations(
    desk: Desk, seconds: float
) -> None:
    desk.say(USER, m.Submit(1, [m.TaskSpec("app")]))
    (page,) = desk.runtime.journal.live.values()
    (role,) = (each for each in WORKERS if desk.tasks_of(USER, each))
    report = {
        "t": "Progress",
        "task": page.id,
        "epoch": page.runtime.epoch,
        "checkpoint": {},
    }
    more = {"seconds": seconds, "iterations": 1}
    desk.put(USER, role, msgpack.packb(report | more))

    desk.loop.turn([])

    assert desk.inlet.answers["Error bad-input"] == 1
    assert desk.inlet.answers["Error bug"] == 0


# ---------------------------------------------------------------- bugs of our own


def _broken_by(monkeypatch: pytest.MonkeyPatch, desk: Desk, harm: Any) -> None:
    def fail(*_: Any) -> None:
        harm()
        raise KeyError("a bug")

    monkeypatch.setitem(desk.loop.requests._service._handlers, m.Devices, fail)


def test_one_request_fails_by_a_bug_and_the_others_do_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _broken_by(monkeypatch, desk, lambda: None)

    desk.say(USER, m.Devices(1))
    desk.say(USER, m.Policies(2))
    desk.loop.finish()

    assert desk.inlet.answers["Error bug"] == 1
    assert desk.inlet.answers["PolicyInfo"] == 1


def test_a_broken_state_ends_the_daemon(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say(USER, m.Submit(1, [m.TaskSpec("app")]))
    _broken_by(monkeypatch, desk, desk.runtime.journal.live.clear)

    with pytest.raises(BugError, match=r"scheduler and journal differ about tasks \[1"):
        desk.say(USER, m.Devices(1))
