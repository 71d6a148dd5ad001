"""Jobs by a real daemon: batch files with inputs, going on from a failure, pictures."""

from __future__ import annotations

import json
import operator
import textwrap
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from hetctl.waiting import EXIT_SOME_FAILED
from libtask import InputError
from libtask.client.client import Selection
from libtask.messages import TaskSpec
from system.private_daemon import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

APP = """
    from dataclasses import dataclass, field
    from pathlib import Path
    from libtask import Task

    @dataclass
    class Sum(Task):
        number: float = 0.0
        others: list[float] = field(default_factory=list)
        gate: str = ""

        def save(self, checkpoint):
            if self.gate and not Path(self.gate).exists():
                raise ValueError("the gate is closed")
            return self.number + sum(self.others)

    @Sum.on("cpu")
    def run(task, device, checkpoint):
        for strip in checkpoint.strips():
            yield
"""

BATCH = """
    job = "sums"

    [[task]]
    app = "sum.py:Sum"
    name = "leaf"
    sweep = { number = [1.0, 2.0, 3.0] }

    [[task]]
    app = "sum.py:Sum"
    name = "middle"
    params = { gate = "GATE" }
    inputs = [{ from = "leaf", bytes = 8, parameter = "others" }]

    [[task]]
    app = "sum.py:Sum"
    name = "top"
    params = { others = [0.5] }
    inputs = [{ from = "middle", parameter = "number" }]

    [[task]]
    app = "sum.py:Sum"
    name = "cry"
    after_notok = ["top"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sum.py").write_text(textwrap.dedent(APP))
    text = textwrap.dedent(BATCH).replace("GATE", str(tmp_path / "gate"))
    (tmp_path / "sums.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_is_submitted_fails_and_is_continued(
    daemon: PrivateDaemon, hetctl: Terminal, folder: Path
) -> None:
    hetctl("batch", "sums.toml", "--job", "first", "--wait", status=EXIT_SOME_FAILED)
    states = {info.name: info.state for info in members(daemon, "first")}

    assert states == {
        "leaf.0": "completed",
        "leaf.1": "completed",
        "leaf.2": "completed",
        "middle": "failed",
        "top": "cancelled",
        "cry": "completed",
    }
    (folder / "gate").touch()

    hetctl("requeue", "job:first", "--failed", "--wait")

    results = {info.name: info.result for info in members(daemon, "first")}
    assert (results["middle"], results["top"]) == (6.0, 6.5)
    assert len(members(daemon, "first")) == 8
    (job,) = (
        job
        for job in json.loads(hetctl("list", "--jobs", "--json"))["jobs"]
        if job["name"] == "first"
    )
    assert (job["state"], job["tasks"]) == ("completed", {"completed": 6})
    hetctl("graph", "first", "-o", "graph.svg")
    assert (folder / "graph.svg").read_text().count("<rect") == 6


def members(daemon: PrivateDaemon, job: str) -> list[TaskInfo]:
    tasks = daemon.client.tasks(Selection(limit=1000))
    return [info for info in reversed(tasks) if info.job == job]


def test_the_file_names_its_job(
    daemon: PrivateDaemon, hetctl: Terminal, folder: Path
) -> None:
    (folder / "gate").touch()

    hetctl("batch", "sums.toml", "--wait")

    tops = [info for info in members(daemon, "sums") if info.name == "top"]
    assert [info.result for info in tops] == [6.5]
    (cry,) = (info for info in members(daemon, "sums") if info.name == "cry")
    assert (cry.state, cry.reason) == (
        "cancelled",
        f"not needed: task {tops[0].id} completed",
    )


def test_all_mistakes_of_inputs_are_reported(hetctl: Terminal, folder: Path) -> None:
    (folder / "bad.toml").write_text(
        textwrap.dedent("""
        job = "a b"

        [[task]]
        app = "sum.py:Sum"
        inputs = [{ from = "later" }, { from = 3, bytes = -1 }]

        [[task]]
        app = "sum.py:Sum"
        name = "later"
        params = { number = 1.0 }
        after_any = ["nobody"]
        inputs = [{ from = 3, parameter = "number" }, { from = 3, parameter = "n" }]
        """)
    )

    done = hetctl.completed("batch", "bad.toml", "--check")

    assert done.returncode == 2
    for text in (
        "job: job 'a b': expected up to 100 characters",
        "task[0].inputs[0].from: no earlier task 'later'",
        "task[0].inputs[1].bytes: expected at least 0, got -1",
        "task[1].after_any[0]: no earlier task 'nobody'",
        "task[1].inputs[0].parameter: number is given twice",
        "task[1].params: Sum: unknown parameter 'n'",
    ):
        assert text in str(done.stderr)


def test_ids_that_a_batch_names_are_checked_with_their_places(
    hetctl: Terminal, daemon: PrivateDaemon, folder: Path
) -> None:
    spec = TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, kinds=["cpu"])
    failing = replace(spec, params={**spec.params, "fail_at": 0})
    held, failed = daemon.client.submit_specs([replace(spec, hold=True), failing])
    assert failed.wait(PATIENCE) == "failed"
    unknown = failed.id + 100
    (folder / "ids.toml").write_text(
        textwrap.dedent(f"""
        [[task]]
        app = "sum.py:Sum"
        name = "one"
        after = [{held.id}]
        after_any = [{failed.id}]

        [[task]]
        app = "sum.py:Sum"
        after = ["one", {failed.id}, {unknown}]
        after_notok = [{unknown + 1}]
        inputs = [{{ from = {unknown + 2} }}]
        """)
    )
    reason = daemon.client.show(failed.id).reason
    before = daemon.client.count(Selection())

    for check in ([], ["--check"]):
        done = hetctl.completed("batch", "ids.toml", *check)

        assert done.returncode in {2, 4}
        told = [line.removeprefix("hetctl: ") for line in done.stderr.splitlines()]
        assert told == [
            f"ids.toml: task[1].after[1]: task {failed.id} ended as failed: {reason}",
            f"ids.toml: task[1].after[2]: no task {unknown}",
            f"ids.toml: task[1].after_notok[0]: no task {unknown + 1}",
            f"ids.toml: task[1].inputs[0].from: no task {unknown + 2}",
        ]
    assert daemon.client.count(Selection()) == before


def test_a_client_names_a_job(daemon: PrivateDaemon) -> None:
    client = daemon.client
    with client.graph("inner"):
        one = client.submit(abs, -1)
        other = client.submit(abs, -2, job="outer")
        with client.executor() as executor:
            assert executor.submit(operator.add, one, 1).result(PATIENCE) == 2
    outside = client.submit(abs, one)

    names = [client.show(each.id).job for each in (one, other, outside)]
    assert names == ["inner", "outer", ""]
    assert len(members(daemon, "inner")) == 2
    with pytest.raises(InputError, match="without commas"), client.graph("a,b"):
        pass
