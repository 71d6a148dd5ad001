"""No answer is too large to be sent, and none is built that is (F1, F4, F5, F6, F8, F17)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hetd.store import Batch, Store
from hetd.tasks.page import TaskPage, encode
from hetsched.estimates.point import Figures
from hetsched.tasks import State, TaskRuntime
from libtask import messages as m
from libtask.client.client import Selection
from system.private_daemon import RESOURCES, ROOM, SETTINGS, PrivateDaemon
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ADMIN = 0
ENDED = 5000
RESULT = 5000
"""Bytes of the result of each."""
LONG = 8
"""Tasks with names of `NAME` bytes, from before there was a bound."""
NAME = 800_000
LARGE = 900_000


@pytest.fixture
def shell(restart: Callable[..., Shell]) -> Shell:
    return restart()


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    opened: list[Shell] = []

    def start(**fields: Any) -> Shell:
        if opened:
            opened[-1].close()
        opened.append(Shell(tmp_path, **fields))
        opened[-1].runtime.restore()
        return opened[-1]

    yield start
    opened[-1].close()


# ---------------------------------------------------------------- honest users


@pytest.fixture(scope="module")
def stocked() -> Iterator[PrivateDaemon]:
    """A daemon with 5,000 tasks that had results of 5 kB, and some with very long names."""
    folder = Path(tempfile.mkdtemp(prefix="hetd-", dir=ROOM))
    daemon = PrivateDaemon(folder, SETTINGS + RESOURCES)
    daemon.state.mkdir(mode=0o700)
    with closing(Store(daemon.state / "hetd.db")) as store:
        _stock(store)
    daemon.start()
    yield daemon
    assert daemon.close() == []


def _stock(store: Store) -> None:
    pages = [_page(task, result="r" * RESULT) for task in range(1, ENDED + 1)]
    pages += [_page(ENDED + n, name="n" * NAME) for n in range(1, LONG + 1)]
    store.submit(Batch(tasks=pages))
    store.flush()
    batch = Batch()
    for number in range(2000):
        batch.keep(Figures(f"app{number % 10}/{'s' * 1000}{number}", "cpu", 1.0, 1.0))
    store.submit(batch)
    store.flush()


def _page(task: int, result: str = "", name: str = "") -> tuple[int, int, bytes, int]:
    owner, now = os.getuid(), 2e9
    spec = m.TaskSpec("app", type="app/1", name=name)
    segment = m.Segment("cpu", now, now + 1, computed=now + 1, computing=now)
    page = TaskPage(
        task,
        owner,
        spec,
        now,
        TaskRuntime(State.COMPLETED),
        started=now,
        finished=now + 1,
        result=result,
        segments=(segment,),
    )
    return task, int(now), encode(page), owner


def test_a_client_lists_any_number_of_results(stocked: PrivateDaemon) -> None:
    with stocked.connect() as client:
        found = client.tasks(Selection(limit=100_000))
        full = client.tasks(Selection(ids=tuple(range(1, 1001)), detail=True))
        handles = client.handles(range(1, ENDED + 1))
        results = [handle.result(60) for handle in handles]

    assert [info.id for info in found] == list(range(ENDED + LONG, 0, -1))
    assert sum(len(info.result) for info in found) == ENDED * RESULT
    assert [info.id for info in full] == list(range(1000, 0, -1))
    assert results == ["r" * RESULT] * ENDED


COMMANDS: list[tuple[Sequence[str], Callable[[Any], int]]] = [
    (("list", "--limit", "100000", "--json"), lambda found: len(found["tasks"])),
    (("history", "--limit", "100000", "--json"), lambda found: len(found["tasks"])),
    (("wait", "all", "--json"), lambda found: 0),
    (("cancel", "all", "--json"), lambda found: 0),
    (("report", "--no-bound", "--json"), lambda found: len(found["tasks"])),
    (("report", "--no-bound", "--mine", "--json"), lambda found: len(found["tasks"])),
    (("gantt", "all", "-o", "chart.html", "--json"), lambda found: 0),
    (("models", "list", "--json"), lambda found: 0),
    (("top", "--once", "--json"), lambda found: 0),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("words", "count"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS]
)
def test_a_command_copes_with_any_number_of_results(
    stocked: PrivateDaemon,
    tmp_path: Path,
    words: Sequence[str],
    count: Callable[[Any], int],
) -> None:
    command = [sys.executable, "-m", "hetctl", *words, "--socket", str(stocked.socket)]

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert count(json.loads(done.stdout)) in (0, ENDED + LONG)


def test_all_models_are_listed_and_exported(stocked: PrivateDaemon) -> None:
    with stocked.connect() as client:
        assert len(client.models()) == 2000


# ---------------------------------------------------------------- pages


def an_answer(shell: Shell, request: m.Request, uid: int = USER) -> Any:
    answer = shell.ask(request, uid)
    assert len(m.encode(answer)) <= m.MAX_ANSWER
    return answer


def large(shell: Shell, count: int) -> list[int]:
    data = {"data": "x" * LARGE}
    return [shell.submit(a_spec(params=data, hold=True))[0] for _ in range(count)]


def test_a_task_that_is_named_often_is_listed_once(shell: Shell) -> None:
    (task,) = large(shell, 1)

    found = an_answer(shell, m.ListTasks(1, ids=[task] * m.MAX_IDS, detail=True))

    assert [info.id for info in found.tasks] == [task]
    assert found.next is None


@pytest.mark.parametrize("named", [True, False])
def test_a_page_ends_by_its_size_and_says_where_the_next_begins(
    shell: Shell, *, named: bool
) -> None:
    ids = large(shell, 5)
    seen: list[int] = []
    before = None

    for _ in ids:
        asked = m.ListTasks(
            1, ids=ids if named else None, detail=True, before=before, limit=m.MAX_IDS
        )
        page = an_answer(shell, asked)
        assert len(m.encode(page)) < LARGE + 10_000
        seen += [info.id for info in page.tasks]
        before = page.next

    assert seen == ids[::-1]
    assert before is None


def test_models_come_in_pages_and_are_forgotten_without_a_list(shell: Shell) -> None:
    samples = [
        m.Sample(f"a{n % 20}/" + "x" * 900 + str(n), "cpu", 1.0) for n in range(3000)
    ]
    for start in range(0, 3000, 1000):
        shell.ask(m.AddSamples(1, samples[start : start + 1000]), ADMIN)

    first = an_answer(shell, m.Models(1), ADMIN)
    rest = an_answer(shell, m.Models(1, after=first.next), ADMIN)
    gone = an_answer(shell, m.DeleteSamples(1), ADMIN)

    assert 0 < len(first.samples) <= 1000
    assert len(m.encode(first)) <= m.MAX_FRAME + 4096
    assert rest.samples[0].type > first.samples[-1].type
    assert gone == m.DeletedSamples(1, 3000)
    assert an_answer(shell, m.Models(1), ADMIN).samples == []


# fmt: off
REFUSALS: list[tuple[m.Message, str]] = [
    (m.Submit(1, [a_spec(), a_spec(name="n" * 257)]), "tasks[1].name: 257 bytes, at most 256"),
    (m.Submit(1, [a_spec(name="é" * 200)]), "tasks[0].name: 400 bytes, at most 256"),
    (m.Submit(1, [a_spec(type="t" * 1025)]), "tasks[0].type: 1025 bytes, at most 1024"),
    (m.Submit(1, [a_spec(app="a" * NAME)]), f"tasks[0].app: {NAME} bytes, at most 1024"),
    (m.Submit(1, [a_spec()] * 501), "tasks: 501 entries, at most 500"),
    (m.ListTasks(1, ids=[7] * 60_000), "ids: 60000 entries, at most 10000"),
    (m.Amend(1, [7] * 60_000, priority=1), "ids: 60000 entries, at most 10000"),
    (m.Subscribe(1, [7] * 10_001), "ids: 10001 entries, at most 10000"),
    (m.Failed(1, 1, "e" * 5000), "error: 5000 bytes, at most 4096"),
    (
        m.Policies(1, set="mm", parameters={"p": "x" * 70_000}),
        "parameters: 70008 bytes, at most 65536",
    ),
    (
        m.Progress(1, 1, m.CheckpointRecord(extra={"e": "x" * 70_000}), 1.0, 1),
        "checkpoint.extra: 70008 bytes, at most 65536",
    ),
]
# fmt: on


@pytest.mark.parametrize(
    ("message", "text"),
    REFUSALS,
    ids=[text.partition(":")[0] + str(n) for n, (_, text) in enumerate(REFUSALS)],
)
def test_a_refusal_names_the_field_and_the_bound(message: m.Message, text: str) -> None:
    with pytest.raises(m.MalformedError) as refused:
        m.decode_to_daemon(m.encode(message))

    assert str(refused.value) == text
    assert refused.value.request == getattr(message, "request", 0)


# ---------------------------------------------------------------- what is told to whom


def run_to_its_end(shell: Shell, uid: int, app: str) -> None:
    """Let a task of a user run, so that its type is measured."""
    shell.launcher(uid)
    (task,) = shell.submit(a_spec(app=app, type=f"{app}/1"), uid=uid)
    name = shell.sent.to(f"launcher{uid}", m.StartWorkers)[-1].names[-1]
    worker = shell.worker(name, uid)
    run = shell.sent.to(name, m.Run)[-1]
    done = m.Finished(run.task, run.epoch, seconds=1.0, iterations=1, strips=1)
    shell.reports.report(worker, done)
    assert shell.state(task) == "completed"


def test_types_are_told_to_their_owners_and_to_administrators(
    restart: Callable[..., Shell],
) -> None:
    shell = restart()
    for uid, app in ((USER, "secret"), (OTHER, "mine"), (3000, "heat")):
        run_to_its_end(shell, uid, app)
    shell.commit()

    def seen(uid: int) -> tuple[set[str], int]:
        answer = shell.ask(m.Models(1), uid)
        return {each.type for each in answer.samples}, answer.hidden

    def demand() -> None:
        assert seen(USER) == ({"secret/1", "heat/1"}, 1)
        assert seen(OTHER) == ({"mine/1", "heat/1"}, 1)
        own = {f"uid:{USER}:secret/1", f"uid:{OTHER}:mine/1"}
        assert seen(ADMIN) == (own | {"heat/1"}, 0)

    demand()
    shell = restart()
    for known in shell.store.samples():
        shell.parts.estimates.enter(known)
    demand()


def test_priorities_are_bounded_but_for_administrators(shell: Shell) -> None:
    text = "priority: expected -1000 to 1000, got"
    (task,) = shell.submit(a_spec(hold=True, priority=1000))

    for priority in (1001, 1 << 62, -1001):
        refused = shell.error(m.Submit(1, [a_spec(priority=priority)]))
        assert (refused.code, refused.text.startswith(text)) == ("not-allowed", True)
        refused = shell.error(m.Amend(1, [task], priority=priority))
        assert (refused.code, refused.text.startswith(text)) == ("not-allowed", True)
    shell.submit(a_spec(priority=1 << 62), uid=ADMIN)
    assert shell.ask(m.Amend(1, [task], priority=5000), ADMIN) == m.Done(1, [task])


def test_a_page_from_before_the_bounds_is_read(shell: Shell) -> None:
    spec = msgspec.structs.replace(a_spec(), name="n" * NAME)
    page = TaskPage(1, USER, spec, 1.0, TaskRuntime(State.HELD))
    shell.store.submit(Batch(tasks=[(1, 0, encode(page), USER)]))
    shell.store.flush()

    assert len(shell.journal.restore(2.0)[0].spec.name) == NAME
