"""Output on a terminal: tables and live progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from hetctl.__main__ import main
from hetctl.waiting import _bars
from unit.fake_daemon import FakeDaemon, a_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    monkeypatch.setattr("hetctl.output.on_terminal", lambda: True)
    monkeypatch.setattr("hetctl.waiting.on_terminal", lambda: True)
    fake = FakeDaemon(tmp_path / "s")
    monkeypatch.setenv("HETD_SOCKET", str(fake.path))
    monkeypatch.setenv("COLUMNS", "120")
    yield fake
    fake.close()


def test_table(daemon: FakeDaemon) -> None:
    daemon.tasks[3] = a_task(3, state="running", resource="gpu0", reason="[odd] text")

    shown = CliRunner().invoke(main, ["list"]).stdout

    assert "gpu0 (emulated)" in shown
    assert "[odd] text" in shown  # no markup of rich's


def test_wait_ends_with_every_bar_full(daemon: FakeDaemon) -> None:
    daemon.tasks = {
        1: a_task(1, state="completed", resource="gpu0", migrations=2),
        2: a_task(2, state="failed", progress=0.25),
    }

    result = CliRunner().invoke(main, ["wait", "1-2"])

    assert result.exit_code == 10
    assert "100 %" in result.stdout
    assert "gpu0 (emulated)" in result.stdout
    assert "2 of 2 ended" in result.stdout


def test_live_wait_times_out(daemon: FakeDaemon) -> None:
    daemon.tasks[1] = a_task(1, state="running", progress=0.5)

    result = CliRunner().invoke(main, ["wait", "1", "--timeout", "10ms"])

    assert result.exit_code == 124


def test_running_tasks_come_first_where_room_is_short() -> None:
    tasks = [a_task(number, state="completed") for number in range(1, 9)]
    tasks += [a_task(9, state="running", progress=0.3)]
    console = Console(width=100)

    with console.capture() as captured:
        console.print(_bars(tasks, frozenset(), room=2))

    lines = captured.get().splitlines()
    assert lines[0].startswith("9 ")
    assert len(lines) == 3
    assert "8 of 9 ended" in lines[-1]
