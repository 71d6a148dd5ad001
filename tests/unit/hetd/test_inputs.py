"""Results of tasks as parameters of others, in the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_peer, a_spec, restarting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Restart = Callable[[], Shell]

LARGE = "x" * m.RESULT_INLINE


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Restart]:
    """Start a daemon, and start it again over the same store."""
    with restarting(tmp_path) as start:
        yield start


@pytest.fixture
def shell(restart: Restart) -> Shell:
    return restart()


def taking(*tasks: int, **fields: Any) -> m.TaskSpec:
    """Describe a task that takes the results of others."""
    inputs = [m.ResultInput(task, places=[["values", task]]) for task in tasks]
    return a_spec(inputs=inputs, **fields)


def completed(shell: Shell, result: Any = 7) -> int:
    """Run a task to its end; return its id."""
    if not shell.sent.messages:
        shell.worker("first")
    (task,) = shell.submit(a_spec())
    run = shell.sent.to("first", m.Run)[-1]
    assert run.task == task
    shell.finish("first", run, result=result)
    return task


def test_a_task_starts_with_the_results_of_those_before(shell: Shell) -> None:
    shell.worker("a")
    first, second = shell.submit(a_spec(), taking(-1))
    assert shell.state(second) == "waiting"

    shell.finish("a", shell.run_of("a"), result=[1])

    runs = shell.sent.to("a", m.Run)
    assert [run.inputs for run in runs] == [[], [m.InputValue(first, [1])]]
    assert runs[1].spec is not None
    assert [each.task for each in runs[1].spec.inputs] == [first]


def test_of_a_large_result_only_the_name_is_passed(shell: Shell) -> None:
    task = completed(shell, LARGE)

    shell.submit(taking(task))

    page = shell.journal.find(task)
    assert page is not None
    size = m.RESULT_INLINE + 3
    value = m.InputValue(task, name=page.snapshots_name, bytes=size)
    assert shell.sent.to("first", m.Run)[-1].inputs == [value]


@pytest.mark.parametrize("result", [7, LARGE])
def test_results_are_known_after_a_restart(restart: Restart, result: Any) -> None:
    shell = restart()
    task = completed(shell, result)
    shell.submit(taking(task, hold=True), taking(task, hold=True))
    before = shell.journal.inputs.of(taking(task))

    again = restart()

    assert before
    assert again.journal.inputs.of(taking(task)) == before


def test_results_are_kept_as_long_as_they_are_needed(shell: Shell) -> None:
    task = completed(shell)
    ids = shell.submit(taking(task, hold=True), taking(task, hold=True))

    for child, left in zip(ids, (1, 0), strict=True):
        shell.ask(m.Control(1, "cancel", [child]))
        assert len(shell.journal.inputs.of(taking(task))) == left


def test_a_child_of_a_task_that_failed_is_cancelled(shell: Shell) -> None:
    (failed,) = shell.submit(a_spec(hold=True))
    (early,) = shell.submit(taking(failed))
    shell.ask(m.Control(1, "cancel", [failed]))

    late, grandchild = shell.submit(taking(failed), taking(-1))

    infos = shell.ask(m.ListTasks(1, ids=[early, late, grandchild])).tasks
    reasons = {info.id: (info.state, info.reason) for info in infos}
    why = "ended as cancelled: cancelled by its owner"
    because = ("cancelled", f"task {failed}, which it comes after, {why}")
    assert reasons[early] == reasons[late] == because
    assert reasons[grandchild][0] == "cancelled"


def test_a_child_of_a_forgotten_task_is_cancelled_by_a_restart(
    restart: Restart,
) -> None:
    shell = restart()
    task = completed(shell)
    (child,) = shell.submit(taking(task, hold=True))
    shell.ask(m.DeleteTasks(1, [task]))

    again = restart()

    (info,) = again.ask(m.ListTasks(1, ids=[child])).tasks
    assert info.state == "cancelled"
    assert info.reason == f"task {task}, whose result it takes, is no longer known"


def test_nobody_takes_the_result_of_another_user(shell: Shell) -> None:
    task = completed(shell)

    for uid in (OTHER, 0):  # root would unpickle what a user wrote
        error = shell.error(m.Submit(1, [taking(task)]), uid)
        assert (error.code, error.text) == (
            "not-allowed",
            f"task {task} belongs to another user",
        )


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (taking(99), "no task 99"),
        (taking(-1), "after: -1 is before the first task of the submit"),
    ],
)
def test_inputs_that_do_not_exist_are_refused(
    shell: Shell, spec: m.TaskSpec, text: str
) -> None:
    assert shell.error(m.Submit(1, [spec])).text == text
    assert shell.journal.next_id() == 1


def test_the_inputs_of_a_submit_are_bounded(shell: Shell) -> None:
    task = completed(shell)
    specs = [taking(*[task] * 1000) for _ in range(11)]

    assert shell.error(m.Submit(1, specs)).text == (
        "after: 11000 dependencies in one submit, at most 10000"
    )


def test_launchers_drop_results_that_no_task_needs(shell: Shell) -> None:
    kept, forgotten, needed = (completed(shell) for _ in range(3))
    shell.submit(taking(needed, hold=True))
    shell.commit()
    shell.ask(m.DeleteTasks(1, [forgotten, needed]))
    peer = a_peer("launcher", USER)

    shell.reports.files_held(peer, m.ResultsHeld([kept, forgotten, needed, 900]))

    assert shell.journal.take_batch().replies == [
        (b"launcher", m.DropResults([forgotten, 900]))
    ]


# ------------------------------------------------------------ conditions


def after(condition: str, *tasks: int) -> m.TaskSpec:
    return a_spec(**{{"any": "after_any", "notok": "after_notok"}[condition]: [*tasks]})


def ended(shell: Shell, *, completes: bool) -> int:
    if completes:
        return completed(shell)
    (task,) = shell.submit(a_spec(hold=True))
    shell.ask(m.Control(1, "cancel", [task]))
    return task


@pytest.mark.parametrize("order", ["before", "after", "restarted"])
@pytest.mark.parametrize(
    ("condition", "completes", "runs"),
    [
        ("any", True, True),
        ("any", False, True),
        ("notok", True, False),
        ("notok", False, True),
    ],
)
def test_a_condition_holds_whoever_is_first(
    restart: Restart,
    order: str,
    condition: str,
    completes: bool,  # noqa: FBT001  a case
    runs: bool,  # noqa: FBT001  a case
) -> None:
    shell = restart()
    shell.worker("first")
    if order == "before":
        other = ended(shell, completes=completes)
        (child,) = shell.submit(after(condition, other))
    else:
        (other,) = shell.submit(a_spec())
        (child,) = shell.submit(after(condition, other))
        assert shell.state(child) == "waiting"
        if order == "restarted":
            shell.ask(m.Control(1, "hold", [child]))
        if completes:
            shell.finish("first", shell.run_of("first"))
        else:
            shell.ask(m.Control(1, "cancel", [other]))
            shell.reports.report(
                a_peer("first"), m.Aborted(other, shell.run_of("first").epoch)
            )
    if order == "restarted":
        shell = restart()
        shell.ask(m.Control(1, "release", [child]))

    (info,) = shell.ask(m.ListTasks(1, ids=[child])).tasks
    if runs:
        assert info.state in {"running", "queued"}
    else:
        assert (info.state, info.reason) == (
            "cancelled",
            f"not needed: task {other} completed",
        )


def test_one_failure_of_several_is_enough(shell: Shell) -> None:
    shell.worker("first")
    failed, fine = ended(shell, completes=False), completed(shell)

    both, all_fine = shell.submit(after("notok", failed, fine), after("notok", fine))

    assert shell.state(both) in {"running", "queued"}
    assert shell.state(all_fine) == "cancelled"


def test_two_conditions_for_one_task_are_refused(shell: Shell) -> None:
    task = completed(shell)
    spec = a_spec(after=[task], after_any=[task])

    text = f"tasks[0]: after: task {task} is given with two conditions"
    assert shell.error(m.Submit(1, [spec])).text == text


def test_requeued_tasks_keep_their_conditions(shell: Shell) -> None:
    (first,) = shell.submit(a_spec(hold=True))
    (second,) = shell.submit(after("any", first))
    shell.ask(m.Control(1, "cancel", [second, first]))

    (again, later) = shell.ask(m.Requeue(1, [first, second])).ids

    (info,) = shell.ask(m.ListTasks(1, ids=[later])).tasks
    assert info.after_any == [again]


def test_places_are_counted_over_all_inputs(shell: Shell) -> None:
    first = completed(shell)
    places: list[list[str | int]] = [["values", n] for n in range(m.MAX_PLACES)]
    inputs = [m.ResultInput(first, places=places), m.ResultInput(first, places=[["x"]])]

    error = shell.ask(m.Submit(1, [a_spec(inputs=inputs)]))

    assert isinstance(error, m.Error)
    assert error.text == (
        f"inputs: {m.MAX_PLACES + 1} places for results in the parameters, "
        f"at most {m.MAX_PLACES}"
    )
