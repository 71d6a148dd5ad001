"""Trains in the daemon's shell: what workers are ordered, and what their reports lead to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hetd.tasks.page import decode, encode
from hetsched import events as e
from hetsched.ids import TaskId
from libtask import messages as m
from unit.daemon_shell import Shell, a_peer, a_spec

CPU = {"kinds": ["cpu"], "resources": ["cpu"]}


def a_train(shell: Shell, tasks: int = 6) -> list[m.Run]:
    """Let worker "w" have a train; the other slot runs one task that takes long."""
    shell.parts.estimates.learn("long", "cpu", 1.0, 1.0)
    shell.parts.estimates.learn("app", "cpu", 1e-4, 1.0)
    shell.worker("other")
    shell.submit(a_spec(**{**CPU, "app": "long"}))
    shell.worker("w")
    shell.submit(*[a_spec(**CPU)] * tasks)
    return shell.sent.to("w", m.Run)


def report(shell: Shell, *runs: m.Run, ended: float = 0.0) -> None:
    ends = [m.Finished(each.task, each.epoch, ended=ended, strips=1) for each in runs]
    shell.reports.report(a_peer("w"), m.Reports(ends))


def attempts(shell: Shell, runs: list[m.Run]) -> list[int]:
    tasks = shell.runtime.scheduler.system.tasks
    return [tasks[each.task].attempts for each in runs]  # type: ignore[index]  # an id


def test_one_worker_gets_several_short_tasks_as_one_message(shell: Shell) -> None:
    runs = a_train(shell)

    # of six, two slots share what waits behind the first
    assert [run.follows for run in runs] == [False, True, True]
    assert all(run.spec is not None for run in runs)
    assert {shell.state(run.task) for run in runs} == {"running"}
    shell.pool.check()


def test_reports_of_several_tasks_end_them_at_one_instant(shell: Shell) -> None:
    runs = a_train(shell)
    handled = shell.runtime.counters.decided

    report(shell, *runs)

    assert {shell.state(run.task) for run in runs} == {"completed"}
    assert shell.runtime.counters.decided == handled + len(runs)
    # the next train, in the same worker
    assert len(shell.sent.to("w", m.Run)) > len(runs)
    shell.pool.check()


def test_the_stretches_of_a_train_do_not_overlap(shell: Shell) -> None:
    runs = a_train(shell)
    report(shell, *runs)

    pages = [shell.journal.find(run.task) for run in runs]
    stretches = [each.segments[0] for each in pages if each is not None]
    assert len(stretches) == len(runs)
    for before, after in pairwise(stretches):
        assert before.finish is not None
        assert before.finish <= after.start
    assert all(each.strips == 1 for each in stretches)


def test_what_is_told_together_is_kept_as_what_is_told_alone(shell: Shell) -> None:
    runs = a_train(shell)
    ends = [
        m.Finished(each.task, each.epoch, result=number, exit_code=0, warnings=["odd"])
        for number, each in enumerate(runs)
    ]

    shell.reports.report(a_peer("w"), m.Reports(ends))

    pages = [shell.journal.find(run.task) for run in runs]
    kept = [(e.result, e.exit_code, e.warnings) for e in pages if e is not None]
    assert kept == [(number, 0, ("odd",)) for number in range(len(runs))]


def test_commands_go_alone(shell: Shell) -> None:
    shell.parts.estimates.learn("true", "cpu", 1e-4, 1.0)
    shell.worker("w")
    spec = a_spec(**{**CPU, "app": "command", "type": "true"})
    shell.submit(*[spec] * 6)

    assert [run.follows for run in shell.sent.to("w", m.Run)] == [False]


@pytest.mark.parametrize("end", [m.Finished, m.Aborted])
def test_what_begins_though_it_was_asked_back_has_its_stretch(
    shell: Shell, end: type[m.Finished | m.Aborted]
) -> None:
    runs = a_train(shell)
    scheduler = shell.runtime.scheduler
    scheduler.state.recall(scheduler.system.tasks[TaskId(runs[1].task)])
    report(shell, runs[0])
    task, epoch = runs[1].task, runs[1].epoch
    page = shell.journal.live[task]
    assert not page.segments
    if end is m.Aborted:
        shell.runtime.dispatch(e.TaskCancelled(TaskId(task)))

    shell.reports.report(a_peer("w"), end(task, epoch, strips=3, log="its log"))

    (stretch,) = page.segments
    assert (stretch.strips, stretch.log) == (3, "its log")
    assert page.state == ("cancelled" if end is m.Aborted else "completed")
    shell.pool.check()


def _is_watched(shell: Shell, run: m.Run) -> bool:
    binding = shell.pool.binding(run.task)
    return binding is not None and binding.watched is not None


def test_a_task_behind_others_is_watched_from_when_it_begins(shell: Shell) -> None:
    runs = a_train(shell)

    before = [_is_watched(shell, run) for run in runs]
    report(shell, runs[0])
    after = [_is_watched(shell, run) for run in runs[1:]]

    assert (before, after) == ([True, False, False], [True, False])


def test_who_leaves_gives_back_what_it_has_not_begun(shell: Shell) -> None:
    runs = a_train(shell)

    shell.reports.worker_leaves(a_peer("w"))

    assert attempts(shell, runs) == [0, 0, 0]
    assert not any(shell.pool.held_at(run.task, b"w") for run in runs)
    shell.pool.check()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_lost_worker_costs_an_attempt_the_task_that_it_ran(
    shell: Shell, place: int
) -> None:
    runs = a_train(shell)
    ran = runs[place]
    last = m.LastOutput(task=ran.task, epoch=ran.epoch, reason="it crashed")

    shell.reports.worker_left(1000, "w", "it crashed", last=last)

    expected = [0, 0, 0]
    expected[place] = 1
    assert attempts(shell, runs) == expected
    shell.pool.check()


def test_a_worker_that_comes_again_keeps_what_it_ended_and_drops_the_rest(
    shell: Shell,
) -> None:
    runs = a_train(shell)
    ended = [m.TaskEpoch(runs[0].task, runs[0].epoch)]

    shell.worker("w", route="w", task=runs[1].task, epoch=runs[1].epoch, ended=ended)
    report(shell, runs[0])

    assert shell.state(runs[0].task) == "completed"
    assert shell.pool.held_at(runs[1].task, b"w")
    assert not shell.pool.held_at(runs[2].task, b"w")
    assert attempts(shell, runs[1:]) == [0, 0]


def test_a_start_lets_wait_what_was_behind_others(shell: Shell) -> None:
    runs = a_train(shell)
    pages = [shell.journal.live[run.task] for run in runs]

    stored = [decode(encode(page)).runtime for page in pages]

    assert [each.in_worker for each in stored] == [True] + [False] * (len(runs) - 1)


def test_a_train_without_a_worker_gets_one_worker(shell: Shell) -> None:
    shell.parts.estimates.learn("app", "cpu", 1e-4, 1.0)
    shell.launcher()
    tasks = shell.submit(*[a_spec(**CPU)] * 6)
    (order,) = shell.sent.to("launcher1000", m.StartWorkers)[:1]
    shell.pool.check()

    shell.worker(order.names[0])

    assert len(shell.sent.to(order.names[0], m.Run)) > 1
    assert len(tasks) == 6
    shell.pool.check()


def test_a_launcher_that_leaves_costs_what_follows_no_attempt(shell: Shell) -> None:
    shell.parts.estimates.learn("app", "cpu", 1e-4, 1.0)
    peer = shell.launcher()
    shell.submit(*[a_spec(**CPU)] * 6)

    shell.reports.launcher_left(peer)

    records = shell.runtime.scheduler.system.tasks.values()
    assert all(record.attempts == 0 for record in records)
    shell.pool.check()
    shell.runtime.scheduler.check()


def test_what_waits_in_a_worker_is_queued_for_users(shell: Shell) -> None:
    runs = a_train(shell)
    first, *others = [run.task for run in runs]

    listed = shell.ask(m.ListTasks(1, states=["queued"]))
    why = shell.ask(m.Explain(1, others[0]))
    devices = shell.ask(m.Devices(1)).devices
    (cpu,) = [each for each in devices if each.spec.name == "cpu"]

    assert isinstance(listed, m.TaskList)
    assert {each.id for each in listed.tasks} >= set(others)
    assert {each.state for each in listed.tasks} == {"queued"}
    assert first not in {each.id for each in listed.tasks}
    assert isinstance(why, m.Explained)
    text = f"waits for cpu, in the worker that runs task {first}"
    assert (why.state, why.why) == ("queued", text)
    assert (first in cpu.running, cpu.queued) == (True, len(listed.tasks))
    assert shell.journal.counts["queued"] == len(listed.tasks)  # type: ignore[index]

    report(shell, runs[0])
    (began,) = shell.ask(m.ListTasks(1, ids=[others[0]])).tasks
    assert began.state == "running"
