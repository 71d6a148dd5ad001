"""Whatever process of a pool is lost: jobs end, once, on one node at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from pool.private_pool import PATIENCE, kill, private_pool
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hetpool import Pool, PoolTask
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)

STRIPS = 200

without_replacement = pytest.mark.parametrize("made", ["lasting"], indirect=True)
"""Jobs of a lost node do not run elsewhere: it returns, however long its start takes."""


@pytest.fixture(scope="module")
def lasting() -> Iterator[PrivatePool]:
    with private_pool(replace_s=2 * PATIENCE) as made:
        yield made


@pytest.fixture(scope="module")
def replacing() -> Iterator[PrivatePool]:
    with private_pool() as made:
        yield made


@pytest.fixture
def made(request: pytest.FixtureRequest) -> PrivatePool:
    """A pool that other tests have harmed: all of its processes are there again."""
    made: PrivatePool = request.getfixturevalue(getattr(request, "param", "replacing"))
    made.restore()
    return made


@pytest.fixture
def client(made: PrivatePool) -> Iterator[Pool]:
    with made.pool() as client:
        made.await_nodes(client, "n1", "n2")
        yield client
        made.restore()
        client.cancel(*[each.id for each in client.tasks()])


def long(seconds: float = 5.0) -> dict[str, Any]:
    return {"seconds": {"cpu": seconds}, "strips": STRIPS}


def running(task: PoolTask) -> str:
    """Wait until a task runs; return its node."""
    eventually(lambda: task.state == "running", "running", PATIENCE)
    return task.node


def executions(made: PrivatePool, task: PoolTask) -> list[str]:
    """List the states of all tasks of a job on all nodes."""
    return [each.state for name in made.nodes for each in made.tasks_of(name, task.id)]


@without_replacement
def test_a_killed_agent_comes_back_to_the_same_task(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long())
    node = running(task)

    made.kill_node(node)
    made.start_node(node)

    assert task.result(PATIENCE)["strips"] == STRIPS
    assert executions(made, task) == ["completed"]


@without_replacement
def test_what_a_killed_agent_had_parked_goes_on(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long(10.0))
    node = running(task)
    daemon = made.nodes[node].daemon
    assert daemon is not None
    (here,) = made.tasks_of(node, task.id)

    made.kill_node(node)
    daemon.client.park(here.id)
    made.start_node(node)

    assert task.result(PATIENCE)["strips"] == STRIPS
    assert executions(made, task) == ["completed"]


@without_replacement
def test_a_killed_hetd_comes_back_to_the_same_task(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long())
    daemon = made.nodes[running(task)].daemon
    assert daemon is not None

    daemon.restart()

    assert task.result(PATIENCE)["strips"] == STRIPS
    assert executions(made, task) == ["completed"]


def test_jobs_leave_a_node_whose_hetd_does_not_come_back(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long(10.0))
    lost = running(task)
    daemon = made.nodes[lost].daemon
    assert daemon is not None

    daemon.kill9()

    assert task.result(2 * PATIENCE)["strips"] == STRIPS
    assert task.node != lost
    daemon.start()
    made.await_nodes(client, "n1", "n2")


@without_replacement
def test_a_killed_scheduler_finds_everything_again(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long())
    running(task)
    short = client.submit(pow, 2, 5)
    assert short.result(PATIENCE) == 32

    assert made.scheduler is not None
    children = psutil.Process(made.scheduler.pid).children(recursive=True)
    kill(made.scheduler)
    made.start_scheduler()
    later = client.submit(pow, 2, 6)

    assert task.result(PATIENCE)["strips"] == STRIPS
    assert later.result(PATIENCE) == 64
    assert children
    eventually(
        lambda: not any(each.is_running() for each in children), "its end", PATIENCE
    )
    assert executions(made, task) == ["completed"]


def test_jobs_of_a_lost_node_run_elsewhere(made: PrivatePool, client: Pool) -> None:
    tasks = [client.submit("synthetic", long(8.0)) for _ in range(4)]
    lost = running(tasks[0])
    daemon = made.nodes[lost].daemon
    assert daemon is not None

    made.kill_node(lost)
    daemon.kill9()

    for task in tasks:
        assert task.result(PATIENCE)["strips"] == STRIPS
        assert task.node != lost or task is not tasks[0]
    daemon.start()


def test_a_returning_node_ends_what_runs_elsewhere(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long(30.0))
    lost = running(task)

    made.kill_node(lost)
    eventually(lambda: task.node not in {"", lost}, "another node", PATIENCE)
    made.start_node(lost)

    eventually(
        lambda: [each.state for each in made.tasks_of(lost, task.id)] == ["cancelled"],
        "the end of the orphan",
        PATIENCE,
    )
    assert running(task) != lost
    task.cancel()


@without_replacement
def test_without_its_scheduler_a_node_holds_its_jobs(
    made: PrivatePool, client: Pool
) -> None:
    task = client.submit("synthetic", long(20.0))
    node = running(task)

    kill(made.scheduler)
    eventually(
        lambda: [each.state for each in made.tasks_of(node, task.id)] == ["held"],
        "held",
        PATIENCE,
    )
    made.start_scheduler()

    running(task)
    assert len(executions(made, task)) == 1
    task.cancel()


def test_root_runs_no_pool_unless_it_says_so(made: PrivatePool) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is not root")

    command = [sys.executable, "-m", "hetpool", "scheduler"]
    ended = subprocess.run(
        [*command, "--config", str(made.config)],
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )

    assert ended.returncode == 5
    assert ended.stderr.count(b"\n") == 1
    assert b"--allow-root" in ended.stderr


SUBMITS = """
import sys
from pathlib import Path
from hetpool import Pool
from hetpool.setup.config import read_settings
pool = Pool(read_settings(Path(sys.argv[1]), {}).engine())
task = pool.submit("synthetic", {"seconds": {"cpu": 4.0}}, id=sys.argv[2])
while task.state != "running":
    pass
"""


def test_jobs_outlive_their_client(made: PrivatePool, client: Pool) -> None:
    job = "cd" * 16
    program = [sys.executable, "-c", SUBMITS + "import os; os._exit(1)"]
    subprocess.run([*program, str(made.config), job], check=False, timeout=PATIENCE)

    task = client.submit("synthetic", {"seconds": {"cpu": 4.0}}, id=job)

    assert task.result(PATIENCE)["strips"] == 20
    assert executions(made, task) == ["completed"]


def size(path: str) -> int:
    with open(path, "rb") as file:  # noqa: PTH123  pickled by value
        return len(file.read())


def test_a_job_waits_for_the_source_of_its_input(
    own_pool: Callable[..., PrivatePool], tmp_path: Path
) -> None:
    from hetpool import Input

    made = own_pool(gateway=True)
    file = tmp_path / "input"
    file.write_bytes(b"x" * 1000)
    with made.pool() as client:
        made.await_nodes(client, "n1", "n2", "gate")
        blocker = client.job(size, Input(file))
        made.kill_node("gate")

        _, tasks = client.batch([blocker])
        made.await_nodes(client, "n1", "n2")
        assert not tasks[0].done()
        made.start_node("gate")

        assert tasks[0].result(PATIENCE) == 1000
