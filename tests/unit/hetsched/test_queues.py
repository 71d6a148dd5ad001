"""Run queues: order, and buckets by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_task
from hetsched.accounts import OwnerAccount
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


# ------------------------------------------------------------ several owners


def an_account(number: int, used: float = 0.0) -> OwnerAccount:
    account = OwnerAccount(number)
    account.used = used
    return account


def a_row(account: OwnerAccount, task_type: str = "A") -> Row:
    return Row(task_type, frozenset({"cpu"}), frozenset(), 1.0, account=account)


def with_charge(charge: float, task: TaskRecord) -> TaskRecord:
    task.charge = charge
    return task


OFFERED = st.lists(
    st.tuples(
        st.integers(0, 2),  # the account
        st.sampled_from(["A", "B"]),
        st.integers(0, 1),  # the priority
        st.sampled_from([-1.0, 0.0]),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),  # the charge
    ),
    max_size=12,
)


@given(OFFERED, st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=3, max_size=3))
def test_owners_take_turns_by_what_they_will_have_used(
    offered: list[tuple[int, str, int, float, float]], used: list[float]
) -> None:
    accounts = [an_account(number, start) for number, start in enumerate(used)]
    rows = {
        (n, name): a_row(each, name) for n, each in enumerate(accounts) for name in "AB"
    }
    queue = RunQueue()
    left: dict[TaskRecord, float] = {}
    for number, (owner, name, priority, rank, charge) in enumerate(offered):
        task = with_charge(charge, a_record(number, rows[owner, name], priority))
        queue.push(task, rank)
        left[task] = rank

    def turn(task: TaskRecord) -> tuple[float, ...]:
        account = task.row.account
        mine = used[account.number]
        return -task.priority, left[task], mine, account.number, task.sequence

    expected = []
    while left:
        task = min(left, key=turn)
        used[task.row.account.number] += task.charge
        del left[task]
        expected.append(task)
    for count in range(len(offered) + 1):
        assert queue.first(count) == expected[:count]
    assert list(queue) == expected
    for task in expected:
        assert queue.head() is task
        assert queue.pop() is task
        task.row.account.used += task.charge
    assert [account.waiting for account in accounts] == [0, 0, 0]


@pytest.mark.parametrize(
    ("credit", "task_is_next"), [(0.0, False), (0.9, False), (1.1, True)]
)
def test_a_task_is_as_good_as_the_first_within_a_credit(
    credit: float, *, task_is_next: bool
) -> None:
    mine, other = a_row(an_account(1, used=3.0)), a_row(an_account(2, used=2.0))
    queue = a_queue(a_record(1, other), a_record(2, mine))

    found = queue.next_of(mine, credit)

    assert (found is not None) == task_is_next


def test_a_higher_priority_goes_before_any_credit() -> None:
    mine, other = a_row(an_account(1)), a_row(an_account(2, used=9.0))
    queue = a_queue(a_record(1, mine), a_record(2, other, priority=1))

    assert queue.next_of(mine, 100.0) is None
    assert queue.next_of(other, 0.0) is not None


def test_an_earlier_task_of_the_same_owner_goes_before_any_credit() -> None:
    account = an_account(1)
    first, second = a_row(account), a_row(account, "B")
    queue = a_queue(a_record(1, first), a_record(2, second))

    assert queue.next_of(second, 100.0) is None
    assert queue.next_of(a_row(account, "C"), 100.0) is None


def test_the_tasks_of_others_with_an_earlier_turn_are_counted() -> None:
    """Of ten alike, those that end up to where the counted task begins."""
    mine, other = a_row(an_account(1)), a_row(an_account(2, used=2.0))
    tasks = [with_charge(1.0, a_record(n, mine)) for n in range(10)]
    others = [with_charge(1.0, a_record(n, other)) for n in range(10, 20)]
    queue = a_queue(*tasks, *others)

    assert queue.count_ahead_of(tasks[1]) == {mine: 1}
    assert queue.count_ahead_of(tasks[6]) == {mine: 6, other: 4}
    assert queue.count_ahead_of(others[9]) == {mine: 10, other: 9}


def test_others_of_higher_priority_are_counted_whatever_they_used() -> None:
    mine, other = a_row(an_account(1)), a_row(an_account(2, used=100.0))
    task = with_charge(1.0, a_record(1, mine))
    urgent = [with_charge(1.0, a_record(n, other, priority=1)) for n in (2, 3)]
    later = with_charge(1.0, a_record(4, other))

    assert a_queue(task, *urgent, later).count_ahead_of(task) == {other: 2}


@given(STEPS)
def test_the_rows_of_each_owner_are_those_with_waiting_tasks(
    steps: list[tuple[int, Row, float]],
) -> None:
    accounts = [an_account(number) for number in range(3)]
    rows = [a_row(accounts[n % 3], name) for n, name in enumerate("ABCDEF")]
    tasks = [a_record(n) for n in range(8)]
    queue = RunQueue()

    for number, row, rank in steps:
        if tasks[number] in queue:
            queue.remove(tasks[number])
        else:
            tasks[number].row = rows[ROWS.index(row)]
            queue.push(tasks[number], rank)
        waiting = list(queue.rows())
        owners = {row.account for row in waiting}

        assert queue.is_mixed() == (len(owners) > 1)
        found = {next(iter(own)).account: list(own) for own in queue.rows_of_owners()}
        assert found == {
            owner: [row for row in waiting if row.account is owner] for owner in owners
        }
