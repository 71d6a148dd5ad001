"""Programs of users against a real daemon: what their clients send, hear and find logged."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from libtask import messages as m
from libtask.client.asynchronous import AsyncClient
from libtask.client.client import Selection
from libtask.errors import DaemonUnreachableError, InputError
from system import traced
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon
    from system.tracing import Tracing

    Submit = Callable[..., Tracing]


def test_two_clients_at_once(daemon: PrivateDaemon) -> None:
    handles: list[TaskHandle] = []

    def submit() -> None:
        client = daemon.connect()
        for _ in range(20):
            handles.append(client.submit("synthetic", {"seconds": {"cpu": 0.001}}))  # noqa: PERF401  the other client's come between

    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({handle.id for handle in handles}) == 40
    for handle in handles:
        assert handle.result(PATIENCE)["strips"] == 20


def test_another_client_follows_and_cancels(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=5)
    task.await_gate()
    other = daemon.connect().handle(task.id)
    eventually(lambda: other.state == "running", "the state at the other client")

    other.cancel()

    assert other.wait(PATIENCE) == "cancelled"
    assert task.handle.wait(PATIENCE) == "cancelled"


def test_a_client_that_closes_leaves_its_tasks(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    with daemon.connect() as client:
        task = trace(gate_at=5, client=client)
    task.await_gate()

    task.open_gate()

    assert daemon.client.handle(task.id).result(PATIENCE)["sum"] == sum(range(20))


def test_who_waits_is_told_that_the_client_was_closed(daemon: PrivateDaemon) -> None:
    client = daemon.connect()
    held = client.submit("synthetic", {"seconds": {"cpu": 0.001}}, hold=True)
    waits = ThreadPoolExecutor(1).submit(held.wait)

    client.close()

    with pytest.raises(DaemonUnreachableError, match="the client was closed"):
        waits.result(PATIENCE)
    daemon.client.cancel(held.id)


FORKS = """
import os, sys
from pathlib import Path
from libtask import Client

client = Client(Path(sys.argv[1]))
print(client.submit(abs, -1).result(60), flush=True)
for use in (lambda: None, client.close, lambda: print(client.submit(abs, -2).result(60))):
    child = os.fork()
    if child == 0:
        use()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print(client.submit(abs, -3).result(60))
