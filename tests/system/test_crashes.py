"""Tasks whose worker dies on one resource complete on another, in real processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import TaskFailedError
from libtask.messages import Sample
from libtask.processes import is_alive
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually
from system.terminal import Terminal
from system.test_disobedience import Rebel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from system.private_daemon import PrivateDaemon

    Start = Callable[..., PrivateDaemon]
    Submit = Callable[..., Rebel]

QUICK = "setup_limit_s = 1.0\n" + SETTINGS + RESOURCES
"""Little patience with a task that reaches no checkpoint at all."""
ON_CPU: dict[str, Any] = {"deed_at": 0, "deed_on": "cpu", "total_strips": 3}
"""Misbehaves in its first strip, on the CPU: where tasks go first whom all fit alike."""
BOTH = ["cpu", "gpu0"]


@pytest.fixture
def node(private_daemon: Start) -> PrivateDaemon:
    return private_daemon(QUICK)


@pytest.fixture
def submit(node: PrivateDaemon, tmp_path: Path) -> Submit:
    """Submit tasks that misbehave in their first strip."""
    folders = (tmp_path / f"task{number}" for number in range(100))

    def start(**params: Any) -> Rebel:
        return Rebel(node, next(folders), **{**ON_CPU, "resources": BOTH, **params})

    return start


def _prefer_cpu(node: PrivateDaemon, task: int) -> None:
    """Have tasks of this type expected to be quicker on the CPU."""
    kind = node.info(task).type
    node.client.learn([Sample(kind, "cpu", 1.0), Sample(kind, "gpu0", 9.0)])


def _ran_on(task: Rebel) -> list[str]:
    return list(dict.fromkeys(name for _, name, _ in task.trace()))


@pytest.mark.parametrize(
    ("deed", "cause", "reason"),
    [
        ("abort", "crash", "killed by signal 6 (SIGABRT)"),
        ("kill", "killed", "killed by signal 9 (SIGKILL)"),
        ("exit-1", "crash", "exit status 1"),
        ("hang", "hang", "no strip was finished in 1 s"),
        ("program", "program", "does not compile: line 3"),
    ],
)
def test_what_crashes_on_one_resource_completes_on_another(
    node: PrivateDaemon, submit: Submit, deed: str, cause: str, reason: str
) -> None:
    task = submit(deed=deed)

    assert task.handle.result(PATIENCE) == 3

    assert _ran_on(task) == ["cpu", "gpu0"]
    assert not is_alive(task.pids()[0]) or deed == "program"
    assert node.info(task.id).attempts == 0
    (pair,) = node.client.avoided()
    assert (pair.resource, pair.cause, pair.failures) == ("cpu", cause, 1)
    assert reason in pair.reason

    again = submit(deed=deed)
    assert again.handle.result(PATIENCE) == 3
    assert _ran_on(again) == ["gpu0"], "not even tried"


def test_where_it_may_run_nowhere_else_it_fails_after_one_attempt(
    node: PrivateDaemon, submit: Submit
) -> None:
    for _ in range(2):
        task = submit(deed="abort", resources=["cpu"])
        with pytest.raises(TaskFailedError, match=r"signal 6 \(SIGABRT\)"):
            task.handle.result(PATIENCE)
        assert len(task.pids()) == 1


def test_what_crashes_everywhere_fails_and_names_each_resource(submit: Submit) -> None:
    task = submit(deed="abort", deed_on="", resources=["cpu", "gpu0", "fpga0"])

    with pytest.raises(TaskFailedError) as raised:
        task.handle.result(PATIENCE)

    assert set(_ran_on(task)) == {"cpu", "gpu0", "fpga0"}
    assert len(task.pids()) == 3
    assert str(raised.value).count("signal 6 (SIGABRT)") == 3
    assert all(f"{name}: " in str(raised.value) for name in _ran_on(task))


def test_it_goes_on_elsewhere_from_its_snapshot(
    node: PrivateDaemon, submit: Submit
) -> None:
    task = submit(
        deed="abort",
        deed_at=40,
        total_strips=60,
        pace=0.02,
        resources=["gpu0"],
        deed_on="",
    )
    eventually(lambda: len(task.trace()) > 10, "some strips")
    node.client.snapshot(task.id)
    eventually(lambda: node.info(task.id).snapshot is not None, "a snapshot")
    node.client.migrate(task.id, "cpu")

    with pytest.raises(TaskFailedError):
        task.handle.result(PATIENCE)

    first = [strip for strip, name, _ in task.trace() if name == "cpu"]
    assert first[0] > 10


def test_it_is_shown_kept_over_restarts_and_forgotten(
    node: PrivateDaemon, submit: Submit
) -> None:
    submit(deed="abort").handle.result(PATIENCE)
    node.restart()
    hetctl = Terminal(node)

    held = submit(deed="hang", deed_on="gpu", times=1)
    explained = json.loads(hetctl("explain", str(held.id), "--json"))
    held.handle.cancel()
    notes = {each["resource"]: each["note"] for each in explained["prospects"]}
    devices = json.loads(hetctl("devices", "--json"))["devices"]
    models = json.loads(hetctl("models", "list", "--json"))["avoided"]

    assert "avoided for another" in notes["cpu"]
    assert "SIGABRT" in notes["cpu"]
    assert [len(each["avoided"]) for each in devices] == [1, 0, 0]
    assert models == devices[0]["avoided"]
    assert (models[0]["state"], models[0]["failures"]) == ("open", 1)
    assert "Disobedient (uid:" in hetctl("devices")
    assert "avoids it until" in hetctl("models", "list")
    forgotten = hetctl("models", "forget", "disobedient:Disobedient")
    assert "may use cpu again" in forgotten
    assert node.client.avoided() == []


def test_one_task_tries_it_after_a_while_and_then_all_may(
    private_daemon: Start, tmp_path: Path
) -> None:
    node = private_daemon("avoid_s = 0.2\n" + QUICK)
    first = Rebel(node, tmp_path / "first", deed="abort", **ON_CPU, resources=BOTH)
    first.handle.result(PATIENCE)
    assert _ran_on(first) == ["cpu", "gpu0"]
    _prefer_cpu(node, first.id)
    eventually(lambda: node.client.avoided()[0].on_trial, "the time of the trial")

    second = Rebel(node, tmp_path / "second", total_strips=3, resources=BOTH)

    assert second.handle.result(PATIENCE) == 3
    assert _ran_on(second) == ["cpu"]
    assert node.client.avoided() == []


def test_a_new_version_of_the_program_is_tried_at_once(
    private_daemon: Start, tmp_path: Path
) -> None:
    node = private_daemon(QUICK)
    app = tmp_path / "app.py"
    text = (
        "import os\n"
        "from dataclasses import dataclass\n"
        "from libtask import Task\n"
        "@dataclass\n"
        "class App(Task):\n"
        "    def save(self, checkpoint): return None\n"
        "    def total(self): return 1\n"
        "@App.on('cpu')\n"
        "@App.on('gpu')\n"
        "def app(task, device, checkpoint):\n"
        "    if device.spec.kind == 'cpu': BODY\n"
        "    for _ in checkpoint.strips(): yield\n"
    )
    places = []
    for body in ("os.abort()", "os.abort()", "pass"):
        app.write_text(text.replace("BODY", body), encoding="utf-8")
        handle = node.client.submit(f"{app}:App", {}, resources=BOTH)
        handle.result(PATIENCE)
        _prefer_cpu(node, handle.id)
        places.append([each.resource for each in node.info(handle.id).segments])

    assert places == [["cpu", "gpu0"], ["gpu0"], ["cpu"]]
