"""What the client makes of the answers to its other verbs, and its asyncio form."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from hetapps.synthetic import Synthetic
from libtask.client.asynchronous import AsyncClient
from libtask.client.client import Client, Selection
from libtask.errors import InputError, NotFoundError
from libtask.messages import Done, ListTasks, Subscribe
from unit.fake_daemon import FakeDaemon, a_change, a_task, specs

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Message


def test_listing_goes_page_by_page(client: Client, daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 251)}

    found = client.tasks(Selection(detail=True))

    assert [info.id for info in found] == list(range(250, 0, -1))
    assert [each.before for each in daemon.requests(ListTasks)] == [None, 151, 51]
    assert len(client.tasks(Selection(limit=7))) == 7


def test_listing_of_many_ids_is_split(client: Client, daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 251)}

    found = client.tasks(Selection(ids=tuple(range(1, 251)), detail=True))

    assert len(found) == len({info.id for info in found}) == 250
    assert [len(each.ids) for each in daemon.requests(ListTasks)] == [100, 100, 50]


def test_one_forgotten_task_does_not_spoil_the_others(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks = {number: a_task(number, state="completed") for number in (1, 3)}

    first, second, third = client.handles([1, 2, 3])

    assert (first.wait(5), third.wait(5)) == ("completed", "completed")
    with pytest.raises(NotFoundError, match="no task 2"):
        second.result(5)
    assert daemon.requests(Subscribe)[0].ids == [1, 2, 3]


def test_missing_task(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no task 77"):
        client.show(77)


def test_refusals_become_the_matching_error(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no resource 'nowhere'"):
        client.migrate(1, "nowhere")


def test_each_verb_gets_its_answer(client: Client) -> None:
    assert client.cancel(1, 2) == [1, 2]
    assert client.hold(3) == [3]
    assert client.release(4) == [4]
    assert client.policy().name == "migration"
    assert client.policy("affinity").name == "affinity"
    assert client.models()[0].resource == "cpu"
    assert [each.spec.name for each in client.devices()] == ["cpu", "gpu0"]


def test_callback_that_asks_is_told_off_instead_of_hanging(
    client: Client, daemon: FakeDaemon
) -> None:
    told: Future[str] = Future()

    def ask(_: Future[Any]) -> None:
        try:
            client.devices()
        except RuntimeError as error:
            told.set_result(str(error))

    client.submit_specs(specs(1))[0].ended.add_done_callback(ask)
    daemon.push(a_change(1, "completed"))

    assert "callback" in told.result(5)


def test_a_number_that_no_message_can_hold_is_refused(
    client: Client, daemon: FakeDaemon
) -> None:
    huge = Synthetic(seconds={"cpu": 0.0}, strips=1 << 70)

    async def both() -> list[Any]:
        async with AsyncClient(daemon.path) as other:
            submits = [other.submit(huge), other.submit(abs, -1)]
            return await asyncio.gather(*submits, return_exceptions=True)

    with pytest.raises(InputError, match="synthetic: a whole number has more than 64"):
        client.submit(huge)
    refused, task = asyncio.run(both())
    assert "more than 64 bits" in str(refused)
    assert task.id > 0


def test_a_coroutine_cannot_refer_to_the_task_of_another_submit(
    daemon: FakeDaemon,
) -> None:
    async def both() -> list[Any]:
        async with AsyncClient(daemon.path) as client:
            submits = [client.submit(abs, -1), client.submit(abs, -2, after=[-1])]
            return await asyncio.gather(*submits, return_exceptions=True)

    _, refused = asyncio.run(both())

    assert "-1 is before the first task of the submit" in str(refused)


def test_async_form(daemon: FakeDaemon, tmp_path: Path) -> None:
    app = tmp_path / "noop.py"
    app.write_text(
        "from libtask.task import Task\n"
        "class Noop(Task): pass\n"
        "@Noop.on('cpu')\n"
        "def run(task, device, checkpoint):\n    yield\n"
    )

    def watched(message: Subscribe) -> list[Message]:
        return [Done(message.request), a_change(3, "running")]

    daemon.answers[Subscribe] = watched

    async def story() -> list[Any]:
        async with AsyncClient(daemon.path) as client:
            task = await client.submit(f"{app}:Noop")
            changes = client.watch()
            first = await anext(changes)
            daemon.push(a_change(1, "completed", result=5))
            seen = [await task.result(), first.id, len(await client.tasks())]
            await changes.aclose()
            return seen

    assert asyncio.run(story()) == [5, 3, 1]
