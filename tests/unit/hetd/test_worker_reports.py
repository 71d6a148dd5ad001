"""The crew desk: which reports count, and what becomes of tasks without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetsched.events import Event
    from hetsched.policy import Decision
    from hetsched.system import System


def _running(shell: Shell, **fields: object) -> tuple[int, m.Run]:
    """Submit a task, and let worker "w" run it."""
    shell.worker("w")
    (task,) = shell.submit(a_spec(**fields))
    return task, shell.run_of("w")


def _progress(run: m.Run, done: int, total: int = 10, **fields: float) -> m.Progress:
    record = m.CheckpointRecord(done, total)
    return m.Progress(run.task, run.epoch, record, 0.1, done, **fields)  # type: ignore[arg-type]  # numbers all


# ---------------------------------------------------------------- reports


def test_a_task_from_its_order_to_its_result(shell: Shell) -> None:
    task, run = _running(shell)
    peer, began = a_peer("w"), shell.runtime.clock.wall()

    shell.reports.report(peer, _progress(run, 4, started=began, transfer_in=0.5))
    page = shell.journal.find(task)
    assert page is not None
    assert page.progress == 0.4
    shell.finish("w", run, result={"a": 1}, seconds=2.0, strips=3, log="L", log_end=9)

    info = shell.ask(m.ListTasks(1, ids=[task], detail=True)).tasks[0]
    (segment,) = info.segments
    assert (info.state, info.result, info.progress) == ("completed", {"a": 1}, 1.0)
    assert (segment.computing, segment.seconds, segment.strips) == (began, 2.0, 3)
    assert (segment.log, segment.log_start, segment.log_end) == ("L", 0, 9)
    # the worker is free for the next task
    shell.submit(a_spec())
    assert len(shell.sent.to("w", m.Run)) == 2


class AskedPolicy:
    """Decides nothing, and lists the types of the events for which it is asked."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def react(self, event: Event, system: System, now: int) -> Iterable[Decision]:
        self.events.append(type(event).__name__)
        return ()


def test_the_first_report_of_a_segment_asks_the_policy_once(shell: Shell) -> None:
    _, run = _running(shell)
    policy = shell.runtime.scheduler.policy = AskedPolicy()

    shell.reports.report(a_peer("w"), _progress(run, 4, started=1.0))

    assert policy.events == ["StripsDone"]


def test_reports_of_others_and_of_old_epochs_do_not_count(shell: Shell) -> None:
    task, run = _running(shell)
    shell.worker("thief", OTHER)
    finished = m.Finished(task, run.epoch, result="mine")

    shell.reports.report(a_peer("thief", OTHER), finished)
    shell.reports.report(a_peer("nobody"), finished)
    shell.reports.report(a_peer("w"), m.Finished(task, run.epoch - 1))
    shell.reports.report(a_peer("w"), m.Finished(task + 1, run.epoch))

    assert shell.state(task) == "running"


def test_a_yielded_task_goes_on_where_it_was_sent(shell: Shell) -> None:
    task, run = _running(shell, resources=["cpu"])
    shell.ask(m.Migrate(1, task, "gpu0"))
    (preempt,) = shell.sent.to("w", m.Preempt)

    yielded = m.Yielded(
        task, run.epoch, m.CheckpointRecord(5, 10), seconds=1.0, iterations=5, strips=2
    )
    shell.reports.report(a_peer("w"), yielded)

    first, second = shell.sent.to("w", m.Run)
    assert (preempt.task, preempt.epoch) == (task, run.epoch)
    assert (first.device.name, second.device.name) == ("cpu", "gpu0")
    assert second.spec is None, "the worker still holds it"
    page = shell.journal.find(task)
    assert page is not None
    assert [(s.resource, s.strips) for s in page.segments] == [("cpu", 2), ("gpu0", 0)]
    assert (page.migrations, page.progress) == (0, 0.5), "it may fail there yet"
    progress = m.Progress(
        task, run.epoch, m.CheckpointRecord(6, 10), 0.5, 1, started=1.0
    )
    shell.reports.report(a_peer("w"), progress)
    assert (page.migrations, shell.journal.migrations) == (1, 1)


