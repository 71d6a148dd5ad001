"""What tasks return, as users see it."""

from __future__ import annotations

import asyncio
import json
import pickle
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

from libtask import AsyncClient
from system.private_daemon import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from system.private_daemon import PrivateDaemon
    from system.terminal import Terminal

APP = """
    from dataclasses import dataclass
    from pathlib import Path
    import numpy as np
    from libtask import Task

    class Model:
        def __init__(self, weight):
            self.weight = weight

    @dataclass
    class Fit(Task):
        what: str = "plain"

        def save(self, checkpoint):
            if self.what == "fail":
                raise ValueError("no luck")
            loss = np.float32(1.5)
            plain = {"loss": loss, "at": Path("/a"), "seen": {3, 1}}
            model = {"model": Model(7)} if self.what == "model" else {}
            large = {"array": np.arange(50_000)} if self.what == "large" else {}
            return plain | model | large

    @Fit.on("cpu")
    def run(task, device, checkpoint):
        for strip in checkpoint.strips():
            yield
"""
PLAIN = {"loss": 1.5, "at": "/a", "seen": [1, 3]}


@pytest.fixture
def app(tmp_path: Path) -> str:
    path = tmp_path / "fit.py"
    path.write_text(textwrap.dedent(APP))
    return f"{path}:Fit"


def test_a_result_is_printed_and_saved(
    hetctl: Terminal, app: str, tmp_path: Path
) -> None:
    said = hetctl("submit", app, "--wait").splitlines()[-1]
    path = tmp_path / "r.json"

    assert json.loads(said.partition("completed on cpu: ")[2]) == PLAIN
    assert json.loads(hetctl("result", "last")) == PLAIN
    assert hetctl.json("result", "last")["result"] == PLAIN
    task = hetctl.json("result", "last")["id"]
    written = hetctl("result", "last", "--save", str(path))
    assert written == f"{path}: result of task {task} written\n"
    assert json.loads(path.read_text()) == PLAIN


def test_what_is_no_plain_value_costs_a_warning(
    hetctl: Terminal, daemon: PrivateDaemon, app: str, tmp_path: Path
) -> None:
    handle = daemon.client.submit(app, {"what": "model"})
    result = handle.result(PATIENCE)
    path = tmp_path / "r.pickle"

    hetctl("result", str(handle.id), "--save", str(path))
    done = hetctl.completed("result", str(handle.id))
    waited = hetctl.completed("wait", str(handle.id))

    # the class comes by its content: nobody else has the file that defines it
    assert (result["loss"], result["model"].weight) == (1.5, 7)
    assert pickle.loads(path.read_bytes())["model"].weight == 7  # noqa: S301  our own
    warning = "result['model']: no plain value (Model): kept pickled with the task"
    assert done.stderr == f"hetctl: {warning}\n"
    assert waited.stderr == f"hetctl: task {handle.id}: {warning}\n"
    assert hetctl.json("show", str(handle.id))["warnings"] == [warning]
    assert warning in hetctl("logs", str(handle.id))


def test_a_large_array_is_saved_as_one(
    hetctl: Terminal, daemon: PrivateDaemon, app: str, tmp_path: Path
) -> None:
    handle = daemon.client.submit(app, {"what": "large"})
    result = handle.result(PATIENCE)
    path = tmp_path / "r.pickle"

    hetctl("result", str(handle.id), "--save", str(path))

    assert np.array_equal(result["array"], np.arange(50_000))
    again = pickle.loads(path.read_bytes())  # noqa: S301  our own
    assert np.array_equal(again["array"], np.arange(50_000))


def test_who_waits_for_a_failed_task_is_told_where_to_look(
    hetctl: Terminal, app: str
) -> None:
    done = hetctl.completed("submit", app, "--what", "fail", "--wait")
    task = done.stdout.split()[1]

    assert done.returncode == 10
    assert done.stderr == f"hetctl: for its output: hetctl logs {task}\n"
    shown = hetctl("show", task)
    assert "traceback" in shown
    assert 'raise ValueError("no luck")' in shown
    assert hetctl.json("show", task)["trace"].endswith("ValueError: no luck\n")
    refused = hetctl.completed("result", task)
    assert refused.returncode == 1
    assert (
        f"task {task} has no result: it failed: ValueError: no luck" in refused.stderr
    )


def test_who_awaits_a_result_has_it_as_it_was(daemon: PrivateDaemon, app: str) -> None:
    async def weight() -> object:
        async with AsyncClient(daemon.socket) as client:
            task = await client.submit(app, {"what": "model"})
            return (await task.result())["model"].weight

    assert asyncio.run(weight()) == 7