"""


def test_a_forked_process_has_no_part_in_the_connection(daemon: PrivateDaemon) -> None:
    # Python 3.12 warns that the parent has several threads, which is what is tested here
    calm = ["-W", "ignore:This process:DeprecationWarning"]
    words = [sys.executable, *calm, "-c", FORKS, str(daemon.socket)]

    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["1", "7", "7", "2", "7", "3"]


def test_large_parameters_and_results_travel(trace: Submit) -> None:
    task = trace(result_bytes=400_000)

    assert len(task.handle.result(PATIENCE)["text"]) == 400_000
    assert len(task.handle.info().result["text"]) == 400_000


def test_a_result_that_is_too_large_is_kept_in_a_file(trace: Submit) -> None:
    task = trace(result_bytes=2_000_000)

    assert len(task.handle.result(PATIENCE)["text"]) == 2_000_000
    kept = task.handle.info()
    assert kept.result["bytes"] > 2_000_000
    assert len(kept.warnings) == 1


def test_the_largest_tasks_and_results_travel(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    # hetd repeats them in messages that hold more besides
    app = f"{traced.__file__}:Traced"
    results = {"trace": str(tmp_path / "trace"), "result_bytes": m.MAX_FRAME - 1000}
    params = {"trace": str(tmp_path / "other"), "gate": "x" * (m.MAX_FRAME - 1000)}

    handles = [
        daemon.client.submit_specs([m.TaskSpec(app, results, "t" * m.TYPE_BYTES)])[0],
        daemon.client.submit_specs([m.TaskSpec(app, params)])[0],
    ]

    texts = [handle.result(PATIENCE)["text"] for handle in handles]
    assert [len(text) for text in texts] == [m.MAX_FRAME - 1000, 0]
    assert daemon.client.show(handles[1].id).params == params


def test_thousands_of_tasks_complete(daemon: PrivateDaemon) -> None:
    spec = m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}, "strips": 1}, "nothing")

    handles = daemon.client.submit_specs([spec] * 2000)

    results = [handle.result(60) for handle in handles]
    assert results == [{"strips": 1, "state_bytes": 0}] * 2000
    listed = daemon.client.tasks(Selection(limit=2000))
    assert [info.id for info in listed] == [handle.id for handle in handles[::-1]]
    assert {info.state for info in listed} == {"completed"}


# ---------------------------------------------------------------- changes


def test_changes_come_in_order(daemon: PrivateDaemon, trace: Submit) -> None:
    with daemon.client.watch(progress=False) as changes:
        task = trace(resources=["gpu0"])
        daemon.client.submit("synthetic", {"seconds": {"cpu": 0.0}})
        task.check_completed()
        heard: list[m.TaskChanged] = []
        while not heard or heard[-1].state != "completed":
            change = next(changes)
            if change.id == task.id:
                heard.append(change)

    assert [(change.what, change.state) for change in heard] == [
        ("submitted", "queued"),
        ("dispatched", "running"),
        ("completed", "completed"),
    ]
    assert heard[-1].result["counted"] == 20
    for before, after in pairwise(heard):
        assert before.at <= after.at


def test_progress_only_grows(trace: Submit) -> None:
    task = trace(total_strips=300)

    changes = list(task.handle.events())

    progress = [c.progress for c in changes if c.state == "running"]
    assert progress == sorted(progress)
    assert len(set(progress)) > 2
    assert changes[-1].state == "completed"


# ---------------------------------------------------------------- logs


def test_log_ranges_hold_what_each_stretch_printed(
    daemon: PrivateDaemon, trace: Submit
) -> None:
    task = trace(gate_at=10, resources=["cpu"])
    task.await_gate()
    daemon.client.migrate(task.id, "gpu0")
    task.open_gate()
    task.check_completed()

    segments = daemon.info(task.id).segments

    texts = [_text(segment) for segment in segments]
    assert [text.splitlines() for text in texts] == [
        [" ".join(row) for row in task.lines() if row[2] == resource]
        for resource in ("cpu", "gpu0")
    ]


def test_a_failed_task_has_its_log_too(daemon: PrivateDaemon, trace: Submit) -> None:
    task = trace(raise_in="run")
    assert task.handle.wait(PATIENCE) == "failed"

    (segment,) = daemon.info(task.id).segments

    printed = f"0 1 cpu {task.pids()[0]}\n"
    assert _text(segment).startswith(f"{printed}Traceback (most recent call last):")
    assert _text(segment).endswith("in run\n")
    assert Path(segment.log).stat().st_mode & 0o077 == 0


def _text(segment: m.Segment) -> str:
    assert segment.log_end is not None
    log = Path(segment.log).read_bytes()
    return log[segment.log_start : segment.log_end].decode()


# ---------------------------------------------------------------- asyncio


def test_the_asyncio_client(daemon: PrivateDaemon) -> None:
    async def work() -> list[int]:
        async with AsyncClient(daemon.socket) as client:
            tasks = [
                await client.submit("synthetic", {"seconds": {"cpu": 0.001}})
                for _ in range(5)
            ]
            results = await asyncio.gather(*(task.result() for task in tasks))
            assert len(await client.devices()) == 3
            return [result["strips"] for result in results]

    assert asyncio.run(asyncio.wait_for(work(), PATIENCE)) == [20] * 5


def test_coroutines_that_submit_at_once_get_their_own_tasks(
    daemon: PrivateDaemon,
) -> None:
    async def work() -> list[Any]:
        async with AsyncClient(daemon.socket) as client:
            calls = [client.submit(pow, 2, number) for number in range(60)]
            bad = client.submit(pow, 2, 1, cores=10_000)
            refused = asyncio.ensure_future(bad)
            tasks = await asyncio.gather(*calls)
            with pytest.raises(InputError, match="cores"):
                await refused
            return await asyncio.gather(*(task.result() for task in tasks))

    found = asyncio.run(asyncio.wait_for(work(), PATIENCE))

    assert found == [2**number for number in range(60)]


def test_a_wait_that_is_given_up_leaves_no_complaint(
    daemon: PrivateDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with AsyncClient(daemon.socket) as client:
            task = await client.submit(time.sleep, 600)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task.result(), 0.01)
            assert await client.cancel(task.id) == [task.id]
            other = await client.submit(time.sleep, 1, hold=True)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.result(), 0.01)

    asyncio.run(asyncio.wait_for(work(), PATIENCE))
    gc.collect()  # asyncio logs exceptions that nobody took

    assert not [each for each in caplog.records if each.name == "asyncio"]


def test_the_asyncio_client_hears_changes_and_cancels(
    daemon: PrivateDaemon, tmp_path: Path
) -> None:
    parameters = {"trace": str(tmp_path / "trace"), "total_strips": 100_000}

    async def work() -> list[str]:
        async with AsyncClient(daemon.socket) as client:
            task = await client.submit(f"{traced.__file__}:Traced", parameters, strip=1)
            async with contextlib.aclosing(client.watch(task.id)) as changes:
                async for change in changes:
                    if change.what == "progress":
                        await task.cancel()
                    if change.state in m.ENDED:
                        return [change.state, await task.wait()]
        return []

    states = asyncio.run(asyncio.wait_for(work(), PATIENCE))

    assert states == ["cancelled", "cancelled"]
