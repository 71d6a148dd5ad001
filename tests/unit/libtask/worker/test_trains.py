"""Several tasks in one order: their ends are told together, and what is asked back is not begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libtask.messages import (
    Abort,
    Aborted,
    Failed,
    Finished,
    Leaving,
    Progress,
    Recall,
    Register,
    Reports,
    Retire,
    Run,
    TaskEpoch,
    TaskSpec,
)
from unit.libtask.worker.played_worker import next_but_progress, start_counting
from unit.scripted_daemon import cpu, null

if TYPE_CHECKING:
    from libtask.messages import Message
    from unit.libtask.worker.played_worker import Played


def order(worker: Played, task: int, app: str = "Nothing", **params: Any) -> Run:
    """Order a task, behind others unless it is the first."""
    spec = TaskSpec(worker.app(app), params)
    return Run(task, 1, cpu(), spec, follows=task > 1)


def heard(worker: Played, *tasks: int) -> list[Message]:
    """Hear until all of these tasks have ended; return what was said."""
    said: list[Message] = []
    left = set(tasks)
    while left:
        message = next_but_progress(worker)
        said.append(message)
        ends = message.reports if isinstance(message, Reports) else [message]
        left -= {end.task for end in ends}
    return said


def ends(message: Message) -> list[int]:
    return [end.task for end in getattr(message, "reports", [message])]


def test_the_ends_of_several_tasks_are_told_in_order(worker: Played) -> None:
    # the first opens the device, which takes its time
    worker.say(order(worker, 1))
    worker.daemon.expect(Finished)

    worker.say(*[order(worker, task) for task in (2, 3, 4, 5)])

    said = heard(worker, 2, 3, 4, 5)
    assert [task for message in said for task in ends(message)] == [2, 3, 4, 5]
    assert worker.retire() == 0


def test_what_is_asked_back_with_the_order_is_not_begun(worker: Played) -> None:
    first, *others = [order(worker, task) for task in (1, 2, 3)]

    worker.say(first, *others, Recall(2, 1), Abort(3, 1))

    assert heard(worker, 2, 3) == [Aborted(2, 1), Aborted(3, 1)]
    assert ends(heard(worker, 1)[0]) == [1]


def test_what_is_asked_back_while_another_runs_is_given_back_at_its_checkpoint(
    worker: Played,
) -> None:
    until = str(worker.folder / "enough")
    endless = TaskSpec(worker.app("Count"), {"until": until}, strip=100)
    worker.say(Run(1, 1, null("gpu0"), endless), order(worker, 2))

    worker.say(Recall(2, 1))
    given_back = next_but_progress(worker)
    (worker.folder / "enough").touch()

    assert given_back == Aborted(2, 1)
    assert isinstance(next_but_progress(worker), Finished)


def test_a_task_without_checkpoints_does_not_delay_recalled_ones(
    worker: Played,
) -> None:
    until = worker.folder / "enough"
    first = order(worker, 1, "Stuck", until=str(until))
    worker.say(first, order(worker, 2), order(worker, 3))

    worker.say(Recall(2, 1), Recall(3, 1))
    given_back = [next_but_progress(worker) for _ in range(2)]
    until.touch()

    assert given_back == [Aborted(2, 1), Aborted(3, 1)]
    assert ends(next_but_progress(worker)) == [1]
    assert worker.retire() == 0


def test_a_task_that_follows_does_not_delay_those_that_are_added_behind_it(
    worker: Played,
) -> None:
    until = worker.folder / "enough"
    worker.say(order(worker, 1), order(worker, 2, "Stuck", until=str(until)))
    assert ends(heard(worker, 1)[0]) == [1]

    worker.say(order(worker, 3))
    worker.say(Recall(3, 1))
    given_back = next_but_progress(worker)
    until.touch()

    assert given_back == Aborted(3, 1)
    assert ends(next_but_progress(worker)) == [2]


def test_a_task_without_checkpoints_does_not_delay_ends_before_it(
    worker: Played,
) -> None:
    worker.say(order(worker, 1))  # it opens the device
    heard(worker, 1)
    until = worker.folder / "enough"
    short = [order(worker, task) for task in (2, 3, 4, 5)]

    worker.say(*short, order(worker, 6, "Stuck", until=str(until)))
    said = heard(worker, 2, 3, 4, 5)
    until.touch()

    assert [task for message in said for task in ends(message)] == [2, 3, 4, 5]
    assert ends(next_but_progress(worker)) == [6]


def test_what_has_ended_cannot_be_asked_back(worker: Played) -> None:
    worker.say(order(worker, 1))
    heard(worker, 1)

    worker.say(Recall(1, 1), order(worker, 2))

    assert ends(heard(worker, 2)[0]) == [2]


def test_a_failure_is_told_after_the_ends_before_it(worker: Played) -> None:
    first = order(worker, 1)
    broken = order(worker, 2, "Broken", where="run")

    worker.say(first, broken, order(worker, 3))

    one, two, three = heard(worker, 1, 2, 3)
    assert ends(one) == [1]
    assert isinstance(two, Failed)
    assert ends(three) == [3]


def test_who_leaves_tells_of_all_ends_first(worker: Played) -> None:
    worker.say(*[order(worker, task) for task in (1, 2)], Retire())

    said = heard(worker, 1, 2)

    assert [task for message in said for task in ends(message)] == [1, 2]
    assert isinstance(next_but_progress(worker), Leaving)


def test_a_new_hetd_hears_of_all_ends_that_the_last_one_may_have_missed(
    worker: Played,
) -> None:
    worker.say(*[order(worker, task) for task in (1, 2, 3)])
    heard(worker, 1, 2, 3)

    worker.daemon.die()
    worker.daemon.rise()
    hello = worker.daemon.greet()

    assert isinstance(hello, Register)
    assert hello.ended == [TaskEpoch(1, 1), TaskEpoch(2, 1), TaskEpoch(3, 1)]
    assert ends(worker.daemon.expect(Reports)) == [1, 2, 3]


def test_a_new_hetd_hears_of_an_end_beside_the_task_that_runs(worker: Played) -> None:
    params = {"until": str(worker.folder / "enough")}
    endless = TaskSpec(worker.app("Count"), params, strip=100)
    worker.say(order(worker, 1), Run(2, 1, null("gpu0"), endless, follows=True))
    assert ends(worker.daemon.expect(Finished)) == [1]
    worker.daemon.expect(Progress)

    worker.daemon.die()
    worker.daemon.rise()
    hello = worker.daemon.greet()

    assert (hello.task, hello.ended) == (2, [TaskEpoch(1, 1)])
    assert worker.daemon.expect(Finished).task == 1


def outputs(worker: Played, *tasks: int) -> list[str]:
    """Run these tasks, in one order, with what the file says now; return what each printed."""
    spec = TaskSpec(worker.app("Count"), {"limit": 1})
    worker.say(*[Run(task, 1, cpu(), spec, follows=task != tasks[0]) for task in tasks])
    said = [
        end
        for message in heard(worker, *tasks)
        for end in getattr(message, "reports", [message])
    ]
    return [
        worker.output(end).split()[0] if isinstance(end, Finished) else end.code
        for end in said
    ]


def test_every_task_of_an_order_runs_the_file_as_it_was_when_it_was_submitted(
    worker: Played,
) -> None:
    text = worker.apps.read_text()

    before = outputs(worker, 1, 2, 3)
    worker.apps.write_text(text.replace("loading", "edited"))
    after = outputs(worker, 4, 5, 6)
    worker.apps.write_text(text.replace("class Count", "class Other"))
    without = outputs(worker, 7, 8, 9)
    worker.apps.write_text(text.replace("loading", "again"))

    assert before == ["loading"] * 3
    assert after == ["edited"] * 3
    assert without == ["bad-input"] * 3
    assert outputs(worker, 10, 11) == ["again"] * 2


def test_a_task_that_comes_later_runs_the_file_as_it_is_then(worker: Played) -> None:
    text = worker.apps.read_text()
    until = worker.folder / "enough"
    start_counting(worker, until=str(until))
    worker.apps.write_text(text.replace("loading", "edited"))

    spec = TaskSpec(worker.app("Count"), {"limit": 1})
    worker.say(Run(8, 1, cpu(), spec, follows=True))
    until.touch()

    _, end = heard(worker, 1, 8)
    assert worker.output(end).split()[0] == "edited"
