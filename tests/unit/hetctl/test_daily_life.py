"""Everyday output: reasons, hints and progress, and the time when they are printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetctl.__main__ import main
from hetctl.options import lacking
from hetctl.selectors import after_idling
from hetctl.views.accounting import account
from hetctl.waiting import _unusual
from hetsched.policies import make_policy
from hetsim.__main__ import cli as hetsim
from libtask.client.asynchronous import AsyncTask
from libtask.client.client import Client
from libtask.client.handles import TaskHandle
from libtask.errors import InputError
from libtask.messages import Explain, Explained, Segment, TaskChanged
from libtask.sizes import sized
from unit.fake_daemon import FakeDaemon, a_node, a_task
from unit.hetctl.typed_commands import text

if TYPE_CHECKING:
    from collections.abc import Sequence

WHY = "waits for gpu0: 3 tasks are before it"
DOCS = Path(__file__).parents[3] / "docs"


def test_an_awaited_task_reports_its_state() -> None:
    client: Any = None
    task = AsyncTask(TaskHandle(client, 7))
    assert (task.state, task.done()) == ("queued", False)

    task.handle.changed(TaskChanged(7, "completed", 1.0))

    assert (task.state, task.done()) == ("completed", True)


def test_a_timeout_says_of_what() -> None:
    client: Any = SimpleNamespace(path=Path("nowhere"))
    handle = TaskHandle(client, 7)

    for waits in (handle.wait, handle.result):
        with pytest.raises(TimeoutError) as caught:
            waits(0.0)
        assert str(caught.value) == "task 7 has not ended after 0 s"


@pytest.mark.usefixtures("daemon")
def test_the_name_of_an_array_is_a_selector_of_it() -> None:
    application = ("heat", "--n", "64", "--steps", "1")
    for words in (application, ("--", "true")):
        array = ("submit", "--array", "0-1", "--name")
        assert text(*array, "x{index}y", *words).endswith("select them as '@x*y'\n")
        assert text(*array, "x", *words).endswith("select them as @x\n")


@pytest.mark.parametrize(
    ("policy", "parameters", "told"),
    [
        ("finish-time", {"caution": "-3"}, "caution: expected a number from 0, got -3"),
        ("finish-time", {"caution": "nan"}, "caution: expected a number from 0"),
        ("finish-time", {"least_gain": 2}, "least_gain: expected a share from 0 to 1"),
        ("migration", {"minimum_run_s": "inf"}, "expected a number from 0, got inf"),
        ("cim", {"window_s": "1e308"}, "window_s: expected a number up to 1e+15"),
        ("cim", {"most_tasks": "0"}, "expected a whole number from 1, got 0"),
        ("sparrow", {"probes": "-1"}, "probes: expected a whole number from 1"),
        ("lookahead", {"look": 0}, "look: expected a whole number from 1, got 0"),
        ("lookahead", {"futures": 0}, "futures: expected a whole number from 1"),
        ("felare", {"deferrals": "-2"}, "deferrals: expected a whole number from -1"),
        ("paragon", {"known": 2}, "known: expected a share from 0 to 1, got 2"),
    ],
)
def test_parameters_without_sense_are_refused(
    policy: str, parameters: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        make_policy(policy, parameters)


def test_an_interrupted_wait_reports_that_the_tasks_go_on(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    daemon.tasks = {1: a_task(1), 2: a_task(2)}
    monkeypatch.setattr("hetctl.waiting._wait", interrupted)

    result = CliRunner().invoke(main, ["wait", "1,2"])

    assert result.exit_code == 130
    assert result.stderr.strip() == (
        "hetctl: tasks 1-2 go on; hetctl wait 1-2 waits again, hetctl cancel 1-2 ends them"
    )


def test_the_reason_for_waiting_is_printed(daemon: FakeDaemon) -> None:
    daemon.answers[Explain] = lambda asked: [Explained(asked.request, 1, "queued", WHY)]
    setting_up = [Segment("cpu", 1.0)]
    computing = [Segment("cpu", 1.0, strips=1)]
    with Client(daemon.path) as client:
        told = [
            _unusual(client, a_task(1)),
            _unusual(client, a_task(1, state="running", segments=setting_up)),
            _unusual(client, a_task(1, state="running", segments=computing)),
            _unusual(client, a_task(1, state="completed")),
        ]

    assert told[0] == WHY
    assert "compiling heat for cpu, which is needed once on this machine" in told[1]
    assert told[2:] == ["", ""]


def test_a_submit_says_why_the_task_does_not_start(daemon: FakeDaemon) -> None:
    daemon.answers[Explain] = lambda asked: [Explained(asked.request, 1, "queued", WHY)]
    words = ["submit", "heat", "--n", "64", "--steps", "1"]

    result = CliRunner().invoke(main, words)

    assert result.stdout == "task 1 submitted\n"
    assert result.stderr == f"task 1 {WHY}\n"


@pytest.mark.parametrize(
    ("submitted", "lasted", "kept"),
    [
        ([0.0, 10.0], 5.0, [1, 0]),
        ([0.0, 3700.0], 50.0, [1]),
        ([0.0, 3700.0], 200.0, [1, 0]),
        ([0.0, 3700.0, 3800.0, 9000.0], 3.0, [3]),
    ],
)
def test_an_idle_hour_ends_the_recent_tasks(
    submitted: Sequence[float], lasted: float, kept: list[int]
) -> None:
    tasks = [
        a_task(number, state="completed", submitted=at, finished=at + lasted)
        for number, at in enumerate(submitted)
    ]

    assert [info.id for info in after_idling(reversed(tasks))] == kept


def test_cancelled_computing_is_computing_and_wasted() -> None:
    def a_run(number: int, state: str) -> Any:
        ran = Segment("cpu", 1.0, 4.0, seconds=2.5, strips=5)
        times: dict[str, Any] = {"submitted": 0.0, "started": 1.0, "finished": 4.0}
        return a_task(number, state=state, segments=[ran], **times)

    tasks = [a_run(1, "completed"), a_run(2, "cancelled")]
    cpu = account(tasks, a_node(), now=5.0).resources[0]

    assert (cpu.split.computing, cpu.split.wasted) == (5.0, 2.5)


@pytest.mark.parametrize("pip", [True, False])
def test_an_extra_is_installed_by_pip_where_that_is(
    monkeypatch: pytest.MonkeyPatch, *, pip: bool
) -> None:
    monkeypatch.setattr("libtask.extras.find_spec", lambda _: object() if pip else None)

    text = lacking("top needs", "textual", "top")

    command = f"{sys.executable} -m pip install 'hetd[top]'"
    assert (text == f"top needs textual: {command}") is pip
    assert ("make install EXTRAS=top" in text) is not pip


def test_joblib_is_named_where_it_is_missing() -> None:
    program = "import sys; sys.modules['joblib'] = None; import libtask.joblib"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    last = done.stderr.splitlines()[-1]
    assert "libtask.joblib needs joblib: " in last
    assert last.endswith("-m pip install 'hetd[joblib]'")


def test_the_example_of_a_mapping_event_is_as_the_page_says(tmp_path: Path) -> None:
    section = (DOCS / "formats.md").read_text().split("## 2 ")[1].split("## 3 ")[0]
    (event,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    told = dict(re.findall(r"with `(\w+)`,\s+`(\{.*?\})`", section))
    (tmp_path / "event.json").write_text(event)
    assert set(told) == {"mm", "felare"}

    for policy, result in told.items():
        words = ["map", str(tmp_path / "event.json"), "--policy", policy, "--json"]
        found = json.loads(CliRunner().invoke(hetsim, words).stdout)
        limit = found.get("fairness_limit")
        if limit is not None:
            found["fairness_limit"] = round(limit, 9)
        assert found == json.loads(result)


def test_the_example_scenario_runs() -> None:
    words = ["run", str(DOCS / "examples" / "scenario.json"), "--json"]

    found = json.loads(CliRunner().invoke(hetsim, words).stdout)

    assert found["counts"]["completed"] == 6


def test_all_mistakes_of_a_batch_file_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(
        """
        [[task]]
        app = "heat"
        priority = "high"
        params = { n = "large", stepz = 3 }
        after = ["nobody"]
        deadline = "soon"
        colour = "red"

        [[task]]
        name = "second"

        [[task]]
        app = "nothing"
        after = ["second"]
        deadline = "soon"
        """
    )
    result = CliRunner().invoke(main, ["batch", str(tmp_path / "b.toml"), "--check"])

    places = re.findall(r"task\[\d\]\.[a-z]+", result.stderr)
    assert sorted(places) == [
        "task[0].after",
        "task[0].colour",
        "task[0].deadline",
        "task[0].params",
        "task[0].priority",
        "task[1].app",
        "task[2].app",
        "task[2].deadline",
    ]
    assert "n: expected int, got 'large'; unknown parameter 'stepz'" in result.stderr


def test_an_application_without_samples_is_measured_at_named_sizes() -> None:
    made = sized("heat", [], ["n=64", "128"])
    sizes = [task.n for task in made]  # type: ignore[attr-defined]  # of heat
    assert sizes == [64, 128]
