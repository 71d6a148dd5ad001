"""The worker pool: who holds which task, and what is sent to whom."""

from __future__ import annotations

import pytest

from hetd.tasks.worker_key import WorkerKey
from hetd.workers.pool import SPARE, SPARE_OF_ALL, WorkerPool
from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Sent, a_peer

THIRD = 3000


class Pool(WorkerPool):
    """A pool with what it sends."""

    def __init__(self) -> None:
        self.sent = Sent()
        super().__init__(self.sent.send, "7")

    def launcher(self, uid: int = USER, pid: int = 77) -> None:
        self.launcher_came(a_peer(f"launcher{uid}", uid, pid))

    def come(
        self, name: str, uid: int = USER, *, keeps: bool = False, **fields: object
    ) -> int | None:
        route = fields.pop("route", f"{name}@{uid}")
        hello = m.Register("worker", worker=name, **fields)  # type: ignore[arg-type]  # given as they are
        kept = [hello.task] if keeps and hello.task is not None else []
        lost = self.worker_came(a_peer(str(route), uid), hello, kept)
        return lost[0].task if lost else None

    def idle_and_busy(self) -> tuple[str, str]:
        """Have a worker that is idle and one that has task 2; return their names."""
        for task in (1, 2):
            self.bind(task, USER, 1)
        idle, busy = self.asked()
        self.come(idle)
        self.come(busy)
        self.release(1)
        return idle, busy

    def asked(self, uid: int = USER) -> list[str]:
        orders = self.sent.to(f"launcher{uid}", m.StartWorkers)
        return [name for order in orders for name in order.names]


@pytest.fixture
def pool() -> Pool:
    return Pool()


def a_run(task: int, epoch: int = 1) -> m.Run:
    return m.Run(task, epoch, m.DeviceSpec("cpu", "cpu"))


# ---------------------------------------------------------------- binding


def test_a_task_without_a_worker_asks_for_one_and_keeps_its_messages(
    pool: Pool,
) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    pool.send(1, a_run(1))
    pool.send(1, m.Preempt(1, 1))

    assert pool.asked() == ["7-1"]
    pool.come("7-1")

    assert pool.sent.messages[1:] == [
        ("7-1@1000", a_run(1)),
        ("7-1@1000", m.Preempt(1, 1)),
    ]


def test_an_idle_worker_gets_the_next_task(pool: Pool) -> None:
    pool.launcher()
    pool.come("w")

    pool.bind(1, USER, 1)
    pool.send(1, a_run(1))

    assert pool.sent.messages == [("w@1000", a_run(1))]


def test_tasks_get_workers_in_the_order_they_asked(pool: Pool) -> None:
    pool.launcher()
    for task in (1, 2, 3):
        pool.bind(task, USER, 1)
        pool.send(task, a_run(task))
    assert pool.asked() == ["7-1", "7-2", "7-3"]

    pool.come("7-2")
    pool.release(1)
    pool.come("7-1")

    assert [run.task for run in pool.sent.to("7-2@1000", m.Run)] == [1, 2]
    assert [run.task for run in pool.sent.to("7-1@1000", m.Run)] == [3]


def test_workers_of_one_user_never_get_tasks_of_another(pool: Pool) -> None:
    pool.launcher(USER)
    pool.launcher(OTHER)
    pool.come("w", USER)

    pool.bind(1, OTHER, 1)
    pool.send(1, a_run(1))

    assert pool.sent.to("w@1000", m.Run) == []
    assert pool.asked(OTHER) == ["7-1"]


def test_a_task_released_before_it_had_a_worker_leaves_none(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    pool.send(1, a_run(1))

    pool.release(1)
    pool.come("7-1")

    assert pool.sent.to("7-1@1000", m.Run) == []
    pool.bind(2, USER, 1)
    assert pool.asked() == ["7-1"]


def test_messages_to_tasks_that_nobody_holds_go_nowhere(pool: Pool) -> None:
    pool.send(9, m.Preempt(9, 1))

    assert pool.sent.messages == []


def test_spare_workers_retire(pool: Pool) -> None:
    names = [f"w{number}" for number in range(SPARE + 2)]

    for name in names:
        pool.come(name)

    retired = [route for route, message in pool.sent.messages]
    assert retired == ["w0@1000", "w1@1000"]


# ---------------------------------------------------------------- giving up


def test_a_worker_parted_from_its_task_is_idle_when_it_has_given_it_up(
    pool: Pool,
) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)
    pool.unbind(1)
    pool.bind(2, USER, 1)
    pool.send(2, a_run(2))
    assert pool.sent.messages == []

    pool.aborted(b"w@1000", 1)

    assert pool.sent.messages == [("w@1000", a_run(2))]


