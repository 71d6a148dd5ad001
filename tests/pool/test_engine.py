"""What the pool depends on in Dask: one test for each peculiarity, against the installed one.

The scheduler and the workers of these tests live in one event loop; the test of a restart
at the same address opens its second worker there, too.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import tempfile
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetpool.client.loop_thread import LoopThread
from hetpool.engine.client import DaskClientEngine
from hetpool.engine.scheduler import DaskSchedulerEngine
from hetpool.engine.worker import DaskWorkerEngine, agent_here
from hetpool.errors import PoolUnreachableError
from hetpool.jobs import InputFile
from hetpool.seam import EngineGoneError, Errand, ErrandCancelledError, ErrandState
from hetpool.setup.settings import EngineSettings
from libtask.errors import NotFoundError
from pool.private_pool import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]

PATIENCE_S = 60.0


class Listener:
    """A broker that only listens."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.states: list[tuple[str, ErrandState]] = []

    def node_went(self, name: str, address: str) -> None:
        self.lost.append(name)

    def errand_changed(self, key: str, state: ErrandState) -> None:
        self.states.append((key, state))


class Recorder:
    """An agent that records what is run, and can hold it."""

    def __init__(self, engine: DaskWorkerEngine) -> None:
        self.engine = engine
        self.ran: list[bytes] = []
        self.open = asyncio.Event()
        self.again = False
        self.interrupted = False
        self.left = asyncio.Event()

    async def read_input(self, content: str) -> Any:
        return np.frombuffer(content.encode(), dtype=np.uint8)


async def hold(argument: bytes, arrays: list[Any]) -> str:
    """Wait for the gate of the node; go elsewhere if it says so."""
    agent: Recorder = agent_here()
    agent.ran.append(argument)
    try:
        await agent.open.wait()
    except asyncio.CancelledError:
        agent.interrupted = True
        raise
    agent.left.set()
    if agent.again:
        raise agent.engine.put_back()
    return f"{agent.engine.name}: {b''.join(bytes(each) for each in arrays).decode()}"


