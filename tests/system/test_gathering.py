"""Many tasks from Python: results in order, as they end, with progress, in notebooks."""

from __future__ import annotations

import asyncio
import re
import time
import xml.etree.ElementTree as ET
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hetapps.synthetic import Synthetic
from libtask import AsyncClient, TaskFailedError, as_completed
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

QUICK, LONG = {"cpu": 0.001}, {"cpu": 600.0}


def test_map_gives_results_in_order(daemon: PrivateDaemon) -> None:
    found = list(daemon.client.map(Synthetic, [QUICK] * 5, [1, 2, 3, 4, 5]))

    assert [each["strips"] for each in found] == [1, 2, 3, 4, 5]
    named = daemon.client.map("synthetic", [QUICK] * 2, [7, 8], name="mapped")
    assert [each["strips"] for each in named] == [7, 8]
    assert [info.name for info in daemon.client.tasks()[:2]] == ["mapped"] * 2


def test_a_failure_ends_the_map_and_the_rest(daemon: PrivateDaemon) -> None:
    def call(number: int) -> None:
        time.sleep(600 if number else 0)
        raise ValueError("no luck")

    with pytest.raises(TaskFailedError, match="failed: ValueError: no luck"):
        list(daemon.client.map(call, range(3)))

    newest = [info.id for info in daemon.client.tasks()[:2]]
    for task in newest:
        assert daemon.await_state(task, *ENDED).state == "cancelled"


def test_a_map_out_of_time_raises(daemon: PrivateDaemon) -> None:
    with pytest.raises(TimeoutError):
        list(daemon.client.map(Synthetic, [LONG], [600], timeout=0.1))


def test_tasks_as_they_end(daemon: PrivateDaemon) -> None:
    client = daemon.client
    slow = client.submit(Synthetic(LONG, 6000), resources=["cpu"])
    quick = [client.submit(Synthetic(QUICK, 1)) for _ in range(3)]

    ended = as_completed([slow, *quick], timeout=PATIENCE)

    assert {next(ended).id for _ in quick} == {handle.id for handle in quick}
    slow.cancel()
    assert next(ended) is slow
    with pytest.raises(TimeoutError):
        list(as_completed([client.submit(Synthetic(LONG, 600))], timeout=0.05))


def test_progress_is_heard_of_where_that_is_wanted(daemon: PrivateDaemon) -> None:
    client = daemon.connect()
    early = client.submit(Synthetic({"cpu": 60.0}, 6000))
    client.follow_progress()
    late = client.submit(Synthetic({"cpu": 60.0}, 6000))

    for handle in (early, late):
        eventually(partial(_moves, handle), "progress")
        handle.cancel()


def _moves(handle: TaskHandle) -> bool:
    return handle.progress > 0


def test_asyncio_has_the_same(daemon: PrivateDaemon) -> None:
    async def gather() -> tuple[list[int], list[str], float]:
        async with AsyncClient(daemon.socket) as client:
            await client.follow_progress()
            mapped = client.map(Synthetic, [QUICK] * 3, [1, 2, 3])
            strips = [each["strips"] async for each in mapped]
            tasks = [await client.submit(Synthetic(QUICK, 1)) for _ in range(3)]
            ended = [task async for task in client.as_completed(tasks)]
            states = [await task.wait() for task in ended]
            return strips, states, ended[0].progress

    assert asyncio.run(gather()) == ([1, 2, 3], ["completed"] * 3, 1.0)


def test_notebooks_show_tasks_and_schedules(daemon: PrivateDaemon) -> None:
    tasks = [daemon.client.submit(Synthetic(QUICK, 2, label="<b>")) for _ in range(3)]
    for handle in tasks:
        handle.result(PATIENCE)

    shown = tasks[0]._repr_html_()
    schedule = daemon.client.schedule(*(handle.id for handle in tasks))

    assert "completed" in shown
    assert "100 %" in shown
    assert "<b>" not in shown
    drawn = schedule._repr_html_()
    (picture,) = re.findall(r"<svg.*</svg>", drawn)
    space = "{http://www.w3.org/2000/svg}"
    bars = ET.fromstring(picture).findall(f"{space}rect")  # noqa: S314  our own
    assert len(bars) == len(tasks)
    assert repr(schedule) == "<Schedule of 3 tasks, 3 ended>"
    held = daemon.client.submit(Synthetic(QUICK, 1), hold=True)
    assert "has run yet" in daemon.client.schedule(held.id)._repr_html_()