def test_only_a_worker_that_was_told_to_gives_up(pool: Pool) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)
    pool.bind(2, USER, 1)
    pool.send(2, a_run(2))

    pool.aborted(b"w@1000", 1)

    assert pool.sent.to("w@1000", m.Run) == []


def test_a_worker_that_does_not_obey_is_killed_by_its_launcher(pool: Pool) -> None:
    pool.launcher()
    pool.come("w")
    pool.bind(1, USER, 1)

    worker = pool.worker_of(1)
    assert worker is not None

    assert pool.end(worker, "why")

    assert pool.sent.messages == [("launcher1000", m.KillWorker("w", "why"))]


def test_nobody_kills_without_a_launcher(pool: Pool) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)

    worker = pool.worker_of(1)
    assert worker is not None
    assert not pool.end(worker, "why")


# ---------------------------------------------------------------- greetings


def test_a_worker_keeps_the_task_that_is_its_own(pool: Pool) -> None:
    pool.expect(5, USER, 3, None)
    assert pool.come("w", keeps=True, task=5, epoch=3) is None

    pool.send(5, m.Preempt(5, 3))

    assert pool.sent.messages == [("w@1000", m.Preempt(5, 3))]
    assert pool.held_at(5, b"w@1000")


def test_a_worker_gives_up_a_task_that_another_has_by_now(pool: Pool) -> None:
    pool.come("new")
    pool.bind(5, USER, 1)

    assert pool.come("old", task=5, epoch=3) is None
    pool.send(5, a_run(5, 4))

    assert pool.sent.messages == [
        ("old@1000", m.Abort(5, 3)),
        ("new@1000", a_run(5, 4)),
    ]
    assert pool.held_at(5, b"new@1000")
    # and is idle after that
    pool.bind(6, USER, 1)
    pool.send(6, a_run(6))
    pool.aborted(b"old@1000", 5)
    assert pool.sent.messages[-1] == ("old@1000", a_run(6))


def test_a_worker_that_comes_again_is_reached_anew(pool: Pool) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)

    assert pool.come("w", keeps=True, task=1, epoch=1, route="again") is None
    pool.send(1, m.Preempt(1, 1))

    assert pool.sent.messages == [("again", m.Preempt(1, 1))]
    assert not pool.held_at(1, b"w@1000")


def test_an_idle_worker_that_comes_again_is_idle_once(pool: Pool) -> None:
    pool.come("w")
    pool.come("w", route="again")

    for task in (1, 2):
        pool.bind(task, USER, 1)
        pool.send(task, a_run(task))

    assert pool.sent.messages == [("again", a_run(1))]


def test_a_task_whose_order_was_lost_is_told(pool: Pool) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)

    assert pool.come("w", route="again") == 1

    assert pool.worker_of(1) is None


def test_nobody_takes_the_name_of_another_users_worker(pool: Pool) -> None:
    pool.come("w", USER)
    pool.bind(1, USER, 1)

    pool.come("w", OTHER)
    pool.send(1, a_run(1))

    assert pool.sent.messages == [("w@1000", a_run(1))]
    assert pool.worker_left(OTHER, "w")
    assert pool.held_at(1, b"w@1000")


# ---------------------------------------------------------------- ends


def test_a_worker_that_leaves_tells_what_it_held(pool: Pool) -> None:
    pool.come("w")
    pool.bind(1, USER, 1)

    worker = pool.worker_left(USER, "w")

    assert worker is not None
    assert [binding.task for binding in worker.bindings] == [1]
    assert pool.worker_of(1) is None
    assert pool.worker_left(USER, "w") is None


