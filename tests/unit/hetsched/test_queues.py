"""Run queues: order, and buckets by row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import a_task
from hetsched.queues import RunQueue
from hetsched.tasks import Row, TaskRecord

ROWS = [Row(name, frozenset({"cpu"}), frozenset(), 1.0) for name in "ABCDEF"]
A, B, C = ROWS[:3]


def a_record(number: int, row: Row = A, priority: int = 0) -> TaskRecord:
    return TaskRecord(
        id=a_task(number).task,
        row=row,
        submitted=a_task(priority=priority),
        arrival=0,
        sequence=number,
    )


def numbers(tasks: list[TaskRecord]) -> list[int]:
    return [task.id for task in tasks]


def a_queue(*tasks: TaskRecord) -> RunQueue:
    queue = RunQueue()
    for task in tasks:
        queue.push(task)
    return queue


def test_priority_goes_before_rank_and_rank_before_arrival() -> None:
    queue = a_queue(a_record(1), a_record(2), a_record(3, B, priority=1))

    queue.push(a_record(4), rank=-1.0)

    assert numbers(list(queue)) == [3, 4, 1, 2]
    assert [queue.pop().id for _ in range(4)] == [3, 4, 1, 2]


def test_an_empty_queue_has_no_head_and_no_rows() -> None:
    queue = a_queue(a_record(1))

    queue.pop()

    assert (queue.head(), list(queue.rows()), queue.first(2)) == (None, [], [])
    assert (len(queue), queue.count_of(A)) == (0, 0)


def test_each_row_shows_its_first_task() -> None:
    queue = a_queue(a_record(1), a_record(2), a_record(3, B), a_record(4, B))

    assert numbers(list(queue.heads())) == [1, 3]
    assert queue.head_of(B).id == 3


def test_rows_can_leave_out_the_first_tasks_of_all() -> None:
    queue = a_queue(a_record(1), a_record(2), a_record(3, B), a_record(4, C))

    assert numbers(list(queue.heads(skip=1))) == [2, 3, 4]
    assert numbers(list(queue.heads(skip=3))) == [4]
    assert numbers(list(queue.heads(skip=9))) == []


def test_a_task_that_left_from_the_middle_is_not_seen_again() -> None:
    tasks = [a_record(number) for number in range(1, 6)]
    queue = a_queue(*tasks)

    queue.remove(tasks[1])
    queue.remove(tasks[3])

    assert numbers(queue.first(9)) == [1, 3, 5]
    assert numbers(list(queue.heads(skip=1))) == [3]


def test_a_task_that_came_back_in_another_row_is_there_once() -> None:
    first, task = a_record(1), a_record(2)
    queue = a_queue(first, task)

    queue.remove(task)
    task.row = B
    queue.push(task)
    queue.remove(first)

    assert numbers(queue.first(9)) == [2]
    assert list(queue.rows()) == [B]


def test_a_task_that_came_back_is_there_once() -> None:
    first, task = a_record(1), a_record(2)
    queue = a_queue(first, task)

    queue.remove(task)
    queue.push(task)

    assert numbers(queue.first(9)) == [1, 2]
    assert [queue.pop().id, queue.pop().id, len(queue)] == [1, 2, 0]


def test_the_first_two_of_many_rows_may_be_of_one_row() -> None:
    queue = a_queue(*(a_record(n, row) for n, row in enumerate(ROWS, 10)))
    queue.push(a_record(1, B))
    before = numbers(queue.first(2))
    queue.push(a_record(2, B))

    assert before == [1, 10]
    assert numbers(queue.first(2)) == [1, 2]
    assert queue.first(0) == []


def test_tasks_that_come_and_go_do_not_fill_memory() -> None:
    head, other = a_record(1), a_record(2)
    queue = a_queue(head, other)

    for _ in range(10_000):
        queue.remove(other)
        queue.push(other)

    assert queue.count_of(A) < 100
    assert numbers(list(queue)) == [1, 2]


STEPS = st.lists(
    st.tuples(st.integers(0, 7), st.sampled_from(ROWS), st.sampled_from([-1.0, 0.0]))
)


@given(STEPS, st.integers(0, 9))
def test_a_queue_is_a_sorted_list(
    steps: list[tuple[int, Row, float]], count: int
) -> None:
    tasks = [a_record(n, priority=n % 2) for n in range(8)]
    queue = RunQueue()
    model: dict[TaskRecord, tuple[int, float, int]] = {}

    for number, row, rank in steps:
        task = tasks[number]
        if task in model:
            queue.remove(task)
            del model[task]
        else:
            task.row = row
            queue.push(task, rank)
            model[task] = (-task.priority, rank, task.sequence)

    ordered = sorted(model, key=model.__getitem__)
    rest = ordered[count:]
    firsts = {
        row: next(t for t in rest if t.row is row) for row in {t.row for t in rest}
    }
    assert list(queue) == ordered
    assert queue.first(count) == ordered[:count]
    assert queue.head() == (ordered[0] if ordered else None)
    assert {task.row: task for task in queue.heads(skip=count)} == firsts
    assert [queue.pop() for _ in model] == ordered


def test_the_tasks_ahead_of_one_are_counted_by_row() -> None:
    queue = a_queue(a_record(1), a_record(2), a_record(3, B), a_record(4, B))

    assert queue.count_ahead_of(queue.first(1)[0]) == {}
    assert queue.count_ahead_of(queue.first(4)[3]) == {A: 2, B: 1}
