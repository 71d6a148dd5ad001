"""Tasks that fail or cannot run: the worker says why, and serves on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from libtask.messages import Failed, Finished
from unit.libtask.worker.played_worker import Played
from unit.scripted_daemon import cpu, null, run, stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def veteran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The one worker that all these failures come to: it must outlive each."""
    played = Played(tmp_path_factory.mktemp("veteran"))
    played.daemon.greet()
    yield played
    played.close()


@pytest.mark.parametrize("where", ["load", "run", "save"])
@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        ("ValueError", "ValueError: no luck", "task-failed"),
        ("MemoryError", "MemoryError: no luck", "task-failed"),
        ("SystemExit", "SystemExit: no luck", "task-failed"),
        ("KeyboardInterrupt", "KeyboardInterrupt: no luck", "task-failed"),
        ("InputError", "no luck", "bad-input"),
        ("DeviceError", "no luck", "device"),
    ],
)
def test_survives_failures(
    veteran: Played, where: str, error: str, line: str, code: str
) -> None:
    params = {"where": where, "error": error}
    veteran.say(stage(1, veteran.app("Broken"), params=params), run(1, cpu()))

    failed = veteran.daemon.expect(Failed)

    assert (failed.task, failed.error, failed.code) == (1, line, code)
    assert "in fail" in failed.trace
    veteran.still_works()


def test_an_error_may_name_a_file_whose_name_is_no_text(veteran: Played) -> None:
    params = {"where": "run", "file": b" with x\xe9"}
    veteran.say(stage(1, veteran.app("Broken"), params=params), run(1, cpu()))

    failed = veteran.daemon.expect(Failed)

    assert failed.error == "ValueError: no luck with x\\udce9"
    veteran.still_works()


def test_a_negative_number_of_iterations_fails_the_task(veteran: Played) -> None:
    veteran.say(stage(1, veteran.app("Count"), params={"limit": -1}), run(1, cpu()))

    failed = veteran.daemon.expect(Failed)

    text = "Count: total: expected a whole number from 0, or None, got -1"
    assert (failed.error, failed.code) == (text, "bad-input")
    veteran.still_works()


@pytest.mark.parametrize("where", ["array", "map", "long"])
def test_values_that_no_checkpoint_can_hold_are_told(
    veteran: Played, where: str
) -> None:
    params = {"where": where, "iterations": 1000, "pause": 0.05}
    veteran.say(stage(1, veteran.app("Broken"), params=params), run(1, cpu()))

    failed = veteran.daemon.expect(Failed)

    text = "checkpoint.extra: expected a few small plain values, as in JSON; keep others in"
    assert failed.error.startswith(text)
    veteran.still_works()


@pytest.mark.parametrize(
    ("where", "warning"),
    [
        ("result", "result: no plain value (type): kept pickled with the task"),
        ("set", ""),
        ("large", "result: it is large (str): kept pickled in "),
    ],
)
def test_a_result_that_cannot_travel_is_kept_in_another_form(
    veteran: Played, where: str, warning: str
) -> None:
    veteran.say(stage(1, veteran.app("Broken"), params={"where": where}), run(1, cpu()))

    finished = veteran.daemon.expect(Finished)

    assert "".join(finished.warnings).startswith(warning)
    assert bool(finished.warnings) is bool(warning)
    assert finished.result == {"1": 2} or finished.result["pickled"] in ("type", "str")
    veteran.still_works()


def test_refuses_what_it_cannot_run(veteran: Played) -> None:
    veteran.say(stage(1, "/nowhere/app.py:App"))
    assert veteran.daemon.expect(Failed).code == "bad-input"

    veteran.say(stage(2, veteran.app("Nothing"), params={"no": 1}))
    assert "no" in veteran.daemon.expect(Failed).error

    fpga = null("fpga0", "fpga")
    veteran.say(stage(3, veteran.app("Nothing")), run(3, fpga))
    assert "no implementation for fpga (fpga0)" in veteran.daemon.expect(Failed).error

    veteran.say(stage(4, veteran.app("Nothing"), cwd="/nowhere"))
    assert "/nowhere: No such file" in veteran.daemon.expect(Failed).error

    veteran.say(run(5, cpu()))
    assert veteran.daemon.expect(Failed).code == "not-held"
    veteran.still_works()


def test_an_edited_app_is_another_app(worker: Played) -> None:
    worker.still_works()

    worker.apps.write_text("raise RuntimeError('half written')\n")

    worker.say(stage(1, worker.app("Nothing")))
    failed = worker.daemon.expect(Failed)
    assert "half written" in failed.error


def test_a_trace_is_cut_at_its_beginning(veteran: Played) -> None:
    deep = veteran.folder / "deep.py"
    deep.write_text(
        "from libtask import Task\n\n\nclass Deep(Task):\n    def load(self, n=40):\n"
        "        if n == 0:\n            raise ValueError('the end')\n"
        + "".join(f"        {'#' * 90}\n" for _ in range(3))
        + "        (self.load if n % 2 else lambda m: self.load(m))(n - 1)\n"
    )
    veteran.say(stage(1, f"{deep}:Deep"))

    trace = veteran.daemon.expect(Failed).trace

    assert len(trace.encode()) <= 4096
    assert trace.endswith("ValueError: the end\n")