@pytest.mark.parametrize(
    ("code", "state"), [("task-failed", "failed"), ("device", "running")]
)
def test_only_a_devices_failure_is_tried_elsewhere(
    shell: Shell, code: str, state: str
) -> None:
    task, run = _running(shell)

    shell.reports.report(a_peer("w"), m.Failed(task, run.epoch, "it broke", code))

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.reason) == (state, "it broke")
    places = [order.device.name for order in shell.sent.to("w", m.Run)]
    assert places == (["cpu"] if state == "failed" else ["cpu", "gpu0"])


# ---------------------------------------------------------------- losses


def test_a_task_whose_worker_left_runs_anew_until_its_attempts_are_spent(
    shell: Shell,
) -> None:
    shell.launcher()
    (task,) = shell.submit(a_spec(kinds=["cpu"]))

    for attempt in (1, 2, 3):
        name = f"1-{attempt}"
        shell.worker(name)
        assert shell.state(task) == "running"
        exited = m.WorkerExited(name, -9, "killed by signal 9 (SIGKILL)")
        shell.reports.worker_exited(a_peer("launcher1000"), exited)

    page = shell.journal.find(task)
    assert page is not None
    assert page.state == "failed"
    assert page.reason == "killed by signal 9 (SIGKILL); 3 attempts are the limit"


def test_what_a_lost_worker_wrote_last_is_kept_with_its_task(shell: Shell) -> None:
    launcher = shell.launcher()
    task, run = _running(shell)
    last = m.LastOutput(
        task,
        run.epoch,
        "killed by signal 6 (SIGABRT) while opening cpu: no driver",
        "while opening cpu",
        ["no driver"],
        log="/logs/w.log",
        log_start=5,
        log_end=15,
    )
    exited = m.WorkerExited("w", -6, "killed by signal 6 (SIGABRT)", last=last)

    shell.reports.worker_exited(launcher, exited)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.reason, page.last_output) == (last.reason, last)
    segment = page.segments[0]
    assert segment.finish is not None
    assert (segment.error, segment.failed_attempt) == (last.reason, True)
    assert (segment.log, segment.log_start, segment.log_end) == ("/logs/w.log", 5, 15)


def test_what_a_lost_worker_wrote_of_another_task_is_not_kept(shell: Shell) -> None:
    launcher = shell.launcher()
    task, run = _running(shell)
    of_before = m.LastOutput(task, run.epoch - 1, "killed by signal 6: of another")
    exited = m.WorkerExited("w", -6, "killed by signal 6 (SIGABRT)", last=of_before)

    shell.reports.worker_exited(launcher, exited)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.reason, page.last_output) == ("killed by signal 6 (SIGABRT)", None)
    assert page.segments[0].error == "killed by signal 6 (SIGABRT)"


def test_a_lost_worker_that_computed_was_no_failed_attempt(shell: Shell) -> None:
    launcher = shell.launcher()
    task, run = _running(shell)
    for done, started in ((3, 1.0), (5, None)):
        checkpoint = m.CheckpointRecord(done, 10)
        shell.reports.report(
            a_peer("w"),
            m.Progress(task, run.epoch, checkpoint, 0.5, 1, 2, started=started),
        )

    shell.reports.worker_exited(launcher, m.WorkerExited("w", -9))

    page = shell.journal.find(task)
    assert page is not None
    lost = page.segments[0]
    assert (lost.strips, lost.seconds, lost.failed_attempt) == (4, 1.0, False)


def test_a_strip_that_was_not_reported_is_known_of_the_workers_page(
    shell: Shell,
) -> None:
    launcher = shell.launcher()
    task, run = _running(shell)
    last = m.LastOutput(task, run.epoch, "killed", computed=True)

    shell.reports.worker_exited(launcher, m.WorkerExited("w", -9, "killed", last=last))

    page = shell.journal.find(task)
    assert page is not None
    assert (page.segments[0].strips, page.segments[0].failed_attempt) == (1, False)


