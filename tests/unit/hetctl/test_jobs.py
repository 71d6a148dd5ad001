"""Jobs as `hetctl` shows them: summaries, pictures, selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.export import jobgraph
from hetctl.views.jobs import JobSummary, chain_lengths, jobs_of, unfinished_work
from libtask.messages import Control, Requeue, ResultInput, TaskInfo
from unit.fake_daemon import FakeDaemon, a_task
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from pathlib import Path

NOW = 200.0


def a_member(
    number: int, begins: float, takes: float | None, **fields: Any
) -> TaskInfo:
    """Make a task of job `j` with times in seconds after 100; None: it still runs."""
    ended = takes is not None
    given = {
        "state": "completed" if ended else "running",
        "submitted": 100.0,
        "started": 100.0 + begins,
        "finished": 100.0 + begins + takes if takes is not None else None,
        "job": "j",
        **fields,
    }
    return a_task(number, **given)


@pytest.fixture
def diamond() -> list[TaskInfo]:
    return [
        a_member(1, 1, 2),
        a_member(2, 3, 10, after=[1]),
        a_member(3, 3, 4, inputs=[ResultInput(1)]),
        a_member(4, 14, 1, after=[2], after_any=[3]),
    ]


def test_a_job_has_a_critical_path_and_a_slowdown(diamond: list[TaskInfo]) -> None:
    (job,) = jobs_of([*diamond, a_task(9), a_task(10, job="other")], NOW)[:1]

    assert (job.name, job.state, dict(job.counts)) == (
        "j",
        "completed",
        {"completed": 4},
    )
    assert job.elapsed_s == 15.0
    assert job.critical_path_s == 13.0
    assert job.slowdown == 15.0 / 13.0
    assert chain_lengths(diamond, NOW) == {1: 2.0, 2: 12.0, 3: 6.0, 4: 13.0}


def test_an_unfinished_job_counts_until_now(diamond: list[TaskInfo]) -> None:
    job = JobSummary("j", "uid:0", (*diamond[:1], a_member(2, 3, None, after=[1])), NOW)

    assert (job.state, job.finished, job.slowdown) == ("running", None, None)
    assert (job.elapsed_s, job.critical_path_s) == (100.0, 99.0)
    waiting = JobSummary("j", "", (a_task(1, state="held", submitted=150.0),), NOW)
    assert (waiting.state, waiting.elapsed_s) == ("waiting", 50.0)


def a_broken_job() -> list[TaskInfo]:
    not_needed = "not needed: task 1 completed"
    return [
        a_member(1, 0, 1),
        a_member(2, 1, 1, state="failed", after=[1]),
        a_member(3, 1, 1, state="cancelled", after=[2]),
        a_member(4, 1, 1, state="cancelled", after_notok=[1], reason=not_needed),
    ]


def test_what_failed_or_never_ran_is_left_to_do() -> None:
    tasks = a_broken_job()
    again = [
        a_member(5, 5, 1, requeued=2, after=[1]),
        a_member(6, 6, 1, requeued=3, after=[5]),
    ]

    assert [info.id for info in unfinished_work(tasks)] == [2, 3]
    assert jobs_of(tasks, NOW)[0].state == "failed"
    assert unfinished_work([*tasks, *again]) == []
    (repaired,) = jobs_of([*tasks, *again], NOW)
    assert repaired.state == "completed"
    assert [info.id for info in repaired.tasks] == [1, 4, 5, 6]


def test_the_picture_shows_names_states_and_dependencies() -> None:
    odd = a_member(5, 1, 1, name="<b>&\x1b", after=[1])
    job = JobSummary("j", "uid:0", (*a_broken_job(), odd), NOW)

    root = ET.fromstring(jobgraph.svg(job))  # noqa: S314  our own text

    space = "{http://www.w3.org/2000/svg}"
    titles = [each.text for each in root.iter(f"{space}title")]
    assert len(titles) == len(list(root.iter(f"{space}rect"))) == 5
    assert titles[1] is not None
    assert titles[1].startswith("2 ")
    assert "failed" in titles[1]
    dashes = [path.get("stroke-dasharray") for path in root.iter(f"{space}path")]
    assert dashes == [None, None, "4 3", None]
    assert "5 <b>&\\x1b" in [each.text for each in root.iter(f"{space}text")]


def test_a_large_job_is_drawn_small() -> None:
    tasks = tuple(a_member(number, 0, 1) for number in range(1, 1000))

    root = ET.fromstring(jobgraph.svg(JobSummary("j", "", tasks, NOW)))  # noqa: S314  our own text

    assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) == 1


@pytest.fixture
def broken(daemon: FakeDaemon) -> FakeDaemon:
    daemon.tasks = {info.id: info for info in a_broken_job()} | {8: a_task(8)}
    return daemon


@pytest.mark.usefixtures("broken")
def test_jobs_are_listed() -> None:
    (job,) = document("list", "--jobs", "--all")["jobs"]

    assert (job["name"], job["state"]) == ("j", "failed")
    assert job["tasks"] == {"completed": 1, "failed": 1, "cancelled": 2}
    assert "1 completed, 1 failed, 2 cancelled" in text("list", "--jobs", "--all")
    assert document("list", "--jobs")["jobs"] == []  # it ended in 1970
    assert [task["id"] for task in document("list", "job:j")["tasks"]] == [1, 2, 3, 4]
    assert document("list", "8")["tasks"][0]["job"] is None


def test_a_job_goes_on_from_where_it_failed(broken: FakeDaemon) -> None:
    document("requeue", "job:j", "--failed")

    (request,) = broken.requests(Requeue)
    assert request.ids == [2, 3]


def test_a_job_is_selected_for_control(broken: FakeDaemon) -> None:
    broken.tasks[9] = a_task(9, state="running", job="j")

    document("cancel", "job:j")

    (request,) = broken.requests(Control)
    assert request.ids == [9]


def test_a_graph_is_written(broken: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "g.html"

    found = document("graph", "j", "-o", str(path))

    assert found["job"]["name"] == "j"
    assert path.read_text().startswith("<!doctype html>")
    assert text("graph", "job:j", "-o", str(tmp_path / "g.svg")).endswith(
        "g.svg: 4 tasks drawn\n"
    )
    assert broken.tasks[2].state == "failed"


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["graph", "k"], 4, "no job 'k'"),
        (["show", "job:"], 4, "no job ''"),
        (["graph", "j", "-o", "x.png"], 2, "ends in .svg or .html"),
        (["graph", "j", "-o", "/none/x.svg"], 2, "no such folder"),
        (["list", "--jobs", "3"], 2, "--jobs goes with"),
        (["submit", "--job", "a b", "--", "true"], 2, "without commas and spaces"),
    ],
)
def test_mistakes_are_one_line(words: list[str], status: int, message: str) -> None:
    result = CliRunner().invoke(main, words)

    assert result.exit_code == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr
