"""Users get equal parts of a resource, whatever they state, and however their tasks end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from builders import Harness, a_resource, a_task
from hetsched import events as e
from hetsched.actions import Run
from hetsched.ids import TaskId
from hetsched.limits import Limits, Quota, Quotas

if TYPE_CHECKING:
    from hetsched.actions import Action
    from hetsched.tasks import TaskRecord

HONEST, LIAR, BOSS = 1000, 2000, 3000
POLICIES = ["finish-time", "affinity", "work-conserving", "migration"]

End = Literal["finished", "failed", "lost", "cancelled"]


class Node:
    """One resource whose tasks take their true times, on a simulated clock."""

    def __init__(self, policy: str, slots: int = 1, **limits: Any) -> None:
        self.now = 0.0
        cpu = a_resource("cpu", slots=slots)
        self._harness = Harness([cpu], {}, policy, Limits(stage=0, **limits))
        self._true: dict[int, tuple[float, End]] = {}
        self._due: dict[int, float] = {}
        self.held: list[tuple[int, float, float]] = []
        """Owner, and from when to when, of each time in a slot."""
        self.started: dict[int, float] = {}

    def submit(
        self,
        owner: int,
        count: int,
        seconds: float,
        said: float | None,
        end: End = "finished",
        **fields: Any,
    ) -> list[int]:
        """Submit tasks that take `seconds` each, of which their user says `said`."""
        expected = () if said is None else (("cpu", said),)
        first = len(self._true) + 1
        tasks = list(range(first, first + count))
        self._true.update(dict.fromkeys(tasks, (seconds, end)))
        kind = f"uid:{owner}:{fields.pop('kind', 'work')}/1"
        events = [
            a_task(task, kind, owner=owner, seconds=expected, **fields)
            for task in tasks
        ]
        self._take(self._harness.handle_all(*events, at=self.now))
        return tasks

    def run(self, until: float) -> None:
        """Let tasks end until an instant."""
        while self._due and min(self._due.values()) <= until:
            task = min(self._due, key=lambda each: (self._due[each], each))
            self.now = self._due.pop(task)
            self._end(self._harness.scheduler.system.tasks[TaskId(task)])
        self.now = until

    def shares(self, owner: int, start: float, end: float) -> float:
        """Return the share of a user of the time that tasks held slots in an interval."""
        known = self.held + [
            (record.submitted.owner, self.started[record.id], self.now)
            for record in self._harness.scheduler.system.tasks.values()
            if record.resource is not None and record.id in self._due
        ]
        times = [
            (who, max(min(until, end) - max(since, start), 0.0))
            for who, since, until in known
        ]
        return sum(t for who, t in times if who == owner) / sum(t for _, t in times)

    def _end(self, task: TaskRecord) -> None:
        owner = task.submitted.owner
        self.held.append((owner, self.started[task.id], self.now))
        how = self._true[task.id][1]
        event: e.Event = e.TaskFinished(task.id, task.epoch)
        if how == "failed":
            event = e.TaskFailed(task.id, task.epoch, "it failed")
        elif how == "lost":
            event = e.WorkerLost(task.id, task.epoch, "its worker exited")
        elif how == "cancelled":
            self._handle(e.TaskCancelled(task.id, "its owner"))
            event = e.TaskAborted(task.id, task.epoch)
        self._handle(event)

    def _handle(self, event: e.Event) -> None:
        self._take(self._harness.handle(event, self.now))

    def _take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Run) and action.after is None:
                self.started[action.task] = self.now
                self._due[action.task] = self.now + self._true[action.task][0]


def each_second(node: Node, owner: int, seconds: int) -> list[float]:
    """Return the share of a user over each second, from each tenth of a second on."""
    starts = [n / 10 for n in range(10 * (seconds - 1) + 1)]
    return [node.shares(owner, start, start + 1.0) for start in starts]


def assert_equal_in_each_second(node: Node) -> None:
    shares = each_second(node, HONEST, 2)
    assert min(shares) >= 0.45
    assert max(shares) <= 0.55


@pytest.mark.parametrize("end", ["finished", "failed", "lost", "cancelled"])
@pytest.mark.parametrize("said", [1e-9, 0.01, None, 1000.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_user_gains_nothing_by_false_times(
    policy: str, said: float | None, end: End
) -> None:
    node = Node(policy)
    node.submit(LIAR, 120, 0.02, said, end)
    node.submit(HONEST, 120, 0.02, 0.02)

    node.run(2.0)

    assert_equal_in_each_second(node)


@pytest.mark.parametrize("policy", POLICIES)
def test_long_tasks_said_to_be_short_gain_nothing(policy: str) -> None:
    node = Node(policy, slots=2)
    node.submit(LIAR, 100, 0.04, 1e-9)
    node.submit(HONEST, 300, 0.01, 0.01)

    node.run(2.0)

    assert_equal_in_each_second(node)


@pytest.mark.parametrize("policy", POLICIES)
def test_types_of_many_times_gain_nothing(policy: str) -> None:
    node = Node(policy)
    for n in range(20):
        node.submit(LIAR, 8, 0.02, 10.0 ** (n - 10), kind=f"kind{n}")
    node.submit(HONEST, 120, 0.02, 0.02)

    node.run(2.0)

    assert_equal_in_each_second(node)


@pytest.mark.parametrize("policy", POLICIES)
def test_shares_hold_for_times_that_were_used(policy: str) -> None:
    quotas = Quotas(single={HONEST: Quota(share=3.0)})
    node = Node(policy, quotas=quotas)
    node.submit(LIAR, 120, 0.02, 1e-9)
    node.submit(HONEST, 120, 0.02, 0.02)

    node.run(2.0)

    assert node.shares(HONEST, 0.0, 2.0) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_priority_task_goes_before_those_of_a_liar(policy: str) -> None:
    node = Node(policy)
    node.submit(LIAR, 200, 0.004, 1e-9)
    node.submit(HONEST, 200, 0.004, 0.004)
    node.run(0.5)

    (urgent,) = node.submit(BOSS, 1, 0.004, 100.0, priority=5)
    node.run(0.6)

    assert node.started[urgent] <= 0.505


def test_a_user_who_comes_saves_no_turns() -> None:
    node = Node("finish-time")
    node.submit(HONEST, 120, 0.02, 0.02)
    node.run(1.0)

    node.submit(LIAR, 120, 0.02, 1e-9)
    node.run(2.0)

    assert node.shares(HONEST, 1.0, 2.0) == pytest.approx(0.5, abs=0.05)


def test_who_was_alone_owes_nothing_to_those_who_come() -> None:
    node = Node("finish-time", slots=2)
    node.submit(HONEST, 8, 1.0, 1.0)
    node.run(4.5)
    node.submit(LIAR, 1, 0.01, 0.01)
    node.run(5.5)
    node.submit(HONEST, 150, 0.02, 0.02)
    node.submit(LIAR, 150, 0.02, 0.02)

    node.run(7.5)

    assert node.shares(HONEST, 5.5, 6.5) == pytest.approx(0.5, abs=0.05)