def test_a_failure_elsewhere_is_no_migration(shell: Shell) -> None:
    task, run = _running(shell)

    shell.reports.report(a_peer("w"), m.Failed(task, run.epoch, "no such", "device"))
    (_, second) = shell.sent.to("w", m.Run)
    finished = m.Finished(task, second.epoch, strips=3, iterations=3, seconds=1.0)
    shell.reports.report(a_peer("w"), finished)

    page = shell.journal.find(task)
    assert page is not None
    assert [s.failed_attempt for s in page.segments] == [True, False]
    assert page.segments[0].resource != page.segments[1].resource
    assert (page.migrations, shell.journal.migrations) == (0, 0)
    assert page.segments[0].joules is None


def test_workers_that_never_come_up_are_not_made_for_ever(shell: Shell) -> None:
    launcher = shell.launcher()
    (task,) = shell.submit(a_spec())

    for attempt in (1, 2, 3):
        shell.reports.worker_exited(
            launcher, m.WorkerExited(f"1-{attempt}", 1, "no memory")
        )

    assert shell.state(task) == "failed"
    asked = [order.names for order in shell.sent.to("launcher1000", m.StartWorkers)]
    assert asked == [["1-1"], ["1-2"], ["1-3"]]


def test_a_launcher_speaks_for_its_own_users_workers_only(shell: Shell) -> None:
    task, _ = _running(shell)

    shell.reports.worker_exited(a_peer("x", OTHER), m.WorkerExited("w", -9))

    assert shell.state(task) == "running"
    assert shell.pool.held_at(task, b"w")


def test_a_program_of_its_own_that_ends_fails_its_task(shell: Shell) -> None:
    shell.worker("own", own=True)
    (task,) = shell.submit(a_spec(), worker="own")

    shell.reports.worker_left(USER, "own", "its worker ended")

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.reason) == ("failed", "its program ended")


def test_tasks_that_wait_for_a_launcher_that_left_wait_for_the_next(
    shell: Shell,
) -> None:
    launcher = shell.launcher()
    (task,) = shell.submit(a_spec())

    shell.reports.launcher_left(launcher)
    shell.launcher(pid=78)
    shell.worker("1-2")

    assert shell.run_of("1-2").task == task


def test_why_a_task_was_run_again_is_no_reason_of_its_good_end(shell: Shell) -> None:
    shell.launcher()
    (task,) = shell.submit(a_spec())
    shell.worker("1-1")
    exited = m.WorkerExited("1-1", -9, "killed by signal 9 (SIGKILL)")
    shell.reports.worker_exited(a_peer("launcher1000"), exited)
    assert shell.journal.live[task].reason == exited.reason

    shell.worker("1-2")
    shell.finish("1-2", shell.run_of("1-2"))

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.reason) == ("completed", None)
    assert [segment.stop_rule for segment in page.segments] == [exited.reason, ""]


# ---------------------------------------------------------------- greetings


def test_a_worker_keeps_its_task_over_a_new_connection(shell: Shell) -> None:
    task, run = _running(shell)

    shell.worker("w", route="again", task=task, epoch=run.epoch)
    shell.reports.report(a_peer("again"), m.Finished(task, run.epoch))

    assert shell.state(task) == "completed"


def test_a_worker_is_told_again_what_its_connection_lost(shell: Shell) -> None:
    task, run = _running(shell, resources=["cpu"])
    hello = {"task": task, "epoch": run.epoch}

    shell.ask(m.Migrate(1, task, "gpu0"))
    shell.worker("w", route="second", **hello)
    shell.ask(m.Control(1, "cancel", [task]))
    shell.worker("w", route="third", **hello)

    assert shell.sent.to("second", m.Preempt) == [m.Preempt(task, run.epoch)]
    assert shell.sent.to("third", m.Abort) == [m.Abort(task, run.epoch)]


def test_a_worker_that_missed_the_order_to_run_gets_it_again(shell: Shell) -> None:
    task, run = _running(shell)
    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)

    shell.reports.report(peer, m.Ready(task, run.epoch))
    shell.reports.report(peer, m.Ready(task, run.epoch))

    assert shell.sent.to("again", m.Run) == [m.Run(task, run.epoch, run.device)]


