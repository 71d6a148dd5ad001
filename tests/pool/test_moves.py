"""Moves between nodes: equal results, the same task object, drained nodes, copied snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask.errors import InputError
from pool.private_pool import PATIENCE
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hetpool import Pool, PoolTask
    from pool.private_pool import PrivatePool

pytestmark = pytest.mark.timeout(300)

STRIPS = 400


def long(seconds: float) -> dict[str, Any]:
    return {"seconds": {"cpu": seconds}, "strips": STRIPS, "state_bytes": 100_000}


def progressed(task: PoolTask, least: float) -> str:
    """Wait until a task has done a share of its work; return its node."""
    eventually(lambda: task.progress >= least, f"{least:.0%}", PATIENCE)
    return task.node


def other(node: str) -> str:
    return "n2" if node == "n1" else "n1"


def progress_of(made: PrivatePool, node: str, task: PoolTask) -> float:
    return max((each.progress for each in made.tasks_of(node, task.id)), default=0.0)


def test_a_moved_task_goes_on_where_it_was(
    pool: Pool, shared_pool: PrivatePool
) -> None:
    task = pool.submit("synthetic", long(12.0))
    source = progressed(task, 0.3)

    task.move(other(source))

    eventually(lambda: task.node == other(source), "moved", PATIENCE)
    eventually(lambda: progress_of(shared_pool, task.node, task), "progress", PATIENCE)
    assert progress_of(shared_pool, task.node, task) >= 0.25
    assert task.result(PATIENCE)["strips"] == STRIPS
    ended = [each.state for each in shared_pool.tasks_of(source, task.id)]
    assert ended == ["cancelled"]


def test_a_moved_computation_has_equal_bits_and_one_output_file(
    pool: Pool, tmp_path: Path
) -> None:
    parameters = {"n": 512, "steps": 40_000, "output": str(tmp_path / "plate.npy")}
    still = pool.submit("heat", parameters, resources=["cpu"]).result(PATIENCE)
    plate = (tmp_path / "plate.npy").read_bytes()
    task = pool.submit("heat", parameters, resources=["cpu"])
    source = progressed(task, 0.05)

    task.move(other(source))

    assert task.result(PATIENCE) == still
    assert still["output"] == parameters["output"]
    assert {path.name for path in tmp_path.iterdir()} == {"plate.npy"}
    assert (tmp_path / "plate.npy").read_bytes() == plate


def test_a_task_moves_there_and_back(pool: Pool, shared_pool: PrivatePool) -> None:
    task = pool.submit("synthetic", long(10.0))
    first = progressed(task, 0.1)

    task.move(other(first))
    eventually(
        lambda: task.state == "running" and task.node != first, "there", PATIENCE
    )
    task.move(first)

    assert task.result(PATIENCE)["strips"] == STRIPS
    assert task.node == first
    assert len(shared_pool.tasks_of(first, task.id)) == 2


def test_a_move_to_nowhere_is_refused(pool: Pool) -> None:
    task = pool.submit("synthetic", long(10.0))
    progressed(task, 0.01)

    with pytest.raises(InputError, match="n9"):
        task.move("n9")
    with pytest.raises(InputError, match="runs no jobs"):
        task.move("gate")
    assert not task.done()
    task.cancel()


def test_a_drained_node_is_emptied_and_gets_nothing(pool: Pool) -> None:
    # as they say what they take, none is planned to wait behind another one
    expected = {"cpu": 8.0}
    tasks = [pool.submit("synthetic", long(8.0), seconds=expected) for _ in range(3)]
    eventually(lambda: all(t.state == "running" for t in tasks), "running", PATIENCE)

    pool.drain("n1")
    try:
        eventually(lambda: {task.node for task in tasks} == {"n2"}, "empty", PATIENCE)
        later = pool.submit(pow, 2, 3)
        assert later.result(PATIENCE) == 8
        assert later.node == "n2"
        for task in tasks:
            assert task.result(PATIENCE)["strips"] == STRIPS
    finally:
        pool.resume("n1")


def test_a_lost_node_costs_what_came_after_the_last_copy(
    own_pool: Callable[..., PrivatePool],
) -> None:
    made = own_pool(copy_s=5.0)
    with made.pool() as client:
        made.await_nodes(client, "n1", "n2")
        task = client.submit("synthetic", long(30.0))
        lost = progressed(task, 0.4)
        daemon = made.nodes[lost].daemon
        assert daemon is not None

        made.kill_node(lost)
        daemon.kill9()

        eventually(lambda: progress_of(made, other(lost), task), "elsewhere", PATIENCE)
        assert progress_of(made, other(lost), task) >= 0.1
        assert task.result(PATIENCE)["strips"] == STRIPS
        daemon.start()
