"""Equal users get equal parts of a node, whatever they say of their tasks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from builders import a_resource, a_task
from hetsched import events as e
from hetsched.estimates.stated_times import REMEMBERED, StatedTimes
from hetsched.ids import TaskId
from hetsched.limits import Quota, Quotas
from unit.hetsched.timed_node import ANN, BOB, SLOTS, Node, tasks_of

if TYPE_CHECKING:
    from hetsched.events import TaskSubmitted


@pytest.mark.parametrize("policy", ["affinity", "work-conserving", "finish-time"])
@pytest.mark.parametrize("each_new", [False, True])
@pytest.mark.parametrize("states", [1e-9, 0.01, 100.0, None])
def test_false_statements_change_nobodys_part(
    policy: str, states: float | None, *, each_new: bool
) -> None:
    """All tasks take two seconds; only one user says so."""
    node = Node(policy)
    honest = tasks_of(ANN, states=2.0)
    other = tasks_of(BOB, states=states, each_new=each_new, first=1001)

    node.submit(*honest, *other, takes=2.0)
    node.run(80.0)

    assert 0.45 <= node.part_of(BOB) <= 0.55


@pytest.mark.parametrize("policy", ["affinity", "finish-time"])
@pytest.mark.parametrize("states", [1e-9, 0.02, 100.0, None])
def test_parts_are_equal_in_each_second(policy: str, states: float | None) -> None:
    node = Node(policy)
    node.submit(*tasks_of(BOB, 400, states=states, first=1001), takes=0.02)
    node.submit(*tasks_of(ANN, 400, states=0.02), takes=0.02)

    for _ in range(6):
        node.used = {ANN: 0.0, BOB: 0.0}
        node.run(1.0)
        assert 0.45 <= node.part_of(BOB) <= 0.55


def test_who_errs_alike_keeps_taking_turns() -> None:
    node = Node()
    for first in range(1, 1001, 100):
        for user in (ANN, BOB):
            start = first + 10_000 * (user == BOB)
            node.submit(*tasks_of(user, 100, states=0.001, first=start), takes=0.01)

    for _ in range(4):
        node.used = {ANN: 0.0, BOB: 0.0}
        node.run(0.25)
        assert 0.45 <= node.part_of(BOB) <= 0.55


def test_who_states_too_much_is_not_left_behind() -> None:
    node = Node()
    node.submit(*tasks_of(BOB, states=1000.0))
    node.submit(*tasks_of(ANN, first=1001))

    node.run(80.0)

    assert 0.45 <= node.part_of(BOB) <= 0.55


def test_shares_hold_for_the_time_that_is_used() -> None:
    node = Node(quotas=Quotas(single={BOB: Quota(share=3.0)}))
    node.submit(*tasks_of(ANN, states=1e-9))
    node.submit(*tasks_of(BOB, first=1001))

    node.run(60.0)

    assert 0.7 <= node.part_of(BOB) <= 0.8


def test_what_one_used_alone_is_not_charged_when_another_comes() -> None:
    node = Node()
    node.submit(*tasks_of(BOB, 400, states=1e-9, each_new=True, first=1001))
    node.run(50.0)
    node.used = {ANN: 0.0, BOB: 0.0}

    node.submit(*tasks_of(ANN))
    node.run(80.0)

    assert 0.42 <= node.part_of(BOB) <= 0.58


def of_many_lengths(node: Node, owner: int, first: int) -> None:
    """Submit two minutes of tasks of one to five seconds, each of which is expected."""
    for number in range(40):
        length = 1.0 + (number * 7) % 5
        [task] = tasks_of(owner, 1, states=length, each_new=True, first=first + number)
        node.submit(task, takes=length)


@pytest.mark.parametrize("policy", ["affinity", "finish-time"])
def test_users_with_tasks_of_many_lengths_get_equal_parts(policy: str) -> None:
    """Whichever of their tasks a policy prefers."""
    node = Node(policy)
    of_many_lengths(node, ANN, 1)
    of_many_lengths(node, BOB, 1001)

    node.run(60.0)

    assert 0.42 <= node.part_of(BOB) <= 0.58


@pytest.mark.parametrize("policy", ["affinity", "finish-time"])
def test_who_comes_later_does_not_wait_for_all_that_came_before(policy: str) -> None:
    node = Node(policy)
    of_many_lengths(node, ANN, 1)
    node.run(20.0)
    node.used = {ANN: 0.0, BOB: 0.0}

    of_many_lengths(node, BOB, 1001)
    node.run(30.0)

    assert 0.4 <= node.part_of(BOB) <= 0.6


def test_absence_gives_no_credit() -> None:
    """Nobody catches up on the time in which there was nothing to run."""
    node = Node()
    node.submit(*tasks_of(BOB, 1, first=1001))
    node.submit(*tasks_of(ANN, 300))
    node.run(50.0)
    node.used = {ANN: 0.0, BOB: 0.0}

    node.submit(*tasks_of(BOB, 100, first=2001))

    for _ in range(5):
        node.used = {ANN: 0.0, BOB: 0.0}
        node.run(4.0)
        assert 0.35 <= node.part_of(BOB) <= 0.65


def test_a_long_task_of_one_who_was_alone_is_no_debt() -> None:
    node = Node()
    node.submit(*tasks_of(ANN, SLOTS, states=1.0), takes=100.0)
    node.run(90.0)
    node.submit(*tasks_of(ANN, 100, first=101))
    node.submit(*tasks_of(BOB, 100, first=1001))
    node.run(
        22.0
    )  # the long tasks have ended, and BOB has used as much as since he came
    node.used = {ANN: 0.0, BOB: 0.0}

    node.run(30.0)

    assert 0.35 <= node.part_of(BOB) <= 0.65


def test_a_task_that_takes_longer_than_stated_is_charged_while_it_runs() -> None:
    """Else tasks that are said to take no time would take one slot after the other."""
    node = Node(quotas=Quotas(single={ANN: Quota(share=2.0)}))
    liar = list(tasks_of(BOB, 60, states=1e-9, each_new=True, first=1001))
    node.submit(liar[0], takes=1000.0)
    node.submit(*tasks_of(ANN, 60))
    node.submit(*liar[1:], takes=1000.0)

    node.run(40.5)

    assert node.used == {ANN: 40.0, BOB: 0.0}


def test_what_was_not_used_elsewhere_is_a_small_credit_here() -> None:
    """Who used one GPU does not have the CPU alone for all that others used of it."""
    node = Node(resources=[a_resource("cpu", slots=4), a_resource("gpu")])
    [on_gpu] = tasks_of(BOB, 1, first=1001)
    node.submit(replace(on_gpu, kinds=frozenset({"gpu"})), takes=100.0)
    node.submit(*tasks_of(ANN, 1000))
    node.run(99.5)
    node.used = {ANN: 0.0, BOB: 0.0}

    node.submit(*tasks_of(BOB, 100, first=2001))
    node.run(10.0)

    assert 0.45 <= (node.used[BOB] - 100.0) / 40.0 <= 0.6


def test_accounts_of_owners_who_are_gone_are_forgotten() -> None:
    node = Node()
    for number in range(3000):
        owner = 10_000 + number
        node.used[owner] = 0.0
        node.submit(*tasks_of(owner, 1, first=5000 + number), takes=0.01)
        node.run(0.02)
    shares = node.harness.scheduler.state.shares

    assert len(shares._accounts) < 2000


def test_an_account_of_one_who_used_more_than_others_is_kept() -> None:
    shares = Node().harness.scheduler.state.shares
    debtor, _, live = (shares.account(owner) for owner in (ANN, BOB, 3))
    debtor.used, live.used = 5.0, 1.0

    shares.forget({live})

    assert shares._accounts == {ANN: debtor, 3: live}


each_helping_policy = pytest.mark.parametrize(
    "policy", ["finish-time", "work-conserving", "migration"]
)


def for_gpu(
    owner: int, first: int, kinds: frozenset[str] = frozenset({"cpu", "gpu"})
) -> list[TaskSubmitted]:
    """Make tasks that wait for the GPU, where they take half of their time on the CPU."""
    seconds = (("cpu", 2.0), ("gpu", 1.0))
    return [
        replace(task, kinds=kinds, seconds=seconds)
        for task in tasks_of(owner, 100, first=first)
    ]


@each_helping_policy
def test_an_idle_resource_helps_users_in_turn(policy: str) -> None:
    node = Node(policy, resources=[a_resource("cpu"), a_resource("gpu")])
    node.submit(*for_gpu(ANN, 1), *for_gpu(BOB, 1001), takes=1.5)

    node.run(30.0)

    starts = Counter(node.starts)
    for resource in ("cpu", "gpu0"):
        mine, others = starts[ANN, resource], starts[BOB, resource]
        assert mine + others >= 10
        assert 0.4 <= mine / (mine + others) <= 0.6


@each_helping_policy
def test_an_idle_resource_helps_the_next_user_if_it_cannot_help_the_first(
    policy: str,
) -> None:
    node = Node(policy, resources=[a_resource("cpu"), a_resource("gpu")])
    node.submit(*for_gpu(ANN, 1), *for_gpu(BOB, 1001, frozenset({"gpu"})), takes=1.5)

    node.run(30.0)

    starts = Counter(node.starts)
    assert starts[ANN, "cpu"] >= 10
    assert starts[BOB, "gpu0"] >= 10


def test_the_order_of_ones_own_tasks_stays() -> None:
    node = Node()
    node.submit(*tasks_of(ANN, 20, states=1e-9, each_new=True), takes=2.0)
    node.submit(*tasks_of(BOB, 20, first=1001), takes=2.0)
    order: list[int] = []
    while node.system.tasks:
        before = set(node.system.tasks)
        node.run(2.0)
        order += sorted(before - set(node.system.tasks))

    assert [task for task in order if task < 1000] == list(range(1, 21))


def test_turns_of_cancelled_tasks_are_given_back() -> None:
    node = Node()
    node.submit(*tasks_of(BOB, 100, first=1001))
    node.submit(*tasks_of(ANN, 300))
    for task in range(1010, 1101):
        node.handle(e.TaskCancelled(TaskId(task)))
    node.submit(*tasks_of(BOB, 100, first=2001))

    node.run(60.0)

    assert 0.42 <= node.part_of(BOB) <= 0.58


def test_a_user_whose_tasks_fail_gets_no_more_than_others() -> None:
    """Their time was used, although nothing was learned."""
    node = Node()
    node.submit(*tasks_of(ANN))
    node.submit(*tasks_of(BOB, states=1e-9, each_new=True, first=1001))
    used: Counter[int] = Counter()
    for _ in range(40):
        node.now += 1.0
        for record in list(node.system.states["cpu"].running.values()):
            used[record.submitted.owner] += 1
            if record.submitted.owner == BOB:
                node.handle(e.TaskFailed(record.id, record.epoch, "raised"))
            else:
                node.table.observe(record.row, node.cpu, 1.0, 0.0)
                node.handle(e.TaskFinished(record.id, record.epoch))

    assert 0.42 <= used[BOB] / used.total() <= 0.58


def test_an_owner_without_another_task_needs_no_correction() -> None:
    node = Node()
    node.submit(*tasks_of(ANN, 1, states=1e-9))
    node.submit(*tasks_of(BOB, 20, first=1001))

    node.run(30.0)

    assert node.used == {ANN: 1.0, BOB: 20.0}


def test_charges_do_not_depend_on_the_limit_of_one_call() -> None:
    node = Node(at_once=16)
    node.submit(*tasks_of(ANN, 200, states=1e-9))
    node.submit(*tasks_of(BOB, 200, first=1001))

    node.run(80.0)

    assert 0.42 <= node.part_of(BOB) <= 0.58


@pytest.mark.parametrize(
    ("work", "least"), [(7.0, 7.0), (0.0, 1.0), (-1.0, 1.0), (float("inf"), 1.0)]
)
def test_an_installed_application_is_not_taken_for_another_magnitude(
    work: float, least: float
) -> None:
    """A tenth of what another size tells; an amount that tells nothing counts as one."""
    node = Node()
    node.table.learn("heat/1", "cpu", 10.0, 1.0)
    stated = a_task(1, "heat/7", work=work, kinds={"cpu"}, seconds=(("cpu", 1e-9),))

    node.submit(stated)

    record = node.system.tasks[TaskId(1)]
    assert node.table.seconds(record.row, node.cpu) == pytest.approx(least)


# ---------------------------------------------------------------- corrections


def test_a_corrected_time_stays_finite() -> None:
    node = Node()
    node.submit(*tasks_of(ANN, 1, states=1e-9), takes=1e6)
    node.run(2e6)

    [other] = tasks_of(ANN, 1, states=1e300, each_new=True, first=2)
    node.submit(other)

    [record] = node.system.tasks.values()
    assert node.table.seconds(record.row, node.cpu) == 1e12


def test_a_user_without_measurements_is_believed() -> None:
    assert StatedTimes().correction(ANN) == 1.0


def test_what_is_said_for_all_users_is_not_corrected() -> None:
    stated = StatedTimes()

    assert not stated.compare(None, 1e-9, 1.0)
    assert stated.correction(None) == 1.0


def test_a_correction_is_for_one_user() -> None:
    stated = StatedTimes()

    assert stated.compare(ANN, 0.5, 2.0)

    assert stated.correction(ANN) == pytest.approx(4.0)
    assert stated.correction(BOB) == 1.0


@pytest.mark.parametrize(
    ("expected", "measured"), [(100.0, 5e-324), (1e-9, 1e300), (1e300, 1e-9)]
)
def test_a_correction_is_bounded(expected: float, measured: float) -> None:
    stated = StatedTimes()

    stated.compare(ANN, expected, measured)

    assert 0.99e-12 <= stated.correction(ANN) <= 1.01e12


def test_true_statements_in_between_do_not_hide_false_ones() -> None:
    stated = StatedTimes()
    for _ in range(REMEMBERED):
        stated.compare(ANN, 1e-6, 1.0)
        stated.compare(ANN, 1.0, 1.0)

    assert stated.correction(ANN) == pytest.approx(1e6)


def test_a_user_who_has_become_accurate_is_believed_again() -> None:
    stated = StatedTimes()
    stated.compare(ANN, 1e-6, 1.0)
    for _ in range(REMEMBERED):
        stated.compare(ANN, 1.0, 1.1)

    assert stated.correction(ANN) == pytest.approx(1.1)
