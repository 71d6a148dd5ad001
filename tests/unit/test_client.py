"""The client against a scripted daemon: what it sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from libtask.client.asynchronous import AsyncClient
from libtask.client.client import BATCH, Client, Selection
from libtask.endpoint import SYSTEM_SOCKET, default_socket, probe, run_directory
from libtask.errors import (
    DaemonUnreachableError,
    HetError,
    InputError,
    NotFoundError,
    TaskFailedError,
)
from libtask.messages import (
    Control,
    Done,
    Error,
    Lagged,
    Learn,
    ListTasks,
    Migrate,
    Occupy,
    Policies,
    Stop,
    Submit,
    Submitted,
    TaskSpec,
    Watch,
)
from unit.fake_daemon import FakeDaemon, a_change, a_task
from unit.scripted_daemon import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from libtask.messages import Message


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    yield fake
    fake.close()


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(daemon.path, timeout=5) as made:
        yield made


def specs(count: int, **fields: Any) -> list[TaskSpec]:
    return [TaskSpec("heat", **fields) for _ in range(count)]


# ---------------------------------------------------------------- who answers


def test_socket_is_the_named_one_then_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HETD_SOCKET", "/x/y")
    assert str(default_socket()) == "/x/y"

    monkeypatch.delenv("HETD_SOCKET")
    run_directory().mkdir()
    own = run_directory() / "hetd.sock"
    own.touch()
    assert default_socket() == own

    own.unlink()
    assert default_socket() == (SYSTEM_SOCKET if SYSTEM_SOCKET.exists() else own)


def test_absent_daemon(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachableError, match=r"absent.*hetctl daemon start"):
        Client(tmp_path / "none")


def test_daemon_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "old"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))

    with pytest.raises(DaemonUnreachableError, match="refused"):
        probe(path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", refuse)

    with pytest.raises(DaemonUnreachableError, match="no permission"):
        probe(tmp_path / "s")


def test_daemon_that_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.endpoint.PATIENCE_S", 0.01)
    with ExitStack() as stack:
        hung = stack.enter_context(socket.socket(socket.AF_UNIX))
        hung.bind(str(tmp_path / "s"))
        hung.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(tmp_path / "s"))

        with pytest.raises(DaemonUnreachableError, match=r"no answer: .* lets nobody"):
            probe(tmp_path / "s")


def test_path_too_long(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too long"):
        Client(tmp_path / ("x" * 120))


def test_other_protocol(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s", protocol=99)

    with pytest.raises(HetError, match=r"hetd 9\.9 speaks protocol 99"):
        Client(fake.path)
    fake.close()


# ---------------------------------------------------------------- submit


def test_many_tasks_go_in_few_messages(client: Client, daemon: FakeDaemon) -> None:
    handles = client.submit_specs(specs(2 * BATCH + 1))

    assert [handle.id for handle in handles] == list(range(1, 2 * BATCH + 2))
    assert [len(each.tasks) for each in daemon.requests(Submit)] == [BATCH, BATCH, 1]


def test_large_descriptions_are_split_by_size(
    client: Client, daemon: FakeDaemon
) -> None:
    client.submit_specs(specs(20, params={"payload": b"x" * 100_000}))

    assert [len(each.tasks) for each in daemon.requests(Submit)] == [10, 10]


def test_references_reach_across_messages(client: Client, daemon: FakeDaemon) -> None:
    tasks = specs(BATCH)
    tasks += [TaskSpec("heat", after=[-1]), TaskSpec("heat", after=[-1, -2, 7])]

    client.submit_specs(tasks)

    sent = daemon.requests(Submit)[1].tasks
    assert [task.after for task in sent] == [[BATCH], [-1, BATCH, 7]]


def test_reference_before_the_first_task(client: Client) -> None:
    with pytest.raises(InputError, match="before the first"):
        client.submit_specs([TaskSpec("heat", after=[-1])])


def test_description_that_never_fits(client: Client) -> None:
    with pytest.raises(InputError, match="exceeds the limit"):
        client.submit_specs(specs(1, params={"payload": b"x" * 2_000_000}))


def test_unanswered_submit_is_repeated_with_its_key(daemon: FakeDaemon) -> None:
    daemon.mute.add(Submit)

    with Client(daemon.path, timeout=0.2) as client:
        handle = client.submit_specs(specs(1))[0]

    first, second = daemon.requests(Submit)
    assert first.key == second.key != ""
    assert (handle.id, len(daemon.tasks), len(daemon.peers)) == (1, 1, 2)


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda client: client.cancel(1), Control),
        (lambda client: client.migrate(1, "cpu"), Migrate),
        (lambda client: client.policy("affinity"), Policies),
        (lambda client: client.drain("cpu"), Occupy),
        (lambda client: client.learn([]), Learn),
    ],
    ids=["control", "migrate", "policy", "drain", "learn"],
)
def test_every_unanswered_change_is_repeated_with_its_key(
    daemon: FakeDaemon, ask: Callable[[Client], object], kind: type
) -> None:
    daemon.mute.add(kind)

    with Client(daemon.path, timeout=0.2) as client:
        ask(client)

    first, second = daemon.requests(kind)
    assert first.key == second.key != ""
    assert first.expires < second.expires < time.monotonic() + 0.2
    assert len(daemon.peers) == 2  # over another connection


def test_who_is_put_off_asks_again(client: Client, daemon: FakeDaemon) -> None:
    put_off = [1, 2]

    def answer(message: Control) -> list[Message]:
        if put_off:
            put_off.pop()
            return [Error(message.request, "busy", "others want something too")]
        return [Done(message.request, message.ids)]

    daemon.answers[Control] = answer

    assert client.cancel(1) == [1]
    assert len({each.key for each in daemon.requests(Control)}) == 1


def test_a_daemon_that_never_answers_is_given_up(daemon: FakeDaemon) -> None:
    daemon.answers[Stop] = daemon.answers[Control] = lambda _: []

    refused = pytest.raises(DaemonUnreachableError, match=r"no answer in 0\.05 s")
    with Client(daemon.path, timeout=0.05) as client, refused:
        client.cancel(1)

    assert len(daemon.requests(Control)) == 2


def test_a_daemon_that_goes_away_whenever_it_is_asked_is_given_up(
    tmp_path: Path,
) -> None:
    fakes = [FakeDaemon(tmp_path / "s")]

    def crash(_: Control) -> list[Message]:
        again = threading.Thread(target=restart, args=(fakes[-1],))
        again.start()
        return []

    def restart(old: FakeDaemon) -> None:
        old.close()
        fakes.append(FakeDaemon(tmp_path / "s"))
        fakes[-1].answers[Control] = crash

    fakes[0].answers[Control] = crash
    refused = pytest.raises(DaemonUnreachableError, match="went away 5 times")
    with Client(tmp_path / "s") as client, refused:
        client.cancel(1)
    until(lambda: len(fakes) == 6, "the end of the restarts")
    fakes[-1].close()
    keys = [each.key for fake in fakes for each in fake.requests(Control)]
    assert (len(keys), len(set(keys))) == (5, 1)


def test_a_daemon_that_has_gone_already_needs_not_be_stopped(
    tmp_path: Path,
) -> None:
    fake = FakeDaemon(tmp_path / "s")
    with Client(fake.path) as client:
        fake.close()
        fake.path.unlink()
        until(lambda: client._session._connection is None, "the loss to be noticed")

        client.stop()


def test_launcher_is_started_before_the_first_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    fake = FakeDaemon(tmp_path / "s", launcher=False)
    launcher = SimpleNamespace(start_launcher=started.append)
    monkeypatch.setitem(sys.modules, "libtask.worker.launcher", launcher)

    with Client(fake.path) as client:
        client.devices()
        assert started == []
        client.submit_specs(specs(1))
        client.submit_specs(specs(1))

    assert started == [fake.path]
    fake.close()


# ---------------------------------------------------------------- follow


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

    assert daemon.requests(Watch)[0].ids is None


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
        second = FakeDaemon(tmp_path / "s")
        second.tasks[7] = a_task(7, state="running")

        assert next(changes).what == "seen"
        assert second.requests(Watch)[0].ids == [7]
        second.push(a_change(7, "completed"))
        assert next(changes).state == "completed"
    second.close()


def test_a_watch_ends_when_the_daemon_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libtask.client.watching.PATIENCE_SECONDS", 0.0)
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
    second = FakeDaemon(tmp_path / "s")
    second.tasks[1] = a_task(1, state="completed", result="after")

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


# ---------------------------------------------------------------- the other verbs


def test_listing_goes_page_by_page(client: Client, daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 251)}

    found = client.tasks(Selection(detail=True))

    assert [info.id for info in found] == list(range(250, 0, -1))
    assert [each.before for each in daemon.requests(ListTasks)] == [None, 151, 51, 1]
    assert len(client.tasks(Selection(limit=7))) == 7


def test_listing_of_many_ids_is_split(client: Client, daemon: FakeDaemon) -> None:
    daemon.tasks = {number: a_task(number) for number in range(1, 251)}

    found = client.tasks(Selection(ids=tuple(range(1, 251)), detail=True))

    assert len(found) == len({info.id for info in found}) == 250
    assert [len(each.ids) for each in daemon.requests(ListTasks)] == [100, 100, 50]


def test_one_forgotten_task_does_not_spoil_the_others(
    client: Client, daemon: FakeDaemon
) -> None:
    daemon.tasks = {number: a_task(number, state="completed") for number in (1, 3)}

    first, second, third = client.handles([1, 2, 3])

    assert (first.wait(5), third.wait(5)) == ("completed", "completed")
    with pytest.raises(NotFoundError, match="no task 2"):
        second.result(5)
    assert daemon.requests(Watch)[0].ids == [1, 2, 3]


def test_missing_task(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no task 77"):
        client.show(77)


def test_refusals_become_the_matching_error(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no resource 'nowhere'"):
        client.migrate(1, "nowhere")


def test_each_verb_gets_its_answer(client: Client) -> None:
    assert client.cancel(1, 2) == [1, 2]
    assert client.hold(3) == [3]
    assert client.release(4) == [4]
    assert client.policy().name == "migration"
    assert client.policy("affinity").name == "affinity"
    assert client.models()[0].resource == "cpu"
    assert [each.spec.name for each in client.devices()] == ["cpu", "gpu0"]


def test_daemon_that_stops_without_a_word(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path / "s")
    leaving = threading.Thread(target=fake.close)

    def leave(_: Stop) -> list[Message]:
        leaving.start()
        return []

    fake.answers[Stop] = leave

    with Client(fake.path) as client:
        client.stop()
    leaving.join()


def test_many_threads_share_a_client(client: Client) -> None:
    found: list[int] = []

    def ask() -> None:
        for _ in range(20):
            found.extend(handle.id for handle in client.submit_specs(specs(1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(1, 81))


def test_callback_that_asks_is_told_off_instead_of_hanging(
    client: Client, daemon: FakeDaemon
) -> None:
    told: Future[str] = Future()

    def ask(_: Future[Any]) -> None:
        try:
            client.devices()
        except RuntimeError as error:
            told.set_result(str(error))

    client.submit_specs(specs(1))[0].ended.add_done_callback(ask)
    daemon.push(a_change(1, "completed"))

    assert "callback" in told.result(5)


# ---------------------------------------------------------------- asyncio


def test_async_form(daemon: FakeDaemon, tmp_path: Path) -> None:
    app = tmp_path / "noop.py"
    app.write_text(
        "from libtask.task import Task\n"
        "class Noop(Task): pass\n"
        "@Noop.on('cpu')\n"
        "def run(task, device, checkpoint):\n    yield\n"
    )

    def watched(message: Watch) -> list[Message]:
        return [Done(message.request), a_change(3, "running")]

    daemon.answers[Watch] = watched

    async def story() -> list[Any]:
        async with AsyncClient(daemon.path) as client:
            task = await client.submit(f"{app}:Noop")
            changes = client.watch()
            first = await anext(changes)
            daemon.push(a_change(1, "completed", result=5))
            seen = [await task.result(), first.id, len(await client.tasks())]
            await changes.aclose()
            return seen

    assert asyncio.run(story()) == [5, 3, 1]