def test_a_worker_that_never_came_costs_a_waiting_task_its_hope(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    pool.bind(2, USER, 1)

    assert pool.holds(USER, "7-1")
    assert not pool.holds(OTHER, "7-1")
    lacking = pool.failed_to_start(USER, "7-1")
    assert lacking is not None
    assert lacking.task == 1
    assert pool.failed_to_start(USER, "7-1") is None
    assert not pool.holds(USER, "7-1")


def test_a_stillborn_worker_that_nobody_waits_for_costs_nothing(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    pool.release(1)

    assert pool.failed_to_start(USER, "7-1") is None


def test_a_launcher_that_leaves_tells_who_waits(pool: Pool) -> None:
    pool.launcher(pid=77)
    pool.come("w")
    for task in (1, 2, 3):
        pool.bind(task, USER, 1)

    assert pool.launcher_left(a_peer("x", USER, 78)) == []
    waiting = pool.launcher_left(a_peer("x", USER, 77))
    assert [binding.task for binding in waiting] == [2, 3]
    assert not pool.has_launcher(USER)


def test_a_launcher_that_comes_makes_workers_for_all_who_wait(pool: Pool) -> None:
    for task in (1, 2):
        pool.bind(task, USER, 1)
    assert pool.sent.messages == []

    pool.launcher()

    assert pool.asked() == ["7-1", "7-2"]


def test_at_the_end_the_idle_go_home_and_the_busy_stay(pool: Pool) -> None:
    pool.launcher(USER)
    pool.launcher(OTHER)
    pool.come("busy", USER)
    pool.bind(1, USER, 1)
    pool.launcher(THIRD)
    for uid in (USER, OTHER):
        pool.come("idle", uid)

    pool.retire_launchers({USER: ["a task"], OTHER: []}.get)

    assert pool.sent.messages == [
        ("idle@1000", m.Retire()),
        ("idle@2000", m.Retire()),
        ("launcher2000", m.Retire()),
        ("launcher3000", m.Retire()),
    ]


# ---------------------------------------------------------------- own programs


def test_a_program_of_its_own_runs_only_what_it_submitted(pool: Pool) -> None:
    pool.launcher()
    pool.come("own", own=True)
    assert pool.free(USER, "own")
    assert not pool.free(OTHER, "own")

    pool.reserve(USER, "own", 1)
    pool.bind(1, USER, 1)
    pool.bind(2, USER, 1)
    for task in (1, 2):
        pool.send(task, a_run(task))

    assert pool.sent.to("own@1000", m.Run) == [a_run(1)]
    assert not pool.free(USER, "own")
    pool.release(1)
    assert pool.sent.to("own@1000", m.Run) == [a_run(1)]


def test_a_launchers_worker_cannot_be_reserved(pool: Pool) -> None:
    pool.come("w")

    assert not pool.free(USER, "w")


def test_a_launcher_tells_of_the_ends_of_its_own_workers_only(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    (asked,) = pool.asked()
    assert pool.supervised(USER, asked), "it is about to come"

    pool.come(asked)
    pool.come("orphan")
    assert pool.supervised(USER, asked)
    assert not pool.supervised(USER, "orphan"), "of a launcher that has died"

    pool.launcher_left(a_peer("x", USER, 77))
    assert not pool.supervised(USER, asked)

    pool.launcher_came(a_peer("again", USER, 78), [asked])
    assert pool.supervised(USER, asked), "it says so itself"


def test_a_launcher_that_yields_keeps_no_idle_workers(pool: Pool) -> None:
    first, second = a_peer(f"launcher{USER}", USER, 77), a_peer("second", USER, 78)
    pool.launcher_came(first)
    unused, used = pool.idle_and_busy()
    assert pool.is_launcher(first)
    assert not pool.is_launcher(second)

    pool.keep_no_idle_workers(USER)
    assert pool.sent.to(f"{unused}@{USER}", m.Retire)
    assert not pool.sent.to(f"{used}@{USER}", m.Retire)

    pool.release(2)
    assert pool.sent.to(f"{used}@{USER}", m.Retire)

    pool.bind(3, USER, 1)
    third = pool.asked()[-1]
    assert third not in {unused, used}, "both leave"
    pool.come(third)
    pool.launcher_left(first)
    pool.launcher_came(second)
    pool.release(3)
    assert not pool.sent.to(f"{third}@{USER}", m.Retire)


# ---------------------------------------------------------------- origins


HERE, THERE = WorkerKey("a" * 64), WorkerKey("a" * 64, "/home/ann")


def idle(pool: Pool, key: WorkerKey, task: int = 1) -> str:
    """Have a worker come for a task of a key, and end the task."""
    pool.bind(task, USER, 1, key)
    name = pool.asked()[-1]
    pool.come(name, origin=key.origin)
    pool.release(task)
    return name


def test_a_worker_is_asked_for_by_the_origin_of_the_task(pool: Pool) -> None:
    pool.launcher()

    pool.bind(1, USER, 1)
    pool.bind(2, USER, 1, THERE)

    asked = pool.sent.to(f"launcher{USER}", m.StartWorkers)
    assert asked == [m.StartWorkers(["7-1"]), m.StartWorkers(["7-2"], THERE.origin)]


def test_a_worker_serves_only_tasks_of_its_key(pool: Pool) -> None:
    pool.launcher()
    warm = idle(pool, THERE)

    pool.bind(2, USER, 1, HERE)
    pool.send(2, a_run(2))
    pool.bind(3, USER, 1, THERE)
    pool.send(3, a_run(3))

    assert pool.sent.to(f"{warm}@{USER}", m.Run) == [a_run(3)]
    assert pool.asked() == ["7-1", "7-2"]
    pool.check()


def test_a_waiting_task_of_another_key_keeps_no_worker_from_its_own(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1, HERE)
    pool.bind(2, USER, 1, THERE)
    pool.send(2, a_run(2))

    pool.come("7-2", origin=THERE.origin)

    assert pool.sent.to(f"7-2@{USER}", m.Run) == [a_run(2)]
    assert [each.task for each in pool.waiting(USER)] == [1]


def test_the_failed_start_of_a_worker_is_that_of_its_own_task(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1, HERE)
    pool.bind(2, USER, 1, THERE)

    failed = pool.failed_to_start(USER, "7-2")

    assert failed is not None
    assert failed.task == 2


def test_the_least_recently_used_worker_leaves_first(pool: Pool) -> None:
    pool.launcher()
    keys = [WorkerKey(str(number)) for number in range(SPARE_OF_ALL + 1)]
    names = [idle(pool, key) for key in keys[:-1]]
    pool.bind(2, USER, 1, keys[0])
    pool.release(2)  # used again

    idle(pool, keys[-1])

    assert pool.sent.to(f"{names[0]}@{USER}", m.Retire) == []
    assert pool.sent.to(f"{names[1]}@{USER}", m.Retire) == [m.Retire()]
    pool.check()


def test_a_worker_of_an_earlier_daemon_serves_tasks_of_its_origin(pool: Pool) -> None:
    pool.launcher()
    pool.come("6-1", origin=HERE.origin)

    pool.bind(1, USER, 1, HERE)
    pool.send(1, a_run(1))

    assert pool.sent.to(f"6-1@{USER}", m.Run) == [a_run(1)]


# ---------------------------------------------------------------- results on devices


def two_users(pool: Pool) -> None:
    for uid in (USER, OTHER):
        pool.launcher(uid)
        pool.come("a", uid)
    pool.come("b")


def test_a_task_gets_the_worker_that_may_hold_its_inputs(pool: Pool) -> None:
    two_users(pool)
    for task in (1, 2):
        pool.bind(task, USER, 1)
        pool.occupy(task, f"gpu{task}")
    holder, last = pool.worker_of(1), pool.worker_of(2)
    for task in (1, 2):
        pool.release(task)

    pool.bind(3, USER, 1, inputs=[1])
    pool.bind(4, OTHER, 1, inputs=[1])

    assert pool.worker_of(3) is holder is not last
    other = pool.worker_of(4)
    assert other is not None
    assert other.uid == OTHER


def test_a_device_is_given_to_one_process_after_another(pool: Pool) -> None:
    two_users(pool)
    pool.bind(1, USER, 1)
    pool.occupy(1, "gpu0")
    (mine,) = {pool.worker_of(1)}
    assert mine is not None
    pool.release(1)
    pool.bind(2, USER, 1, inputs=[1])
    pool.occupy(2, "gpu0")
    pool.release(2)
    assert pool.sent.to(mine.name, m.DropResidents) == []

    pool.bind(3, OTHER, 1)
    pool.occupy(3, "gpu1")
    assert pool.sent.messages == []
    pool.occupy(3, "gpu0")

    assert pool.sent.messages == [(f"{mine.name}@{USER}", m.DropResidents("gpu0"))]
    pool.sent.messages.clear()
    pool.occupy(3, "gpu0")  # again: nothing is left there
    assert pool.sent.messages == []


def test_a_process_that_computes_beside_another_is_told_each_time(pool: Pool) -> None:
    two_users(pool)
    pool.bind(1, USER, 1)
    pool.occupy(1, "gpu0")
    mine = pool.worker_of(1)
    assert mine is not None

    for task in (2, 3):
        pool.bind(task, OTHER, 1)
        pool.occupy(task, "gpu0")
        pool.release(task)

    order = (f"{mine.name}@{USER}", m.DropResidents("gpu0"))
    assert pool.sent.messages == [order, order]


def test_a_worker_that_comes_later_holds_the_device(pool: Pool) -> None:
    pool.launcher()
    pool.bind(1, USER, 1)
    pool.occupy(1, "gpu0")
    pool.come("7-1")
    pool.release(1)
    pool.launcher(OTHER)
    pool.come("o", OTHER)

    pool.bind(2, OTHER, 1)
    pool.occupy(2, "gpu0")

    assert pool.sent.messages[-1] == (f"7-1@{USER}", m.DropResidents("gpu0"))


def test_a_worker_that_left_holds_nothing(pool: Pool) -> None:
    two_users(pool)
    pool.bind(1, USER, 1)
    pool.occupy(1, "gpu0")
    (mine,) = {pool.worker_of(1)}
    assert mine is not None
    pool.worker_left(USER, mine.name)

    pool.bind(2, OTHER, 1)
    pool.occupy(2, "gpu0")

    assert pool.sent.messages == []
