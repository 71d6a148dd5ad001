"""How the client follows tasks: by what the daemon tells, through restarts and losses."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from libtask.client.client import Client
from libtask.errors import DaemonUnreachableError, NotFoundError, TaskFailedError
from libtask.messages import Lagged, ListTasks, Submit, Submitted, Subscribe
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


def test_a_watch_ends_when_the_daemon_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.client.subscription.PATIENCE_SECONDS", 0.0)
    fake = FakeDaemon(tmp_path / "s")
    with Client(fake.path) as client, client.watch() as changes:
        fake.close()
        fake.path.unlink()

        with pytest.raises(DaemonUnreachableError, match="absent"):
            next(changes)


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
