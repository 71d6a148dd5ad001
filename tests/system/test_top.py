"""`hetctl top` on a real daemon: what it shows, and what its keys do."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import DataTable, Static

from hetctl.commands.live import drawn_screen
from hetctl.top.app import Top
from hetctl.top.dialogs import Choice, Reading
from libtask.client.client import Client, Selection
from system.private_daemon import PATIENCE
from system.terminal import HETCTL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from textual.pilot import Pilot

    from libtask.client.handles import TaskHandle
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

    Use = Callable[[Top, Pilot[None]], Awaitable[None]]

LONG = {"seconds": {"cpu": 300.0, "gpu": 300.0}, "strips": 30_000}
PAUSE = 0.02
DEAF = 'trap "" HUP; exec "$@"'


def use(daemon: PrivateDaemon, body: Use) -> None:
    """Run the screen without a terminal, of the size of the smallest one."""

    async def run() -> None:
        app = Top(daemon.socket, 0.1)
        async with app.run_test(size=(80, 24)) as pilot:
            await body(app, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], seen: Callable[[], object], what: str) -> None:
    for _ in range(int(PATIENCE / PAUSE)):
        if seen():
            return
        await pilot.pause(PAUSE)
    pytest.fail(f"not in time: {what}")


def cell(app: Top, task: TaskHandle, column: int) -> str:
    """Read a cell of a task's row; empty: there is no such row."""
    table = app.query_one("#tasks", DataTable)
    rows = [table.get_row_at(n) for n in range(table.row_count)]
    found = [row[column].plain for row in rows if row[0].plain == str(task.id)]
    return found[0] if found else ""


def state(app: Top, task: TaskHandle) -> str:
    return cell(app, task, 2)


def head(app: Top) -> str:
    return str(app.query_one("#head", Static).content)


@pytest.fixture
def running(daemon: PrivateDaemon) -> TaskHandle:
    handle = daemon.client.submit("synthetic", LONG, resources=["cpu", "gpu0"])
    daemon.await_state(handle.id, "running")
    return handle


def test_tasks_come_change_and_go(daemon: PrivateDaemon) -> None:
    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "policy affinity" in head(app), "the daemon")
        task = daemon.client.submit("synthetic", LONG)
        await until(pilot, lambda: state(app, task) == "running", "the task")
        task.cancel()
        await until(pilot, lambda: state(app, task) == "cancelled", "its end")

    use(daemon, body)


def test_keys_hold_release_and_move(daemon: PrivateDaemon, running: TaskHandle) -> None:
    first = running.info().resource
    other = "gpu0" if first == "cpu" else "cpu"

    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: state(app, running) == "running", "the task")
        await pilot.press("h")
        await until(pilot, lambda: state(app, running) == "held", "the hold")
        await pilot.press("r")
        await until(pilot, lambda: state(app, running) == "running", "the release")
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, Choice), "the question")
        names = [device.spec.name for device in app.picture.devices]
        await pilot.press(*["down"] * names.index(other), "enter")
        await until(pilot, lambda: other in cell(app, running, 3), "the move")

    use(daemon, body)


def test_a_task_is_cancelled_only_when_that_is_confirmed(
    daemon: PrivateDaemon, running: TaskHandle
) -> None:
    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: state(app, running) == "running", "the task")
        for answer in (["escape"], ["enter"]):
            await pilot.press("c")
            await until(pilot, lambda: isinstance(app.screen, Choice), "the question")
            await pilot.press(*answer)
            await until(pilot, lambda: len(app.screen_stack) == 1, "the screen")
            assert running.info().state == "running"
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, Choice), "the question")
        await pilot.press("down", "enter")
        await until(pilot, lambda: state(app, running) == "cancelled", "the end")

    use(daemon, body)


def test_the_selected_resource_is_drained(daemon: PrivateDaemon) -> None:
    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "policy affinity" in head(app), "the daemon")
        resources = app.query_one("#resources", DataTable)
        await pilot.press("shift+tab", "down")
        name = _cells(resources, 1)[0]
        await pilot.press("d")
        await until(pilot, lambda: "draining" in _cells(resources, 1), "the drain")
        await pilot.press("d")
        await until(pilot, lambda: "up" in _cells(resources, 1), "the return")
        assert (name.rstrip("*"), len(app.screen_stack)) == ("gpu0", 1)

    use(daemon, body)


def _cells(table: DataTable[Any], row: int) -> list[str]:
    return [each.plain for each in table.get_row_at(row)]


def test_the_policy_is_chosen_and_a_task_explained(
    daemon: PrivateDaemon, running: TaskHandle
) -> None:
    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: state(app, running) == "running", "the task")
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, Choice), "the policies")
        await pilot.press("down", "enter")
        await until(pilot, lambda: "work-conserving" in head(app), "the policy")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Reading), "the story")
        assert f"task {running.id} runs" in _text(app)

    use(daemon, body)


def _text(app: Any) -> str:
    return str(app.screen.query_one(Static).content)


def test_the_screen_survives_the_daemon(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    running = daemon.client.submit("synthetic", LONG, resources=["cpu"])

    async def body(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: state(app, running) == "running", "the task")
        daemon.kill9()
        await until(pilot, lambda: str(daemon.socket) in head(app), "its absence")
        daemon.start()
        await until(pilot, lambda: "1 running" in head(app), "its return")

    use(daemon, body)


def test_it_prints_and_draws_without_a_terminal(
    hetctl: Terminal, running: TaskHandle, tmp_path: Path
) -> None:
    picture = tmp_path / "top.svg"

    printed = hetctl("top", "--once")
    document = hetctl.json("top")
    hetctl("top", "--screenshot", str(picture), "--every", "0.1s")

    assert f"{running.id} " in printed
    assert running.id in [task["id"] for task in document["tasks"]]
    assert "synthetic" in picture.read_text()


def test_it_draws_no_tasks_before_it_knows_them(
    daemon: PrivateDaemon, running: TaskHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Client.tasks

    def slow(client: Client, selection: Selection | None = None) -> list[TaskInfo]:
        time.sleep(0.3)
        return tasks(client, selection)

    monkeypatch.setattr(Client, "tasks", slow)

    drawn = asyncio.run(drawn_screen(Top(daemon.socket, 0.01)))

    assert f"{running.id}" in drawn
    assert "synthetic" in drawn


def test_it_ends_with_its_terminal_although_it_ignores_hang_ups(
    daemon: PrivateDaemon,
) -> None:
    master, terminal = os.openpty()
    with subprocess.Popen(
        ["sh", "-c", DEAF, "sh", *HETCTL, "top", "--socket", str(daemon.socket)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm-256color"},
        start_new_session=True,
    ) as top:
        try:
            os.close(terminal)
            drawn = b""
            while b"policy" not in drawn:
                ready, _, _ = select.select([master], [], [], PATIENCE)
                assert ready, "nothing was drawn"
                drawn += os.read(master, 65_536)
            os.close(master)

            assert top.wait(PATIENCE) == 128 + signal.SIGHUP
        finally:
            top.kill()
