"""Jobs of a real pool: results, errors, cancellation, batches, files, the executor."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hetpool import Input, as_completed
from libtask.errors import InputError, TaskFailedError
from pool.private_pool import PATIENCE
from system.private_daemon import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from hetpool import Pool
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)


def waiting(seconds: float, **further: Any) -> dict[str, Any]:
    """Parameters of a task that waits on cpu and, half as long, on gpu."""
    return {"seconds": {"cpu": seconds, "gpu": seconds / 2}, **further}


def test_a_call_returns_its_result(pool: Pool) -> None:
    task = pool.submit(math.comb, 10, 3)

    assert task.result(PATIENCE) == 120
    assert task.done()
    assert task.state == "completed"
    assert task.node in {"n1", "n2"}


def test_map_uses_all_nodes_and_keeps_the_order(pool: Pool) -> None:
    tasks = pool.map(pow, [2] * 24, range(24))

    assert [task.result(PATIENCE) for task in tasks] == [2**n for n in range(24)]
    assert {task.node for task in tasks} == {"n1", "n2"}


def test_an_application_by_name(pool: Pool) -> None:
    task = pool.submit("synthetic", waiting(0.2, strips=4))

    assert task.result(PATIENCE)["strips"] == 4


def test_a_failure_has_its_reason_and_node(pool: Pool) -> None:
    task = pool.submit("synthetic", waiting(0.2, fail_at=3))

    error = task.exception(PATIENCE)

    assert isinstance(error, TaskFailedError)
    assert "strip 3" in str(error)
    assert task.node in str(error)
    assert task.state == "failed"


def test_a_raising_call_stops_nothing_else(pool: Pool) -> None:
    bad = pool.submit(math.sqrt, -1)
    good = pool.submit(math.sqrt, 4)

    with pytest.raises(TaskFailedError, match="domain"):
        bad.result(PATIENCE)
    assert good.result(PATIENCE) == 2


def test_a_refused_job_has_the_reason_of_hetd(pool: Pool) -> None:
    task = pool.submit("synthetic", {"seconds": {}}, seconds={"cpu": 1.0})

    with pytest.raises(InputError, match="seconds"):
        task.result(PATIENCE)


def test_wrong_arguments_are_refused_at_once(pool: Pool) -> None:
    with pytest.raises(InputError, match="one map"):
        pool.submit("synthetic", 1, 2)
    with pytest.raises(InputError, match="application or a function"):
        pool.submit(17)


def test_cancel_reaches_the_running_task(pool: Pool, shared_pool: PrivatePool) -> None:
    task = pool.submit("synthetic", waiting(600.0, strips=6000))
    eventually(lambda: task.state == "running", "running", PATIENCE)
    node = task.node

    task.cancel()

    with pytest.raises(CancelledError, match=r"was cancelled: cancelled by its owner$"):
        task.result(PATIENCE)
    found = shared_pool.tasks_of(node, task.id)
    assert [each.state for each in found] == ["cancelled"]


def test_a_job_that_nothing_can_run_waits_and_can_be_cancelled(pool: Pool) -> None:
    task = pool.submit("synthetic", waiting(1.0), nodes=["n99"])

    assert task.state == "waiting"
    task.cancel()

    with pytest.raises(CancelledError):
        task.result(PATIENCE)


def test_the_same_id_is_the_same_job(pool: Pool, shared_pool: PrivatePool) -> None:
    first = pool.submit("synthetic", waiting(1.0), id="ab" * 16)
    with shared_pool.pool() as other:
        second = other.submit("synthetic", waiting(1.0), id="ab" * 16)
        results = first.result(PATIENCE), second.result(PATIENCE)

    assert results[0] == results[1]
    ran = [
        each for name in ("n1", "n2") for each in shared_pool.tasks_of(name, first.id)
    ]
    assert len(ran) == 1


def test_as_completed_yields_the_quick_one_first(pool: Pool) -> None:
    # each on a node of its own: what else is planned must not matter
    slow = pool.submit("synthetic", {"seconds": {"cpu": 6.0}}, nodes=["n1"])
    quick = pool.submit("synthetic", {"seconds": {"gpu": 0.1}}, nodes=["n2"])

    assert [each.id for each in as_completed([slow, quick], PATIENCE)] == [
        quick.id,
        slow.id,
    ]


def test_progress_is_seen(pool: Pool) -> None:
    task = pool.submit("synthetic", waiting(4.0, strips=40))

    eventually(lambda: 0 < task.progress < 1, "progress", PATIENCE)
    task.result(PATIENCE)
    assert task.progress == 1


@pytest.mark.parametrize("planner", ["ncjm", "sjf", "ljf", "cim", "nim", "mttf-lp", "sct", "mmi"])  # fmt: skip
def test_every_planner_plans_and_its_batch_runs(pool: Pool, planner: str) -> None:
    jobs = [
        pool.job("synthetic", waiting(0.2), seconds={"cpu": 0.2, "gpu": 0.1})
        for _ in range(6)
    ]

    plan, tasks = pool.batch(jobs, planner=planner)

    assert {entry.job for entry in plan.entries} == {job.id for job in jobs}
    assert plan.makespan > 0
    for task in tasks:
        task.result(PATIENCE)


def test_a_plan_runs_nothing(pool: Pool, shared_pool: PrivatePool) -> None:
    job = pool.job("synthetic", waiting(1.0), seconds={"cpu": 100.0, "n2/gpu0": 1.0})

    plan = pool.plan([job])

    assert [(each.node, each.resource) for each in plan.entries] == [("n2", "gpu0")]
    assert pool.tasks([job.id]) == []
    assert shared_pool.tasks_of("n2", job.id) == []


def test_an_unknown_planner_is_named(pool: Pool) -> None:
    job = pool.job("synthetic", waiting(1.0))

    with pytest.raises(InputError, match="best"):
        pool.batch([job], planner="best")


def length(path: str) -> tuple[int, str]:
    with open(path, "rb") as file:  # noqa: PTH123  pickled by value
        return len(file.read()), path.rpartition(".")[2]


def test_an_input_is_carried_to_its_job(pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "some.dat"
    file.write_bytes(b"x" * 300_000)

    tasks = [pool.submit(length, Input(file)) for _ in range(4)]

    assert [task.result(PATIENCE) for task in tasks] == [(300_000, "dat")] * 4


def test_an_application_reads_an_input(pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "samples.npy"
    np.save(file, np.random.default_rng(1).random((20, 8)))

    task = pool.submit("correlation", {"input": Input(file)}, nodes=["n1"])

    assert task.exception(PATIENCE) is None


def test_an_absent_input_is_named(pool: Pool) -> None:
    with pytest.raises(InputError, match="nothing-here"):
        pool.submit(length, Input("/nothing-here"))


def test_the_executor_runs_calls(pool: Pool) -> None:
    with pool.executor() as executor:
        squares = executor.map(pow, range(8), [2] * 8)
        chunks = executor.map(pow, range(8), [3] * 8, chunksize=5)
        keyword = executor.submit(int, "ff", base=16)

        assert list(squares) == [n**2 for n in range(8)]
        assert list(chunks) == [n**3 for n in range(8)]
        assert keyword.result(PATIENCE) == 255
    with pytest.raises(RuntimeError):
        executor.submit(int)


def test_the_pool_is_found_through_libtask() -> None:
    import hetpool
    from libtask import pool as through_libtask

    assert through_libtask.Pool is hetpool.Pool


LEFT_OPEN = """
from hetpool import Pool
Pool().submit("synthetic", {"seconds": {"cpu": 0.1}}, id="%s")
"""
DROPPED = """
import os
import sys
import threading
from hetpool import Pool