class LoopPool:
    """A scheduler, its workers and a client in one loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = EngineSettings(f"tcp://127.0.0.1:{free_port()}")
        self.listener = Listener()
        self.scheduler = DaskSchedulerEngine(self.settings)
        self.client = DaskClientEngine(self.settings, 10.0)
        self.agents: dict[str, Recorder] = {}
        self.ports: dict[str, int] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        stop = self._stops[name] = asyncio.Event()
        if name == "scheduler":
            work = self.scheduler.run(self.listener, stop)
        else:
            port = self.ports.setdefault(name, free_port())
            place = (name, "127.0.0.1", port, self.folder / name)
            engine = DaskWorkerEngine(self.settings, *place)
            engine.agent = self.agents[name] = Recorder(engine)
            work = engine.run(_nothing, lambda: None, stop)
        self._tasks[name] = asyncio.ensure_future(work)

    async def stop(self, name: str) -> None:
        self._stops.pop(name).set()
        await self._tasks.pop(name)

    async def close(self) -> None:
        await self.client.close()
        for name in sorted(self._tasks):  # workers before their scheduler
            await self.stop(name)

    def is_connected(self, name: str) -> bool:
        return self.agents[name].engine._worker is not None

    def address(self, name: str) -> str:
        return self.agents[name].engine.address

    def errand(self, key: str, node: str, order: int = 0, **fields: Any) -> Errand:
        address = self.address(node) if node else ""
        return Errand(key, hold, key.encode(), address, order, **fields)


async def _echo(message: bytes) -> bytes:
    return message


async def _nothing() -> None:
    """Join nothing."""


@asynccontextmanager
async def a_pool(*names: str) -> AsyncIterator[LoopPool]:
    folder = tempfile.TemporaryDirectory(prefix="hetpool-", ignore_cleanup_errors=True)
    made = LoopPool(Path(folder.name))
    for name in ("scheduler", *names):
        made.start(name)
    try:
        await made.client.open()
        for name in names:
            await until(partial(made.is_connected, name))
        yield made
    finally:
        await made.close()
        folder.cleanup()


async def until(look: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not look():  # noqa: ASYNC110  what is looked at has no event
            await asyncio.sleep(0.01)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_an_errand_runs_where_it_is_pinned_and_nowhere_else() -> None:
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            started = await pool.client.start(
                [pool.errand(f"k{n}", "n2") for n in range(20)]
            )
            pool.agents["n2"].open.set()

            outcomes = [await each.outcome() for each in started]

            assert outcomes == ["n2: "] * 20
            assert pool.agents["n1"].ran == []

    run(story())


def test_errands_of_one_node_begin_in_their_order() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            numbers = [7, 3, 9, 1, 5, 8, 2, 6, 4, 0]
            errands = [pool.errand(f"k{n}", "n1", order=n) for n in numbers]
            await pool.client.start(errands)
            await until(lambda: len(pool.agents["n1"].ran) == 10)

            assert pool.agents["n1"].ran == [f"k{n}".encode() for n in range(10)]

    run(story())


def test_a_strict_pin_survives_a_restart_at_the_same_address() -> None:
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)

            await pool.stop("n1")
            assert pool.listener.lost == ["n1"]
            pool.start("n1")
            await until(lambda: pool.agents["n1"].ran)
            pool.agents["n1"].open.set()

            assert await started.outcome() == "n1: "
            assert pool.agents["n2"].ran == []

    run(story())


def test_an_errand_of_a_lost_node_starts_where_it_is_pinned_then() -> None:
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)
            await pool.stop("n1")
            assert pool.scheduler.knows("k")

            pool.scheduler.pin("k", pool.address("n2"))
            pool.agents["n2"].open.set()

            assert await started.outcome() == "n2: "

    run(story())


def test_an_errand_without_a_node_starts_where_it_is_pinned_although_its_client_left() -> (
    None
):
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            other = DaskClientEngine(pool.settings, 10.0)
            await other.start([pool.errand("k", "")])
            await until(lambda: ("k", ErrandState.OPEN) in pool.listener.states)
            await other.close()
            # the same errand again, as its client may send it after a lost scheduler
            (started,) = await pool.client.start([pool.errand("k", "")])
            await until(lambda: _clients_of(pool, "k") == 1)
            assert pool.agents["n1"].ran == pool.agents["n2"].ran == []

            pool.scheduler.pin("k", pool.address("n2"))
            pool.agents["n2"].open.set()

            assert await started.outcome() == "n2: "
            assert pool.agents["n2"].ran == [b"k"]

    run(story())


def test_an_errand_without_a_node_can_be_cancelled_for_all_its_clients() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            other = DaskClientEngine(pool.settings, 10.0)
            engines = (pool.client, other)
            errand = pool.errand("k", "")
            started = [each for one in engines for each in await one.start([errand])]
            await until(lambda: _clients_of(pool, "k") == len(engines))

            pool.scheduler.cancel("k", "enough")

            for each in started:
                with pytest.raises(ErrandCancelledError, match="enough"):
                    await each.outcome()
                each.drop()
            await until(lambda: ("k", ErrandState.FORGOTTEN) in pool.listener.states)
            assert not pool.scheduler.knows("k")
            await other.close()

    run(story())


def test_an_errand_that_is_given_back_is_gone_for_its_clients() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            other = DaskClientEngine(pool.settings, 10.0)
            for node in ("n1", ""):
                errand = pool.errand(f"k{node}", node)
                engines = (pool.client, other)
                started = [
                    each for one in engines for each in await one.start([errand])
                ]
                await until(partial(_has_clients, pool, errand.key, len(engines)))

                pool.scheduler.give_back(errand.key)

                for each in started:
                    with pytest.raises(EngineGoneError):
                        await each.outcome()
                assert not pool.scheduler.knows(errand.key)
            await other.close()

    run(story())


def _has_clients(pool: LoopPool, key: str, count: int) -> bool:
    return _clients_of(pool, key) == count


def _clients_of(pool: LoopPool, key: str) -> int:
    """Return how many clients wait for an errand."""
    scheduler: Any = pool.scheduler._scheduler
    task = scheduler.tasks.get(key)
    wants = task.who_wants if task is not None else ()
    return len([each for each in wants if each.client_key != "fire-and-forget"])


def test_an_errand_without_a_node_gets_its_inputs_when_it_is_pinned() -> None:
    async def story() -> None:
        async with a_pool("n1", "gate") as pool:
            content = hashlib.blake2b(b"1", digest_size=32).hexdigest()
            file = InputFile(content, 64, (pool.address("gate"),))
            (started,) = await pool.client.start([pool.errand("k", "", inputs=(file,))])
            await until(lambda: ("k", ErrandState.OPEN) in pool.listener.states)

            pool.scheduler.pin("k", pool.address("n1"))
            pool.agents["n1"].open.set()

            assert await started.outcome() == f"n1: {content}"

    run(story())


def test_an_errand_that_is_put_back_goes_where_it_is_pinned() -> None:
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)

            pool.scheduler.pin("k", pool.address("n2"))
            assert pool.agents["n2"].ran == []  # a pin alone moves nothing that runs
            pool.agents["n1"].again = True
            pool.agents["n1"].open.set()
            pool.agents["n2"].open.set()

            assert await started.outcome() == "n2: "

    run(story())


def test_an_errand_whose_input_is_on_its_way_can_be_taken_back() -> None:
    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            absent = f"tcp://127.0.0.1:{free_port()}"
            file = InputFile("ab" * 32, 64, (absent,))
            errand = pool.errand("k", "n1", inputs=(file,))
            (started,) = await pool.client.start([errand])
            await until(lambda: pool.scheduler.knows("k"))

            pool.scheduler.pin("k", pool.address("n2"))
            pool.scheduler.take_back("k")
            pool.scheduler.pin(f"hetpool-load-{'ab' * 32}", pool.address("n1"))
            pool.agents["n2"].open.set()

            assert await started.outcome() == f"n2: {'ab' * 32}"

    run(story())


def test_inputs_come_from_their_source_in_the_order_of_the_errand() -> None:
    async def story() -> None:
        async with a_pool("n1", "gate") as pool:
            names = [
                hashlib.blake2b(bytes([n]), digest_size=32).hexdigest() for n in (1, 2)
            ]
            files = tuple(
                InputFile(each, 64, (pool.address("gate"),)) for each in names
            )
            (started,) = await pool.client.start([pool.errand("k", "n1", inputs=files)])
            pool.agents["n1"].open.set()

            assert await started.outcome() == f"n1: {''.join(names)}"

    run(story())


def test_cancelling_the_future_does_not_reach_the_coroutine() -> None:
    # dask/distributed#2617: so cancellations go to the agent
    async def story() -> None:
        async with a_pool("n1") as pool:
            pool.agents["n1"].engine.answer("ping", _echo)
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)

            await started._future.cancel(force=True)
            await until(lambda: ("k", ErrandState.FORGOTTEN) in pool.listener.states)

            await pool.scheduler.ask(pool.address("n1"), "ping", b"")
            assert not pool.agents["n1"].interrupted
            pool.agents["n1"].open.set()
            await asyncio.wait_for(pool.agents["n1"].left.wait(), PATIENCE_S)

    run(story())


def test_errands_outlive_their_client() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            other = DaskClientEngine(pool.settings, 10.0)
            await other.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)

            await other.close()

            assert pool.scheduler.knows("k")
            pool.agents["n1"].open.set()
            await until(lambda: ("k", ErrandState.ENDED) in pool.listener.states)

    run(story())


def test_the_broker_hears_of_ends_and_of_results_that_are_lost() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            pool.agents["n1"].open.set()
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: ("k", ErrandState.ENDED) in pool.listener.states)
            pool.listener.states.clear()

            await pool.stop("n1")  # nobody has fetched the result
            await until(lambda: ("k", ErrandState.OPEN) in pool.listener.states)
            pool.start("n1")
            await until(lambda: pool.agents["n1"].ran)
            pool.agents["n1"].open.set()

            assert await started.outcome() == "n1: "
            started.drop()
            await until(lambda: ("k", ErrandState.FORGOTTEN) in pool.listener.states)

    run(story())


def test_errands_of_a_lost_scheduler_are_gone_and_can_be_started_again() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            await until(lambda: pool.agents["n1"].ran)

            await pool.stop("scheduler")
            with pytest.raises(EngineGoneError):
                await started.outcome()
            pool.scheduler = DaskSchedulerEngine(pool.settings)
            pool.start("scheduler")
            pool.agents["n1"].open.set()

            async with asyncio.timeout(PATIENCE_S):
                assert await _started_again(pool) == "n1: "

    run(story())


async def _started_again(pool: LoopPool) -> str:
    while True:
        try:
            (started,) = await pool.client.start([pool.errand("k", "n1")])
            outcome: str = await started.outcome()
        except (PoolUnreachableError, EngineGoneError):
            await asyncio.sleep(0.1)
        else:
            return outcome


def test_messages_and_their_errors_go_all_ways() -> None:
    async def echo(message: bytes) -> bytes:
        return message[::-1]

    async def refuse(message: bytes) -> bytes:
        raise NotFoundError(message.decode())

    async def story() -> None:
        async with a_pool("n1", "n2") as pool:
            one, two = (pool.agents[name].engine for name in ("n1", "n2"))
            for engine in (pool.scheduler, one, two):
                engine.answer("echo", echo)
                engine.answer("refuse", refuse)

            assert await pool.client.ask("echo", b"abc") == b"cba"
            assert await pool.scheduler.ask(one.address, "echo", b"abc") == b"cba"
            assert await one.ask("echo", b"abc") == b"cba"
            assert await one.ask("echo", b"abc", two.address) == b"cba"
            for asking in (
                pool.client.ask("refuse", b"no such thing"),
                pool.scheduler.ask(one.address, "refuse", b"no such thing"),
                two.ask("refuse", b"no such thing", one.address),
            ):
                with pytest.raises(NotFoundError, match="no such thing"):
                    await asking

    run(story())


def test_a_node_knows_when_it_last_heard_its_scheduler() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            engine = pool.agents["n1"].engine
            first = engine.heard()
            await until(lambda: engine.heard() > first)

    run(story())


def test_http_servers_are_for_this_machine_alone() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            worker: Any = pool.agents["n1"].engine._worker
            for server in (worker, pool.scheduler._scheduler):
                for listening in server.http_server._sockets.values():
                    assert listening.getsockname()[0] == "127.0.0.1"

    run(story())


def test_a_node_that_parts_comes_back() -> None:
    async def story() -> None:
        async with a_pool("n1") as pool:
            engine = pool.agents["n1"].engine
            before = engine._worker

            engine.part()

            await until(lambda: pool.listener.lost == ["n1"])
            await until(lambda: engine._worker not in (None, before))

    run(story())


def _stop_late(loop: asyncio.AbstractEventLoop) -> None:
    """Stop a loop in the turn in which all that was due meanwhile is due."""
    time.sleep(0.1)
    loop.call_soon(loop.stop)


def test_the_loop_of_a_client_that_is_closed_may_stop_at_any_moment() -> None:
    reported: list[dict[str, Any]] = []

    async def story() -> None:
        async with a_pool() as pool:
            thread = LoopThread("client")
            thread.loop.set_exception_handler(lambda _, what: reported.append(what))
            engine = DaskClientEngine(pool.settings, 10.0)
            await asyncio.wrap_future(thread.start(engine.open()))
            await asyncio.wrap_future(thread.start(engine.close()))
            thread.call(_stop_late, thread.loop)
            await until(lambda: not thread.is_alive)
            thread.loop.close()

    run(story())
    gc.collect()

    assert reported == []


def test_no_scheduler_is_an_error_in_one_line() -> None:
    async def story() -> None:
        settings = EngineSettings(f"tcp://127.0.0.1:{free_port()}")
        with pytest.raises(PoolUnreachableError, match="no scheduler"):
            await DaskClientEngine(settings, 0.5).open()

    run(story())
