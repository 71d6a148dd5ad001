"""Jobs that no hetd has: the pool keeps those that wait, and tells how others ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from hetctl.pool.tasks import wait_for
from hetctl.waiting import EXIT_SOME_CANCELLED, EXIT_SOME_FAILED
from hetpool import Input
from hetpool.jobs import BY_ENGINE
from pool.private_pool import PATIENCE, kill, private_pool
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hetpool import Pool
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)

SHORT = {"seconds": {"cpu": 0.2}}


@pytest.fixture(scope="module")
def one_node() -> Iterator[PrivatePool]:
    with private_pool(names=["n1"]) as made:
        yield made


@pytest.fixture
def made(one_node: PrivatePool) -> Iterator[PrivatePool]:
    """A pool that other tests use, too."""
    one_node.restore()
    yield one_node
    print(one_node.logs())  # noqa: T201  pytest shows it if the test failed


@pytest.fixture
def client(made: PrivatePool) -> Iterator[Pool]:
    """A client of a pool whose only node is drained."""
    with made.pool() as client:
        made.await_nodes(client, "n1")
        client.drain("n1")
        yield client
        client.resume("n1")
        client.cancel(*[each.id for each in client.tasks()])


def typed(made: PrivatePool, *words: str) -> subprocess.Popen[str]:
    """Start a verb of `hetctl pool`."""
    return subprocess.Popen(
        [sys.executable, "-m", "hetctl", "pool", *words],
        env={**os.environ, "HETPOOL_CONFIG": str(made.config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def waiting(client: Pool, count: int = 1) -> list[str]:
    """Wait until so many jobs wait in the pool; return them."""

    def look() -> list[str]:
        ids = [each.id for each in client.tasks() if each.state == "waiting"]
        return ids if len(ids) == count else []

    return eventually(look, f"{count} jobs that wait", PATIENCE)


def executions(made: PrivatePool, job: str) -> list[str]:
    return [each.state for each in made.tasks_of("n1", job)]


def ran_once(made: PrivatePool, client: Pool, job: str) -> None:
    eventually(
        lambda: executions(made, job) == ["completed"] and not client.tasks(),
        "the end of the job",
        PATIENCE,
    )
    assert executions(made, job) == ["completed"]


def test_a_task_that_hetctl_submitted_runs_when_its_node_is_resumed(
    made: PrivatePool, client: Pool, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    line = f"echo once >> {written}"
    submit = typed(made, "submit", "--", "sh", "-c", line)
    said, _ = submit.communicate(timeout=PATIENCE)

    assert submit.returncode == 0
    assert "submitted, which waits for a node" in said
    (job,) = waiting(client)
    for verb in (["list"], ["show", "last"]):
        shown, _ = typed(made, *verb).communicate(timeout=PATIENCE)
        assert job[:8] in shown
        assert "waiting" in shown
    assert "1 waiting" in typed(made, "status").communicate(timeout=PATIENCE)[0]
    assert executions(made, job) == []

    client.resume("n1")

    ran_once(made, client, job)
    assert written.read_text() == "once\n"


def test_a_task_that_needs_more_than_any_node_has_waits_and_says_so(
    made: PrivatePool, client: Pool
) -> None:
    client.resume("n1")
    submit = typed(made, "submit", "--cores", "1000", "--", "true")
    _, said = submit.communicate(timeout=PATIENCE)
    (job,) = waiting(client)

    explain, _ = typed(made, "explain", job[:8]).communicate(timeout=PATIENCE)

    why = f"it needs 1000 cores; the largest node has {len(os.sched_getaffinity(0))}"
    assert said == f"hetctl: 1 job waits: {why}\n"
    assert explain == f"task {job[:8]} waits: {why}\n"


def test_a_task_outlives_the_hetctl_that_waits_for_it(
    made: PrivatePool, client: Pool
) -> None:
    submit = typed(made, "submit", "--wait", "--", "true")
    (job,) = waiting(client)

    submit.send_signal(signal.SIGKILL)
    submit.communicate(timeout=PATIENCE)
    client.resume("n1")

    ran_once(made, client, job)


def test_a_job_outlives_a_pool_that_is_closed(made: PrivatePool, client: Pool) -> None:
    with made.pool() as other:
        job = other.submit("synthetic", SHORT).id

    assert waiting(client) == [job]
    client.resume("n1")

    ran_once(made, client, job)


def test_the_newest_task_that_waits_is_the_last(
    made: PrivatePool, client: Pool
) -> None:
    ids = [client.batch([client.job("synthetic", SHORT)])[1][0].id for _ in range(4)]
    waiting(client, 4)

    shown, _ = typed(made, "show", "last").communicate(timeout=PATIENCE)

    assert ids[-1] in shown


def test_another_client_cancels_a_task_that_waits(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", SHORT)
    submit = typed(made, "submit", "--wait", "--", "true")
    waiting(client, 2)

    cancel = typed(made, "cancel", "all")
    cancel.communicate(timeout=PATIENCE)

    assert cancel.returncode == 0
    with pytest.raises(CancelledError, match=task.id[:8]):
        task.result(PATIENCE)
    assert "cancelled" in submit.communicate(timeout=PATIENCE)[0]
    assert submit.returncode == EXIT_SOME_CANCELLED
    ended = wait_for(
        client, [task.id], PATIENCE, as_json=False
    )  # as another client does
    assert ended == EXIT_SOME_CANCELLED
    client.resume("n1")
    assert client.submit(pow, 2, 5).result(PATIENCE) == 32
    assert executions(made, task.id) == []


def test_a_job_that_waits_survives_its_scheduler_if_its_client_lives(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", SHORT)
    waiting(client)

    kill(made.scheduler)
    made.start_scheduler()
    made.await_nodes(client, "n1")
    client.resume("n1")

    assert task.result(PATIENCE)["strips"] > 0
    ran_once(made, client, task.id)


def test_a_job_that_waited_runs_once_although_its_scheduler_is_lost(
    made: PrivatePool, client: Pool
) -> None:
    parameters: dict[str, Any] = {"seconds": {"cpu": 5.0}, "strips": 100}
    task = client.submit("synthetic", parameters)
    waiting(client)
    client.resume("n1")
    eventually(lambda: executions(made, task.id) == ["running"], "its start", PATIENCE)

    kill(made.scheduler)
    made.start_scheduler()

    assert task.result(PATIENCE)["strips"] == 100
    ran_once(made, client, task.id)


def length(path: str) -> int:
    return os.stat(path).st_size  # noqa: PTH116  pickled by value


def test_a_wait_ends_for_a_job_that_is_cancelled_before_any_hetd_has_it(
    own_pool: Callable[..., PrivatePool], tmp_path: Path
) -> None:
    made = own_pool(names=["n1"], gateway=True)
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, BY_ENGINE + 1)
    with made.pool() as client:
        made.await_nodes(client, "n1", "gate")
        job = client.job(length, Input(large))
        made.kill_node("gate")  # which alone has the input
        _, (task,) = client.batch([job])
        wait = typed(made, "wait", task.id[:8])
        assert task.state == "placed"
        cancel = typed(made, "cancel", task.id[:8], "--reason", "enough")
        cancel.communicate(timeout=PATIENCE)

        with pytest.raises(CancelledError, match="enough"):
            task.result(PATIENCE)
    for each in (wait, typed(made, "wait", task.id[:8])):  # also after its end
        said, _ = each.communicate(timeout=PATIENCE)
        assert (said, each.returncode) == (
            f"task {task.id[:8]} cancelled: enough\n",
            EXIT_SOME_CANCELLED,
        )


def test_other_clients_see_why_hetd_refused_a_job(made: PrivatePool) -> None:
    with made.pool() as client:
        made.await_nodes(client, "n1")
        task = client.submit("synthetic", {"seconds": {}}, seconds={"cpu": 1.0})
        task.exception(PATIENCE)

    wait = typed(made, "wait", task.id[:8])

    assert "failed: Synthetic: seconds names" in wait.communicate(timeout=PATIENCE)[0]
    assert wait.returncode == EXIT_SOME_FAILED
    assert "failed" in typed(made, "list").communicate(timeout=PATIENCE)[0]