pool = Pool()
assert pool.submit(pow, 2, 10).result(60) == 1024
if os.fork() == 0:
    del pool
    sys.exit("in the child there is nothing to end")
os.wait()
del pool
for thread in threading.enumerate():
    if thread.name == "hetpool":
        thread.join(60)
        assert not thread.is_alive()
print("ended")
"""


def a_script(script: str, made: PrivatePool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HETPOOL_CONFIG": str(made.config)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_end_of_a_program_that_left_its_pool_open_loses_no_job(
    pool: Pool, shared_pool: PrivatePool
) -> None:
    job = f"{os.getpid():032x}"

    ended = a_script(LEFT_OPEN % job, shared_pool)

    assert (ended.returncode, ended.stderr) == (0, "")
    eventually(
        lambda: (
            [
                each.state
                for node in ("n1", "n2")
                for each in shared_pool.tasks_of(node, job)
            ]
            == ["completed"]
        ),
        "the job",
        PATIENCE,
    )
    eventually(lambda: not pool.tasks(), "no job left", PATIENCE)


def test_a_pool_that_nobody_has_any_more_ends_its_thread(
    pool: Pool, shared_pool: PrivatePool
) -> None:
    ended = a_script(DROPPED, shared_pool)

    assert (ended.returncode, ended.stdout) == (0, "ended\n")
    assert ended.stderr == "in the child there is nothing to end\n"
    eventually(lambda: not pool.tasks(), "no job left", PATIENCE)
