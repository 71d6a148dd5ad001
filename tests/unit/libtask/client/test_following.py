"""How the client follows tasks: by what the daemon tells, through restarts and losses."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.client.connection import Connection
from libtask.errors import DaemonUnreachableError, NotFoundError, TaskFailedError
from libtask.messages import (
    Done,
    Error,
    Lagged,
    ListTasks,
    ResourceChanged,
    Submit,
    Submitted,
    Subscribe,
)
from system.private_daemon import PATIENCE, eventually
from unit.fake_daemon import FakeDaemon, a_change, a_task, specs

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import Message


def test_result_comes_by_push(client: Client, daemon: FakeDaemon) -> None:
    handle = client.submit_specs(specs(1))[0]
    daemon.push(
        a_change(1, "running", progress=0.5), a_change(1, "completed", result={"a": 1})
    )

    assert handle.result(5) == {"a": 1}
    assert handle.state == "completed"


def test_end_that_comes_with_the_answer_is_not_lost(
    client: Client, daemon: FakeDaemon
) -> None:
    def submitted(message: Submit) -> list[Message]:
        return [Submitted(message.request, [1]), a_change(1, "completed", result=7)]

    daemon.answers[Submit] = submitted

    for _ in range(50):
        assert client.submit_specs(specs(1))[0].result(5) == 7


def test_caller_wakes_up_once_all_that_came_with_its_answer_is_handled(
    daemon: FakeDaemon,
) -> None:
    daemon.answers[Submit] = lambda message: [
        Submitted(message.request, [1]),
        a_change(1, "completed", result=7),
    ]
    daemon.together = True
    asked, woken = threading.Event(), []

    def pushed(_change: object) -> None:
        asked.wait(5)
        woken.append(reply.done())

    connection = Connection(daemon.path, pushed, lambda _lost: None)
    reply = connection.ask(Submit(0, specs(1), key="one"))
    asked.set()

    assert reply.result(5).ids == [1]
    assert woken == [False]
    connection.close()


def test_several_changes_in_one_message(client: Client, daemon: FakeDaemon) -> None:
    handles = client.submit_specs(specs(2))
    daemon.push(*(a_change(n, "completed", result=n) for n in (1, 2)), together=True)

    assert [handle.result(5) for handle in handles] == [1, 2]


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("failed", TaskFailedError),
        ("dropped", TaskFailedError),
        ("cancelled", CancelledError),
    ],
)
def test_other_ends_raise(
    client: Client, daemon: FakeDaemon, state: str, error: type[Exception]
) -> None:
    handle = client.submit_specs(specs(1))[0]
    daemon.push(a_change(1, state, reason="because"))

    with pytest.raises(error, match="because"):
        handle.result(5)


def test_wait_times_out(client: Client) -> None:
    with pytest.raises(TimeoutError):
        client.submit_specs(specs(1))[0].wait(0.01)


def test_task_of_another_client_is_followed_from_how_it_is(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks[5] = a_task(5, state="completed", result="done")

    assert client.handle(5).result(5) == "done"
    with pytest.raises(NotFoundError, match="no task 6"):
        client.handle(6).result(5)


def test_events_end_with_the_task(client: Client, daemon: FakeDaemon) -> None:
    handle = client.submit_specs(specs(1))[0]
    events = handle.events()

    assert next(events).what == "seen"
    daemon.push(a_change(1, "running"), a_change(1, "completed"))
    assert [event.state for event in events] == ["running", "completed"]


def test_watch_of_everything(client: Client, daemon: FakeDaemon) -> None:
    with client.watch() as changes:
        assert changes.within(0.01) is None
        daemon.push(a_change(3, "running"))
        assert next(changes).id == 3

    assert daemon.requests(Subscribe)[0].ids is None


def test_tasks_are_asked_for_anew_when_changes_were_missed(
    client: Client, daemon: FakeDaemon
) -> None:
    handle = client.submit_specs(specs(1))[0]
    daemon.tasks[1] = a_task(1, state="completed", result="missed")

    daemon.push(Lagged(3))

    assert handle.result(10) == "missed"


def test_a_watch_goes_on_with_how_things_are_when_it_missed_some(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks[7] = a_task(7, state="running", started=4e9)
    with client.watch() as changes:
        daemon.push(Lagged(3))

        change = next(changes)

    assert (change.id, change.what, change.state) == (7, "seen", "running")


def test_a_watch_outlives_a_restart_of_the_daemon(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "s")
    with Client(first.path) as client, client.watch(7) as changes:
        first.close()
        tasks = {7: a_task(7, state="running")}
        second = FakeDaemon(tmp_path / "s", tasks=tasks)

        assert next(changes).what == "seen"
        assert second.requests(Subscribe)[0].ids == [7]
        second.push(a_change(7, "completed"))
        assert next(changes).state == "completed"
    second.close()


def test_a_watch_ends_when_the_daemon_stays_away(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s")
    with Client(fake.path, patience=0.0) as client, client.watch() as changes:
        fake.close()
        fake.path.unlink()

        for _ in range(2):
            with pytest.raises(DaemonUnreachableError, match="absent"):
                next(changes)
        changes.close()
        with pytest.raises(DaemonUnreachableError, match="closed"):
            changes.within(PATIENCE)


def test_a_watch_continues_with_a_daemon_that_is_back_late(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "s")
    with Client(first.path, patience=0.0) as client, client.watch_all() as changes:
        first.close()
        with pytest.raises(DaemonUnreachableError):
            next(changes)
        ended = a_task(7, state="completed", result="after", finished=4e9)
        second = FakeDaemon(tmp_path / "s", tasks={7: ended})

        missed = next(changes)
        second.push(a_change(8, "running"))
        following = next(changes)
    second.close()

    assert (missed.id, missed.what, missed.result) == (7, "seen", "after")
    assert (following.id, following.state) == (8, "running")


def test_restarted_daemon_is_found_again(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "s")
    client = Client(first.path, timeout=5)
    handle = client.submit_specs(specs(1))[0]
    first.close()
    # the client may be back as soon as it serves
    ended = {1: a_task(1, state="completed", result="after")}
    second = FakeDaemon(tmp_path / "s", tasks=ended)

    assert handle.result(10) == "after"
    assert second.requests(ListTasks)[0].ids == [1]
    client.close()
    second.close()


def test_daemon_that_stays_away_fails_the_waits(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s")
    client = Client(fake.path, patience=0.1)
    handle = client.submit_specs(specs(1))[0]
    fake.close()

    with pytest.raises(DaemonUnreachableError):
        handle.result(10)
    client.close()


def test_each_wait_that_fails_raises_an_error_of_its_own(tmp_path: Path) -> None:
    """Else the traceback of one would grow with the number of tasks."""
    fake = FakeDaemon(tmp_path / "s")
    client = Client(fake.path, patience=0.0)
    handles = client.submit_specs(specs(3))
    fake.close()

    errors = [handle.ended.exception(PATIENCE) for handle in handles]

    assert [type(error) for error in errors] == 3 * [DaemonUnreachableError]
    assert len({str(error) for error in errors}) == 1
    assert len({id(error) for error in errors}) == 3
    client.close()


def test_a_wait_is_possible_again_when_the_daemon_is_back_late(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "s")
    client = Client(first.path, patience=0.0)
    one, other, running = client.submit_specs(specs(3))
    first.close()
    for handle in (one, other, running):
        with pytest.raises(DaemonUnreachableError, match="no daemon"):
            handle.result(PATIENCE)
    asked_of_nobody = other.ended

    tasks = {
        1: a_task(1, state="completed", result="after"),
        2: a_task(2, state="cancelled"),
        3: a_task(3, state="running"),
    }
    second = FakeDaemon(tmp_path / "s", tasks=tasks)

    assert one.result(PATIENCE) == "after"
    assert other.wait(PATIENCE) == "cancelled"
    with pytest.raises(TimeoutError, match="task 3 has not ended after 0 s"):
        running.result(0)
    second.push(a_change(3, "completed", result=3))
    assert running.result(PATIENCE) == 3
    assert isinstance(asked_of_nobody.exception(0), DaemonUnreachableError)
    client.close()
    second.close()


def test_any_request_to_a_daemon_that_is_back_late_follows_the_lost_tasks(
    tmp_path: Path,
) -> None:
    first = FakeDaemon(tmp_path / "s")
    client = Client(first.path, patience=0.0)
    handle = client.submit_specs(specs(1))[0]
    first.close()
    with pytest.raises(DaemonUnreachableError):
        handle.result(PATIENCE)
    ended = {1: a_task(1, state="completed", result="after")}
    second = FakeDaemon(tmp_path / "s", tasks=ended)

    client.devices()

    eventually(lambda: handle.state == "completed", "the end of the task")
    client.close()
    second.close()


def test_a_wait_with_a_closed_client_says_so(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s")
    client = Client(fake.path)
    handle = client.submit_specs(specs(1))[0]
    client.close()
    fake.close()

    for _ in range(2):
        with pytest.raises(DaemonUnreachableError, match="the client was closed"):
            handle.result(PATIENCE)


def test_a_user_is_told_who_is_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("libtask.client.session.QUIET_S", 0.0)
    fake = FakeDaemon(tmp_path / "s")
    client = Client(fake.path, patience=0.3)
    handle = client.submit_specs(specs(1))[0]
    fake.close()

    with pytest.raises(DaemonUnreachableError):
        handle.result(10)
    client.close()

    (line,) = set(caplog.messages)
    assert line.endswith("; waiting 0.3 s for it")


# ---------------------------------------------------------------- many tasks


def test_each_submit_adds_its_tasks_to_the_subscription(
    client: Client, daemon: FakeDaemon
) -> None:
    """Naming all followed tasks each time would take a megabyte for 500 of them."""
    client.follow_progress()
    for _ in range(50):
        client.submit_specs(specs(2))

    eventually(lambda: len(daemon.requests(Subscribe)) == 50, "50 subscriptions")
    watches = daemon.requests(Subscribe)
    assert [watch.add for watch in watches] == [False] + [True] * 49
    assert [watch.ids for watch in watches[:3]] == [[1, 2], [3, 4], [5, 6]]
    assert all(watch.progress for watch in watches)
    daemon.push(a_change(1, "running", progress=0.25))
    daemon.push(a_change(100, "completed", result=5))
    handle = client.handle(100)
    assert handle.result(5) == 5


def test_progress_that_is_wanted_later_is_that_of_all_tasks(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks = {number: a_task(number) for number in (1, 2, 3)}
    first = client.handles([1, 2])
    client.handle(3)
    client.follow_progress()

    eventually(lambda: len(daemon.requests(Subscribe)) == 3, "three subscriptions")
    watches = daemon.requests(Subscribe)
    assert [(watch.ids, watch.add, watch.progress) for watch in watches] == [
        ([1, 2], False, False),
        ([3], True, False),
        ([1, 2, 3], False, True),
    ]
    assert len(first) == 2


def test_a_new_connection_watches_all_followed_tasks(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "s")
    client = Client(first.path, timeout=5)
    client.follow_progress()
    for _ in range(3):
        client.submit_specs(specs(1))
    first.close()
    second = FakeDaemon(tmp_path / "s", tasks=first.tasks)
    client.submit_specs(specs(1))

    eventually(lambda: len(second.requests(Subscribe)) >= 2, "both subscriptions")
    watches = second.requests(Subscribe)
    assert (watches[0].ids, watches[0].add) == ([1, 2, 3], False)
    assert (watches[1].ids, watches[1].add) == ([4], True)
    client.close()
    second.close()


def test_more_tasks_than_a_subscription_names_are_watched_as_all(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.client.handles.MOST_WATCHED", 3)
    client.follow_progress()
    for _ in range(4):
        client.submit_specs(specs(2))

    assert [(each.ids, each.add) for each in daemon.requests(Subscribe)] == [
        ([1, 2], False),
        (None, False),
    ]


def test_a_refused_subscription_becomes_one_of_all_tasks(
    client: Client, daemon: FakeDaemon
) -> None:
    def refused(message: Subscribe) -> list[Message]:
        if message.ids is None:
            return [Done(message.request)]
        return [Error(message.request, "bad-input", "100000 tasks at most")]

    daemon.answers[Subscribe] = refused
    client.follow_progress()
    client.submit_specs(specs(1))

    eventually(lambda: len(daemon.requests(Subscribe)) == 2, "the second one")
    assert daemon.requests(Subscribe)[1].ids is None
    client.submit_specs(specs(1))
    assert len(daemon.requests(Subscribe)) == 2


# ---------------------------------------------------------------- watch_all


def test_all_of_ones_own_are_watched_without_ids(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks = {
        1: a_task(1, name="pool/a", job="night"),
        2: a_task(2, name="other"),
        3: a_task(3, name="pool/b", state="completed", finished=5.0),
    }
    with client.watch_all("pool/*") as changes:
        first = next(changes)
        daemon.push(a_change(9, "running", name="pool/c"))
        second = next(changes)

    (watch,) = daemon.requests(Subscribe)
    assert (watch.ids, watch.mine, watch.name) == (None, True, "pool/*")
    assert (first.id, first.what, first.name) == (1, "seen", "pool/a")
    assert (second.id, second.name) == (9, "pool/c")


def test_a_watch_of_all_catches_up_with_every_page(
    client: Client, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.client.subscription.PAGE", 2)
    daemon.tasks = {number: a_task(number) for number in range(1, 6)}
    with client.watch_all() as changes:
        seen = {next(changes).id for _ in range(5)}
        daemon.tasks[6] = a_task(6, state="completed", finished=4e9)
        daemon.push(Lagged(3))
        again = {next(changes).id for _ in range(6)}

    assert seen == {1, 2, 3, 4, 5}
    assert again == {1, 2, 3, 4, 5, 6}


def test_states_of_resources_are_watched_over_restarts(tmp_path: Path) -> None:
    def watched(message: Subscribe) -> list[Message]:
        return [ResourceChanged("cpu", "up", 2), Done(message.request)]

    first = FakeDaemon(tmp_path / "s", answers={Subscribe: watched})
    with Client(first.path) as client, client.watch_resources() as changes:
        assert next(changes) == ResourceChanged("cpu", "up", 2)
        first.push(ResourceChanged("cpu", "lost", 0, "why"))
        assert next(changes).reason == "why"
        first.push(Lagged(1))
        assert next(changes).state == "up"
        first.close()
        second = FakeDaemon(tmp_path / "s", answers={Subscribe: watched})
        assert next(changes).slots == 2
        (watch,) = second.requests(Subscribe)
        assert (watch.ids, watch.resources) == ([], True)
    second.close()
