"""The tables of `hetctl top`, from what is known of the node."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from textual.widgets import DataTable, Static

from hetctl.top.app import MOST_ROWS, Top
from hetctl.top.feed import Feed
from hetctl.top.picture import (
    TASK_HEADINGS,
    Picture,
    bar,
    cut,
    fitting,
    task_row,
)
from libtask.messages import (
    DeviceInfo,
    DeviceSpec,
    StatusInfo,
    TaskChanged,
    TaskInfo,
)

NOW = 1000.0


def a_task(number: int, **fields: Any) -> TaskInfo:
    return TaskInfo(
        **{
            "id": number,
            "app": "heat",
            "type": "heat/512",
            "state": "queued",
            "owner": "uid:1",
            **fields,
        }
    )


def a_status() -> StatusInfo:
    counts = {"running": 1, "queued": 2, "completed": 3, "held": 0}
    words_of_it = {"shortage", "config_file", "state", "log", "managed"}
    words_of_it |= {"command_policy", "build"}
    sums = dict.fromkeys(set(StatusInfo.__struct_fields__) - words_of_it, 0)
    words = {"version": "1", "policy": "migration", "tasks": counts, "records": {}}
    return msgspec.convert(sums | words, StatusInfo)


def a_device(**fields: Any) -> DeviceInfo:
    return DeviceInfo(DeviceSpec("gpu0", "gpu", emulated=True), **fields)


def test_live_tasks_come_first_then_the_newest_that_ended() -> None:
    picture = Picture()
    states = ("completed", "held", "queued", "running", "failed", "completed", "queued")
    picture.enter(a_task(n, state=state) for n, state in enumerate(states))

    found = [info.id for info in picture.shown("all", "", 100)]

    assert found == [3, 2, 6, 1, 5, 4, 0]
    assert [info.id for info in picture.shown("not ended", "", 100)] == [3, 2, 6, 1]
    assert [info.id for info in picture.shown("failed", "", 100)] == [4]


def test_tasks_that_failed_before_do_not_hide_one_that_ends_now() -> None:
    picture = Picture()
    picture.enter(a_task(n, state="failed") for n in range(600))
    picture.enter([a_task(600, state="cancelled")])

    assert picture.shown("all", "", 500)[0].id == 600


def test_the_search_looks_at_type_name_owner_and_state() -> None:
    picture = Picture()
    picture.enter([a_task(1, name="night run"), a_task(2, type="blur/9")])

    for text, expected in (("night", [1]), ("blur", [2]), ("uid:1", [1, 2])):
        assert [info.id for info in picture.shown("all", text, 9)] == expected


def test_a_change_is_seen_and_one_of_an_unknown_task_told() -> None:
    picture = Picture()
    picture.enter([a_task(1)])

    known = picture.change(TaskChanged(1, "running", NOW, "gpu0", progress=0.5))
    unknown = picture.change(TaskChanged(2, "queued", NOW))

    assert (known, unknown) == (True, False)
    assert (picture.tasks[1].state, picture.tasks[1].progress) == ("running", 0.5)


def test_power_and_use_come_from_two_readings() -> None:
    picture = Picture()
    first = a_device(slots=2, busy_watts=100.0, metered_s=10.0, busy_s=4.0)
    second = a_device(
        slots=2, busy_watts=100.0, metered_s=12.0, busy_s=7.0, busy_joules=240.0
    )

    picture.read(a_status(), [first])
    before = picture.resource_row(first)
    picture.read(a_status(), [second])

    assert before[5:] == ("-", "-")
    # 240 J in 2 s; 3 of 4 slot-seconds
    assert picture.resource_row(second)[5:] == ("120 W mod.", "75 %")
    assert picture.resource_row(second)[0] == "gpu0*"


def test_a_row_tells_what_is_at_risk_and_left() -> None:
    task = a_task(
        7,
        state="running",
        resource="cpu",
        destination="gpu0",
        progress=0.25,
        checkpoint_at=NOW - 2,
        at_risk=30.0,
        expected={"gpu0": 8.0, "cpu": 40.0},
        migrations=3,
    )

    row = task_row(task, NOW)

    assert row[3:9] == (
        "cpu→gpu0",
        " 25 %",
        "3",
        "2.0 s",
        "30.0 s",
        "cpu 30.0 s gpu0 6.0 s",
    )


def test_the_headline_counts() -> None:
    picture = Picture()
    picture.read(a_status(), [])

    assert picture.headline() == ("policy migration · 1 running, 2 queued, 3 completed")


def test_bars_are_as_full_as_the_share() -> None:
    assert bar(0.5) == "█████░░░░░  50 %"
    assert bar(7.0).startswith("█" * 10)


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (118, set()),
        (90, {"checkpoint", "at risk"}),
        (70, {"checkpoint", "at risk", "left"}),
        (10, set(TASK_HEADINGS) - {"id", "type", "state", "done"}),
    ],
)
def test_a_narrow_screen_leaves_columns_out(width: int, left_out: set[str]) -> None:
    task = a_task(
        7,
        type="gaussian-blur/2048",
        state="running",
        resource="gpu0",
        expected={"gpu0": 8.0, "cpu": 40.0},
        name="a long name of a task",
    )

    cells = fitting(TASK_HEADINGS, [task_row(task, NOW)], width)

    assert set(TASK_HEADINGS) - set(cells) == left_out
    assert sum(cells.values()) + 2 * len(cells) <= max(width, 50)


def test_a_cell_without_room_is_cut() -> None:
    assert cut("32 command, 33 command", 15) == "32 command, 33…"
    assert cut("32 command", 10) == "32 command"


def test_the_cursor_leaves_a_task_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feed, "run", lambda feed, told: None)

    async def use() -> None:
        app = Top(None)
        async with app.run_test(size=(80, 24)) as pilot:
            tasks = app.query_one("#tasks", DataTable)

            def selected() -> str:
                return str(tasks.get_row_at(tasks.cursor_row)[0])

            app.picture.enter(a_task(n, state="running") for n in (1, 2, 3))
            app.show()
            await pilot.press("down")
            found = [selected()]
            for ended in (2, 3, 1):
                app.picture.change(TaskChanged(ended, "completed", NOW))
                app.show()
                await pilot.pause()
                found.append(selected())
            assert found == ["2", "3", "1", "1"]
            for key in "hrmc":  # an ended task cannot be steered
                await pilot.press(key)
                assert len(app.screen_stack) == 1

    asyncio.run(use())


def test_ten_thousand_tasks_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feed, "run", lambda feed, told: None)

    async def use() -> None:
        app = Top(None)
        async with app.run_test(size=(80, 24)) as pilot:
            app.picture.read(a_status(), [a_device(running=[1])])
            app.picture.enter(a_task(n) for n in range(1, 10_001))
            app.show()
            await pilot.press("down", "down")
            app.picture.change(TaskChanged(9_000, "running", NOW, "gpu0"))
            app.show()
            await pilot.pause()
            table = app.query_one("#tasks", DataTable)
            assert table.row_count == MOST_ROWS
            assert table.get_row_at(0)[0].plain == "9000"
            # the cursor stays with its task
            assert table.get_row_at(table.cursor_row)[0].plain == "3"
            more = app.query_one("#more", Static)
            assert "500 of 10000 tasks" in str(more.content)

    asyncio.run(use())