def _moved(shell: Shell) -> tuple[int, m.Run, m.Yielded]:
    """Let a task yield and be sent elsewhere; return what its worker said."""
    task, run = _running(shell, resources=["cpu"])
    shell.ask(m.Migrate(1, task, "gpu0"))
    record = m.CheckpointRecord(5, 10)
    began = shell.runtime.clock.wall()
    yielded = m.Yielded(
        task, run.epoch, record, seconds=1.0, iterations=5, strips=2, ended=began
    )
    shell.reports.report(a_peer("w"), yielded)
    return task, run, yielded


def _stretches(shell: Shell, task: int) -> list[tuple[str, int, bool]]:
    page = shell.journal.find(task)
    assert page is not None
    return [(s.resource, s.strips, s.finish is None) for s in page.segments]


def test_a_yield_that_is_told_again_ends_no_other_stretch(shell: Shell) -> None:
    task, run, yielded = _moved(shell)

    # the order to go on was lost with the connection
    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)
    shell.reports.report(peer, yielded)

    assert _stretches(shell, task) == [("cpu", 2, False), ("gpu0", 0, True)]
    device = shell.parts.devices.infos["gpu0"].spec
    assert shell.sent.to("again", m.Run) == [m.Run(task, run.epoch, device, attempt=2)]


def test_a_yield_that_is_told_again_is_known_though_the_clock_was_put_back(
    shell: Shell,
) -> None:
    task, run = _running(shell, resources=["cpu"])
    shell.ask(m.Migrate(1, task, "gpu0"))
    later = shell.runtime.clock.wall() + 3600.0
    record = m.CheckpointRecord(5, 10)
    yielded = m.Yielded(
        task, run.epoch, record, seconds=1.0, iterations=5, strips=2, ended=later
    )
    shell.reports.report(a_peer("w"), yielded)

    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)
    shell.reports.report(peer, yielded)

    assert _stretches(shell, task) == [("cpu", 2, False), ("gpu0", 0, True)]


def test_a_repeated_yield_does_not_lose_the_next_order_to_stop(shell: Shell) -> None:
    task, run, yielded = _moved(shell)
    shell.ask(m.Migrate(2, task, "cpu"))

    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)
    shell.reports.report(peer, yielded)

    told = [type(message) for route, message in shell.sent.messages if route == "again"]
    assert told[-2:] == [m.Run, m.Preempt]


def test_a_worker_that_is_told_to_run_before_its_repeated_yield_is_told_once(
    shell: Shell,
) -> None:
    task, run = _running(shell, resources=["cpu"])
    shell.ask(m.Control(1, "hold", [task]))
    ended = shell.runtime.clock.wall()
    record = m.CheckpointRecord(5, 10)
    yielded = m.Yielded(
        task, run.epoch, record, seconds=1.0, iterations=5, strips=2, ended=ended
    )
    shell.reports.report(a_peer("w"), yielded)
    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)

    shell.ask(m.Control(2, "release", [task]))
    shell.reports.report(peer, yielded)

    (again,) = shell.sent.to("again", m.Run)
    assert (again.task, again.epoch) == (task, run.epoch)
    assert _stretches(shell, task) == [("cpu", 2, False), ("cpu", 0, True)]


def test_a_yield_told_for_the_first_time_after_a_greeting_counts(shell: Shell) -> None:
    task, run, yielded = _moved(shell)
    peer = shell.worker("w", route="again", task=task, epoch=run.epoch)

    later = shell.runtime.clock.wall()
    again = m.Yielded(
        task,
        run.epoch,
        m.CheckpointRecord(8, 10),
        seconds=1.0,
        iterations=3,
        strips=1,
        ended=later,
    )
    shell.reports.report(peer, again)

    assert _stretches(shell, task)[:2] == [("cpu", 2, False), ("gpu0", 1, False)]
    assert yielded.checkpoint != again.checkpoint


