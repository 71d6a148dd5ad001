"""Upward ranks, work left and places of inputs of jobs whose tasks depend on each other."""

from __future__ import annotations

import pytest

from builders import Harness, a_resource, a_task
from hetsched import events as e
from hetsched.graphs import JobGraphs
from hetsched.ids import TaskId
from hetsched.tasks import Row, TaskRecord

NODE = [a_resource("cpu"), a_resource("gpu")]


def finish(harness: Harness, task: int, at: float) -> None:
    epoch = harness.scheduler.system.tasks[TaskId(task)].epoch
    harness.handle(e.TaskFinished(TaskId(task), epoch), at)


def test_rank_and_work_left_of_a_diamond() -> None:
    seconds = {"a": {"cpu": 2.0, "gpu0": 4.0}, "b": {"cpu": 1.0, "gpu0": 3.0}}
    harness = Harness(NODE, {**seconds, "c": {"cpu": 10.0, "gpu0": 6.0}})
    system = harness.scheduler.system

    harness.handle(a_task(1, "a", job="j"))
    harness.handle(a_task(2, "b", job="j", after=[1]))
    harness.handle(a_task(3, "c", job="j", after=[1]))
    harness.handle(a_task(4, "a", job="j", after=[2, 3]))

    ranks = [system.rank(system.tasks[TaskId(t)]) for t in (1, 2, 3, 4)]
    assert ranks == [3 + 8 + 3, 2 + 3, 8 + 3, 3]
    job = system.job_of(system.tasks[TaskId(1)])
    assert job is not None
    assert system.work_left(job) == 2 + 1 + 6 + 2
    finish(harness, 1, 2.0)
    assert system.work_left(job) == 1 + 6 + 2
    assert system.work_left_of(system.tasks[TaskId(3)]) == 9


def test_a_single_task_has_its_own_mean_time_as_rank() -> None:
    harness = Harness(NODE, {"a": {"cpu": 2.0, "gpu0": 4.0}})
    system = harness.scheduler.system

    harness.handle(a_task(1, "a"))

    task = system.tasks[TaskId(1)]
    assert system.rank(task) == 3.0
    assert system.work_left_of(task) == 2.0
    assert system.job_of(task) is None
    assert not system.graphs.nodes


def test_inputs_lie_where_their_tasks_ran() -> None:
    harness = Harness(NODE, {"a": {"cpu": 2.0, "gpu0": 4.0}})
    system = harness.scheduler.system
    harness.handle(a_task(1, "a"))

    inputs = (e.TaskInput(TaskId(1), 500),)
    harness.handle(a_task(2, "a", after=[1], inputs=inputs))

    assert system.inputs_of(system.tasks[TaskId(2)]) == []
    finish(harness, 1, 2.0)
    assert system.inputs_of(system.tasks[TaskId(2)]) == [("cpu", 500)]


def test_nothing_is_kept_of_jobs_that_are_over() -> None:
    harness = Harness(NODE, {"a": {"cpu": 2.0, "gpu0": 4.0}})
    graphs = harness.scheduler.system.graphs
    for task in range(1, 6):
        harness.handle(a_task(task, "a", after=[task - 1] if task > 1 else []))

    for task in range(1, 6):
        finish(harness, task, float(task))

    assert not graphs.nodes
    assert not graphs.jobs


def test_the_end_of_a_failed_task_ends_its_job() -> None:
    harness = Harness(NODE, {"a": {"cpu": 2.0, "gpu0": 4.0}})
    graphs = harness.scheduler.system.graphs
    harness.handle(a_task(1, "a", job="j"))
    harness.handle(a_task(2, "a", job="j", after=[1]))

    harness.handle(e.TaskFailed(TaskId(1), 1, "broken"))

    assert not graphs.nodes
    assert not graphs.jobs


def test_jobs_of_one_name_of_two_owners_are_two() -> None:
    harness = Harness(NODE, {"a": {"cpu": 2.0, "gpu0": 4.0}})
    system = harness.scheduler.system
    harness.handle(a_task(1, "a", job="j", owner=1))
    harness.handle(a_task(2, "a", job="j", owner=2))

    assert system.work_left_of(system.tasks[TaskId(1)]) == 2.0


def a_record(number: int, after: tuple[int, ...]) -> TaskRecord:
    submitted = a_task(number, "a", after=after)
    row = Row("a", submitted.kinds, frozenset(), 1.0)
    return TaskRecord(
        id=submitted.task, row=row, submitted=submitted, arrival=0, sequence=number
    )


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_a_graph_of_10000_tasks_is_settled_in_bounded_steps(shape: str) -> None:
    graphs = JobGraphs(lambda _row: (1.0, 1.0))
    records: list[TaskRecord] = []
    for number in range(10_000):
        other = number - 1 if shape == "chain" else 0
        before = [records[other]] if number else []
        records.append(a_record(number, ()))
        graphs.add(records[-1], before)

    calls = 0
    while graphs.unsettled:
        graphs.settle(64)
        calls += 1

    depth = 10_000 if shape == "chain" else 2
    assert graphs.nodes[records[0].id].rank == depth
    assert calls <= 2 * 10_000 / 64 + 1


def test_ranks_are_those_of_the_heft_paper() -> None:
    """Topcuoglu et al., 2002, Fig. 2 and Table 3: ten tasks on three processors."""
    times = [
        (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
        (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
    ]  # fmt: skip
    edges = {
        2: {1: 18}, 3: {1: 12}, 4: {1: 9}, 5: {1: 11}, 6: {1: 14}, 7: {3: 23},
        8: {2: 19, 4: 27, 6: 15}, 9: {2: 16, 4: 23, 5: 13}, 10: {7: 17, 8: 11, 9: 13},
    }  # fmt: skip
    table = {f"t{i}": sum(row) / 3 for i, row in enumerate(times, start=1)}
    graphs = JobGraphs(lambda row: (table[row.type], 1.0), seconds_per_byte=1.0)
    records: dict[int, TaskRecord] = {}
    for number in range(1, 11):
        parents = edges.get(number, {})
        submitted = a_task(
            number,
            f"t{number}",
            after=parents,
            inputs=tuple(e.TaskInput(TaskId(p), size) for p, size in parents.items()),
        )
        row = Row(f"t{number}", submitted.kinds, frozenset(), 1.0)
        records[number] = TaskRecord(
            id=submitted.task, row=row, submitted=submitted, arrival=0, sequence=number
        )
        graphs.add(records[number], [records[p] for p in parents])

    ranks = [graphs.nodes[records[number].id].rank for number in range(2, 11)]

    assert [round(rank, 3) for rank in ranks] == [
        77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667,
    ]  # fmt: skip
    assert graphs.nodes[records[1].id].rank == pytest.approx(108.0)
