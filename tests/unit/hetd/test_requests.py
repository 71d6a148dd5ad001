"""The service: what users may ask, and what refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable

ADMIN = 0
"""root, who may do everything."""


# ---------------------------------------------------------------- submit


def test_tasks_are_accepted_all_or_none(shell: Shell) -> None:
    error = shell.error(m.Submit(7, [a_spec(), a_spec(resources=["nowhere"])]))

    assert (error.request, error.code) == (7, "not-found")
    assert shell.ask(m.ListTasks(1)).tasks == []
    assert shell.submit(a_spec(), a_spec()) == [1, 2]


def test_the_answer_says_whether_a_launcher_is_there(shell: Shell) -> None:
    before = shell.ask(m.Submit(1, [a_spec()]))
    shell.launcher()

    after = shell.ask(m.Submit(1, [a_spec()]))

    assert (before.launcher, after.launcher) == (False, True)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (a_spec(resources=["gpu"]), "no resource 'gpu'; there are: cpu, gpu0; did you"),
        (a_spec(kinds=["fpga"]), "app cannot run: it has implementations for fpga;"),
        (a_spec(kinds=[]), "it has implementations for nothing"),
        (a_spec(kinds=["cpu"], resources=["gpu0"]), "app cannot run on gpu0: it has"),
        (a_spec(strip=0), "strip: expected 1 iteration or more, got 0"),
        (
            a_spec(seconds={"cpu": 1.0, "gpu1": 2.0}),
            "seconds: no resource or kind 'gpu1' (did you mean gpu?); there are: cpu,",
        ),
        (a_spec(after=[99]), "no task 99"),
        (a_spec(after=[-1]), "after: -1 is before the first task of the submit"),
        (a_spec(after=[0]), "no task 0"),
    ],
)
def test_what_can_never_run_is_refused(
    shell: Shell, spec: m.TaskSpec, complaint: str
) -> None:
    error = shell.error(m.Submit(1, [spec]))

    assert complaint in error.text
    assert "\n" not in error.text


def test_negative_numbers_count_back_within_the_submit(shell: Shell) -> None:
    shell.submit(a_spec())

    ids = shell.submit(a_spec(), a_spec(after=[-1]), a_spec(after=[-2, -1]))

    infos = shell.ask(m.ListTasks(1, ids=ids)).tasks
    assert [info.after for info in infos] == [[2, 3], [2], []]
    error = shell.error(m.Submit(1, [a_spec(), a_spec(after=[-2])]))
    assert error.text == "after: -2 is before the first task of the submit"


def test_nobody_waits_for_another_users_task(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(), uid=USER)

    error = shell.error(m.Submit(1, [a_spec(after=[task])]), OTHER)

    assert (error.code, error.text) == ("not-allowed", "task 1 belongs to another user")


def test_a_completed_task_need_not_be_waited_for(shell: Shell) -> None:
    shell.worker("w")
    (first,) = shell.submit(a_spec())
    shell.finish("w", shell.run_of("w"))

    (second,) = shell.submit(a_spec(after=[first]))

    assert shell.state(second) == "running"


def test_the_same_key_gives_the_same_tasks(restart: Callable[[], Shell]) -> None:
    shell = restart()
    first = shell.submit(a_spec(), a_spec(), key="k")

    assert shell.submit(a_spec(), a_spec(), key="k") == first
    assert shell.submit(a_spec(), key="k", uid=OTHER) != first
    assert shell.submit(a_spec()) != shell.submit(a_spec())
    shell.commit()
    assert restart().submit(a_spec(), a_spec(), key="k") == first


def test_a_program_of_its_own_submits_one_task_for_itself(shell: Shell) -> None:
    shell.worker("own", own=True)

    absent = shell.error(m.Submit(1, [a_spec()], worker="nobody"))
    several = shell.error(m.Submit(1, [a_spec()] * 2, worker="own"))
    foreign = shell.error(m.Submit(1, [a_spec()], worker="own"), OTHER)
    shell.submit(a_spec(), worker="own")
    again = shell.error(m.Submit(1, [a_spec()], worker="own"))

    assert shell.run_of("own").task == 1
    for error in (absent, foreign, again):
        assert error.text.endswith("is not here or has a task")
    assert several.text == "a worker of its own runs 1 task, not 2"


# ---------------------------------------------------------------- list


def test_users_see_their_own_tasks_and_rulers_all(shell: Shell) -> None:
    shell.submit(a_spec(), a_spec())
    shell.submit(a_spec(), uid=OTHER)

    def seen(uid: int, *, mine: bool = False) -> list[int]:
        return [info.id for info in shell.ask(m.ListTasks(1, mine=mine), uid).tasks]

    assert seen(USER) == [2, 1]
    assert seen(OTHER) == [3]
    assert seen(ADMIN) == [3, 2, 1]
    assert seen(ADMIN, mine=True) == []
    error = shell.error(m.ListTasks(1, ids=[1]), OTHER)
    assert error.code == "not-allowed"


def test_pages_go_on_over_other_users_tasks(restart: Callable[[], Shell]) -> None:
    first = restart()
    first.submit(*[a_spec(hold=True)] * 3)
    first.submit(*[a_spec(hold=True)] * 20, uid=OTHER)
    first.submit(a_spec(hold=True))
    first.ask(m.Control(1, "cancel", [2]))
    first.ask(m.Control(1, "cancel", list(range(4, 24))), OTHER)
    first.commit()
    shell = restart()  # ended tasks are now on disk alone
    shell.runtime.restore()

    page = shell.ask(m.ListTasks(1, limit=3)).tasks
    rest = shell.ask(m.ListTasks(1, limit=3, before=page[-1].id)).tasks

    assert [info.id for info in page + rest] == [24, 3, 2, 1]
    assert [info.state for info in page + rest] == ["held", "held", "cancelled", "held"]


def test_pages_hold_at_least_one_task(shell: Shell) -> None:
    error = shell.error(m.ListTasks(1, limit=-1))

    assert error.text == "limit: expected 1 to 10000, got -1"


# ---------------------------------------------------------------- control


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_only_the_owner_and_rulers_control_a_task(shell: Shell, verb: str) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    request = m.Control(1, verb, [task])  # type: ignore[arg-type]  # one of the three

    assert shell.error(request, OTHER).code == "not-allowed"
    assert shell.state(task) == "held"
    assert shell.ask(request, ADMIN) == m.Done(1, [task])


def test_control_of_one_unknown_task_changes_none(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(hold=True))

    error = shell.error(m.Control(1, "cancel", [task, 99]))

    assert error.text == "no task 99"
    assert shell.state(task) == "held"


def test_cancelling_ends_those_that_come_after(shell: Shell) -> None:
    ids = shell.submit(a_spec(hold=True), a_spec(after=[-1]), a_spec(after=[-1]))

    done = shell.ask(m.Control(1, "cancel", ids))

    assert done.ids == ids
    assert [shell.state(task) for task in ids] == ["cancelled"] * 3
    assert shell.ask(m.Control(1, "cancel", ids)).ids == []


def test_a_task_is_moved_only_where_it_can_run(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(kinds=["cpu"], hold=True))

    assert "has implementations for cpu" in shell.error(m.Migrate(1, task, "gpu0")).text
    assert shell.error(m.Migrate(1, task, "gpu9")).code == "not-found"
    assert shell.error(m.Migrate(1, task, "cpu"), OTHER).code == "not-allowed"
    assert shell.ask(m.Migrate(1, task, "cpu")) == m.Done(1, [task])
    shell.ask(m.Control(1, "cancel", [task]))
    text = shell.error(m.Migrate(1, task, "cpu")).text
    assert text == "task 1 is cancelled; it cannot be moved"


# ---------------------------------------------------------------- the node


@pytest.mark.parametrize(
    "request_",
    [
        m.Drain(1, "cpu", on=True),
        m.Policies(1, set="migration"),
        m.AddSamples(1, [m.Sample("a/1", "cpu", 1.0)]),
        m.Stop(1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_only_rulers_change_the_node(shell: Shell, request_: m.Request) -> None:
    error = shell.error(request_)

    assert error.text == (
        "only root and the daemon's own user, and members of hetd-admin, may do that"
    )
    assert not shell.runtime.lifecycle.stop_requested
    assert not isinstance(shell.ask(request_, ADMIN), m.Error)


def test_devices_tell_their_condition(shell: Shell) -> None:
    running, waiting = shell.submit(*[a_spec(resources=["gpu0"])] * 2)

    before = shell.ask(m.Devices(1)).devices
    shell.ask(m.Drain(1, "gpu0", on=True), ADMIN)
    after = shell.ask(m.Devices(1)).devices

    assert [device.spec.name for device in before] == ["cpu", "gpu0"]
    assert (before[1].state, before[1].running) == ("up", [running])
    assert before[1].queued == 1
    assert (after[1].state, after[1].queued) == ("draining", 0)
    assert shell.state(waiting) == "queued"


def test_policies_are_told_and_set(shell: Shell) -> None:
    before = shell.ask(m.Policies(1))

    after = shell.ask(m.Policies(1, "migration", {"minimum_run_s": 3.0}), ADMIN)
    bad = shell.error(m.Policies(1, "migration", {"nonsense": 3}), ADMIN)

    assert before.name == "affinity"
    assert set(before.available) >= {"affinity", "work-conserving", "migration"}
    assert (after.name, after.parameters["minimum_run_s"]) == ("migration", 3.0)
    assert "nonsense" in bad.text
    assert shell.ask(m.Policies(1)).name == "migration"


def test_bad_samples_change_nothing(shell: Shell) -> None:
    good, bad = m.Sample("a/1", "cpu", 1.0), m.Sample("a/1", "gpu0", float("nan"))

    error = shell.error(m.AddSamples(1, [good, bad]), ADMIN)

    assert "a/1 on gpu0: a time must be positive and finite" in error.text
    assert shell.ask(m.Models(1)).samples == []


def test_learned_samples_are_told_and_kept(restart: Callable[[], Shell]) -> None:
    shell = restart()

    shell.ask(m.AddSamples(1, [m.Sample("a/1", "cpu", 2.5, 4.0)]), ADMIN)

    (known,) = shell.ask(m.Models(1), ADMIN).samples
    assert (known.type, known.resource, known.seconds, known.work) == (
        "a/1",
        "cpu",
        2.5,
        4.0,
    )
    shell.commit()
    (stored,) = restart().store.samples()
    assert (stored.type, stored.seconds) == ("a/1", 2.5)


def test_every_answer_has_the_number_of_its_request(shell: Shell) -> None:
    (task,) = shell.submit(a_spec(hold=True))
    requests: list[m.Request] = [
        m.Submit(11, [a_spec()]),
        m.ListTasks(12),
        m.Control(13, "release", [task]),
        m.Migrate(14, task, "gpu0"),
        m.Devices(15),
        m.Policies(16),
        m.Models(17),
        m.Migrate(18, 99, "gpu0"),
    ]

    answers = [shell.ask(request) for request in requests]

    assert [answer.request for answer in answers] == [*range(11, 19)]
