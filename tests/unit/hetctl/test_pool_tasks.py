"""The tasks of a pool as `hetctl pool` shows them, gathered from nodes without processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hetctl.pool.gathering import LEFT, Gathered, chosen, gathered
from hetctl.pool.shown import part_of, reason_of
from hetpool.inquiry import TaskFacts
from hetpool.jobs import JobStatus, PoolNode, new_id
from hetpool.node.tasks import task_name
from unit.fake_daemon import a_task

OLD = f"{7:032x}"
"""A job whose id says nothing about its time."""


@dataclass
class FakePool:
    """A pool with tasks on its nodes, and what its broker says about jobs."""

    tasks_of: dict[str, list[Any]]
    statuses: list[JobStatus] = field(default_factory=list)
    lost: tuple[str, ...] = ()

    def nodes(self) -> list[PoolNode]:
        return [
            PoolNode(name, f"tls://{name}:9000", present=name not in self.lost)
            for name in self.tasks_of
        ]

    def tasks(self, *, ended: bool) -> list[JobStatus]:
        assert ended
        return self.statuses

    def inquire(self, node: str, _question: Any, kind: type[TaskFacts]) -> TaskFacts:
        assert node not in self.lost
        return kind(self.tasks_of[node])


def on_node(number: int, job: str, generation: int = 0, **fields: Any) -> Any:
    return a_task(number, name=task_name(job, generation), **fields)


def seen(pool: Any) -> Gathered:
    """Gather the tasks of a stand-in, which has the part of `Pool` that this takes."""
    return gathered(pool)


def test_the_last_task_of_an_array_is_last_wherever_its_plan_put_it() -> None:
    jobs = [new_id() for _ in range(10)]
    now = int(jobs[0][16:], 16) / 1e9
    # the nodes get them in another order, and the clock of one is late
    one, two = jobs[4::-1], jobs[5:]
    pool = FakePool(
        {
            "n1": [on_node(n, job, submitted=now + n) for n, job in enumerate(one, 1)],
            "n2": [on_node(n, job, submitted=now - n) for n, job in enumerate(two, 1)],
        }
    )

    found = seen(pool)

    assert [view.job for view in found.tasks] == jobs[::-1]
    assert [view.job for view in chosen(found, ["last"])] == [jobs[9]]


def test_jobs_whose_ids_say_no_time_are_ordered_by_their_submission() -> None:
    new = new_id()
    now = int(new[16:], 16) / 1e9
    pool = FakePool(
        {"n1": [on_node(1, OLD, submitted=now - 5), on_node(2, new, submitted=now)]}
    )
    assert [view.job for view in seen(pool).tasks] == [new, OLD]
    pool = FakePool(
        {"n1": [on_node(1, OLD, submitted=now + 5), on_node(2, new, submitted=now)]}
    )
    assert [view.job for view in seen(pool).tasks] == [OLD, new]
    pool = FakePool(
        {"n1": [on_node(2, new, submitted=now)]}, [JobStatus(OLD, "heat", "waiting")]
    )
    assert [view.job for view in seen(pool).tasks] == [OLD, new]


# ------------------------------------------------------------ nodes that are lost


def moved(job: str) -> Any:
    """Return the task that a job left behind on its first node."""
    return on_node(
        3, job, state="cancelled", reason=LEFT, resource="gpu0", finished=9.0
    )


def test_a_moved_job_is_unreachable_while_its_node_is_lost() -> None:
    job = new_id()
    status = JobStatus(job, "heat", "placed", "n2")
    pool = FakePool({"n1": [moved(job)], "n2": []}, [status], lost=("n2",))

    found = seen(pool)
    (view,) = found.tasks

    document = part_of(view, found)
    assert (document["state"], document["node"]) == ("unreachable", "n2")
    assert (document["reason"], document["resource"]) == ("n2: not connected", None)
    assert document["finished"] is None
    assert not view.ended


def test_a_job_that_is_on_its_way_is_moving_whatever_other_nodes_are_lost() -> None:
    job = new_id()
    status = JobStatus(job, "heat", "placed", "n2")
    nodes = {"n1": [moved(job)], "n2": [], "n3": []}

    (view,) = seen(FakePool(nodes, [status], lost=("n3",))).tasks

    assert view.state == "moving"


def test_a_moved_job_that_ended_is_on_one_of_the_lost_nodes() -> None:
    """The broker forgets what has ended; only the lost node knows how."""
    job = new_id()
    nodes = {"n1": [moved(job)], "n2": [], "n3": []}

    (view,) = seen(FakePool(nodes, lost=("n2", "n3"))).tasks

    assert (view.state, view.node) == ("unreachable", "")
    assert reason_of(view) == "n2: not connected; n3: not connected"


def test_a_job_that_began_on_a_lost_node_is_unreachable_too() -> None:
    job = new_id()
    status = JobStatus(job, "heat", "placed", "n2")
    pool = FakePool({"n1": [], "n2": []}, [status], lost=("n2",))

    (view,) = seen(pool).tasks

    assert (view.state, view.node) == ("unreachable", "n2")
