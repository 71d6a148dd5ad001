"""Maps over many arguments: the first tasks run while others are described."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from libtask.client.asynchronous import AsyncClient
from libtask.client.batches import BATCH
from libtask.client.client import Selection
from libtask.errors import NotAllowedError
from libtask.messages import ENDED
from system.private_daemon import PATIENCE, RESOURCES, SETTINGS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon


def _more_once_one_has_completed(daemon: PrivateDaemon, name: str) -> Iterator[int]:
    """Yield a batch of arguments, and more once the call of one of them has completed."""
    yield from range(BATCH)
    chosen = Selection(name=name, states=("completed",), limit=1)
    eventually(lambda: daemon.client.tasks(chosen), "a completed call")
    yield from range(BATCH, BATCH + 100)


def test_calls_run_while_arguments_are_taken(daemon: PrivateDaemon) -> None:
    arguments = _more_once_one_has_completed(daemon, "early")

    found = daemon.client.map(lambda x: 2 * x, arguments, name="early", at_once=2)

    assert list(found) == list(range(0, 2 * BATCH + 200, 2))


def test_calls_of_the_asyncio_client_run_while_arguments_are_taken(
    daemon: PrivateDaemon,
) -> None:
    arguments = _more_once_one_has_completed(daemon, "soon")

    async def work() -> list[int]:
        async with AsyncClient(daemon.socket) as client:
            return [each async for each in client.map(abs, arguments, name="soon")]

    found = asyncio.run(asyncio.wait_for(work(), PATIENCE))
    assert found == list(range(BATCH + 100))


@pytest.mark.usefixtures("full_batches")
def test_what_a_later_argument_raises_cancels_the_tasks_before(
    daemon: PrivateDaemon,
) -> None:
    name = f"broken {uuid.uuid4()}"

    def arguments() -> Iterator[int]:
        yield from range(BATCH)
        raise KeyError("the next one")

    with pytest.raises(KeyError, match="the next one"):
        daemon.client.map(abs, arguments(), name=name, hold=True)

    found = _ended(daemon, name)
    assert [info.state for info in found] == ["cancelled"] * BATCH


@pytest.mark.usefixtures("full_batches")
def test_a_refused_batch_cancels_those_before_but_with_a_key_they_stay(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    limits = f"[limits]\ntasks = {BATCH + 100}\n"
    daemon = private_daemon(SETTINGS + limits + RESOURCES)
    many = range(BATCH + 200)

    with pytest.raises(NotAllowedError, match=f"and have {BATCH}: no room for 200"):
        daemon.client.map(abs, many, name="refused", hold=True)
    assert {info.state for info in _ended(daemon, "refused")} == {"cancelled"}

    with pytest.raises(NotAllowedError, match="no room for 200"):
        daemon.client.map(abs, many, name="kept", hold=True, key="kept")
    kept = daemon.client.tasks(Selection(name="kept"))
    assert [info.state for info in kept] == ["held"] * BATCH

    daemon.client.cancel(*(info.id for info in kept[:200]))
    eventually(lambda: len(_unfinished(daemon)) == BATCH - 200, "room")
    found = daemon.client.map(abs, many, name="kept", hold=True, key="kept")
    assert daemon.client.count(Selection(name="kept")) == BATCH + 200
    found.close()  # type: ignore[attr-defined]  # a generator


def _ended(daemon: PrivateDaemon, name: str) -> list[TaskInfo]:
    """Wait until all tasks with a name have ended; return them."""

    def look() -> list[TaskInfo] | None:
        found = daemon.client.tasks(Selection(name=name))
        return found if all(info.state in ENDED for info in found) else None

    return eventually(look, "the end of all of them")


def _unfinished(daemon: PrivateDaemon) -> list[TaskInfo]:
    found = daemon.client.tasks(Selection(name="kept"))
    return [info for info in found if info.state not in ENDED]