def test_a_task_whose_order_to_load_was_lost_runs_anew(shell: Shell) -> None:
    task, run = _running(shell)

    shell.worker("w", route="again")

    order = shell.run_of("again")
    assert (order.task, order.spec is not None) == (task, True)
    assert order.epoch > run.epoch


def test_an_outdated_task_is_given_up_and_its_successor_stays(shell: Shell) -> None:
    task, run = _running(shell)
    shell.worker("late", task=task, epoch=run.epoch - 1)

    shell.reports.report(a_peer("w"), m.Finished(task, run.epoch))

    assert shell.sent.to("late", m.Abort) == [m.Abort(task, run.epoch - 1)]
    assert shell.state(task) == "completed"


def test_nobody_gets_another_users_task_by_claiming_to_hold_it(shell: Shell) -> None:
    task, run = _running(shell)

    shell.worker("thief", OTHER, task=task, epoch=run.epoch)
    shell.reports.report(a_peer("thief", OTHER), m.Finished(task, run.epoch))

    assert shell.state(task) == "running"
    assert shell.pool.held_at(task, b"w")


def test_what_a_worker_gave_up_before_does_not_part_it_from_the_same_task_anew(
    shell: Shell,
) -> None:
    """A worker that greets says its last word, and answers the order to give up too."""
    task, run = _running(shell)
    shell.worker("w", route="again", task=task, epoch=run.epoch - 1)
    aborted = m.Aborted(task, run.epoch - 1)

    shell.reports.report(a_peer("again"), aborted)
    (anew,) = shell.sent.to("again", m.Run)
    shell.reports.report(a_peer("again"), aborted)
    shell.reports.report(a_peer("again"), m.Finished(task, anew.epoch, result=1))

    assert anew.epoch > run.epoch
    assert shell.state(task) == "completed"


def test_what_a_cancelled_task_computed_is_kept(shell: Shell) -> None:
    task, run = _running(shell)
    shell.ask(m.Control(1, "cancel", [task]))

    told = m.Aborted(task, run.epoch, seconds=2.5, strips=7, transfer_in=0.5)
    shell.reports.report(a_peer("w"), told)

    page = shell.journal.find(task)
    assert page is not None
    (segment,) = page.segments
    assert page.state == "cancelled"
    assert (segment.seconds, segment.strips, segment.transfer_in) == (2.5, 7, 0.5)


@pytest.mark.parametrize("ends", ["finished", "failed", "fails as its device does"])
def test_an_acknowledged_cancel_wins_over_the_last_strip(
    shell: Shell, ends: str
) -> None:
    task, run = _running(shell)
    shell.ask(m.Control(1, "cancel", [task]))

    if ends == "finished":
        shell.finish("w", run, result={"a": 1})
    else:
        code = "task-failed" if ends == "failed" else "device"
        failed = m.Failed(task, run.epoch, "it broke", code)
        shell.reports.report(a_peer("w"), failed)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.result) == ("cancelled", None)
    assert page.reason == "cancelled by its owner"


def test_a_task_that_used_too_much_memory_fails_at_once(shell: Shell) -> None:
    launcher = shell.launcher()
    task, run = _running(shell, memory_bytes=4 << 20)
    last = m.LastOutput(task, run.epoch, "killed by signal 15 (SIGTERM)")
    used = "used 5.1 GiB of 4 GiB of memory"
    exited = m.WorkerExited("w", -15, "killed", last=last, over_memory=used)

    shell.reports.worker_exited(launcher, exited)

    page = shell.journal.find(task)
    assert page is not None
    assert (page.state, page.reason, page.last_output) == ("failed", used, last)
    shell.pool.check()


def test_a_launcher_fails_no_task_that_stated_no_need_of_memory(shell: Shell) -> None:
    launcher = shell.launcher()
    task, run = _running(shell)
    last = m.LastOutput(task, run.epoch, "killed by signal 15 (SIGTERM)")
    exited = m.WorkerExited("w", -15, "killed", last=last, over_memory="too much")

    shell.reports.worker_exited(launcher, exited)

    assert shell.state(task) != "failed"
