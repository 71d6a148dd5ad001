"""`--begin` and the batch key `begin`: times as users write them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from hetctl.units import beginning
from libtask.messages import Submit
from unit.hetctl.typed_commands import complaint, document, text

if TYPE_CHECKING:
    from pathlib import Path

    from unit.fake_daemon import FakeDaemon

NOW = dt.datetime(2026, 3, 4, 15, 30).timestamp()  # noqa: DTZ001  local, as users write it
SYNTHETIC = ("submit", "synthetic", "--set", 'seconds={"cpu": 1.0}')


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("+2h", "2026-03-04T17:30"),
        ("+90", "2026-03-04T15:31:30"),
        ("22:00", "2026-03-04T22:00"),
        ("9:05", "2026-03-05T09:05"),
        ("15:30", "2026-03-05T15:30"),
        ("2026-03-10", "2026-03-10T00:00"),
        ("2026-03-04T16:00:01", "2026-03-04T16:00:01"),
        ("2020-01-01T00:00", "2020-01-01T00:00"),
    ],
)
def test_times(words: str, expected: str) -> None:
    assert beginning(words, NOW) == dt.datetime.fromisoformat(expected).timestamp()


def test_a_time_may_have_a_zone() -> None:
    assert beginning("2026-03-04T16:00Z", NOW) == 1772640000.0


@pytest.mark.parametrize(
    "words",
    ["", "tomorrow", "25:00", "2h", "+", "+-2h", "-3", "1969-01-01"],
)
def test_other_words_are_refused(daemon: FakeDaemon, words: str) -> None:
    line = complaint(*SYNTHETIC, "--begin", words)

    expected = "expected a time such as 22:00, +2h or 2026-01-02T03:04, got"
    assert expected in " ".join(line.split())
    assert not daemon.requests(Submit)


@pytest.mark.parametrize(
    "words", ["2286-01-01", "9999-12-31T00:00", "9999-12-31T23:59", "+9999999999h"]
)
def test_a_time_that_is_too_far_off_is_called_so(
    daemon: FakeDaemon, words: str
) -> None:
    line = complaint(*SYNTHETIC, "--begin", words)

    assert f"expected a time before the year 2286, got '{words}'" in line
    assert not daemon.requests(Submit)


def test_an_option_says_when_a_task_begins(daemon: FakeDaemon) -> None:
    text(*SYNTHETIC, "--begin", "2030-01-02T03:04Z")

    (task,) = daemon.requests(Submit)[0].tasks
    assert task.begin == 1893553440.0


def test_a_script_says_when_it_begins(daemon: FakeDaemon, tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text("#!/bin/sh\n#HET --begin 2030-01-02T03:04Z\nexit 0\n")

    text("submit", str(script))

    (task,) = daemon.requests(Submit)[0].tasks
    assert task.begin == 1893553440.0


def test_a_batch_says_when_its_tasks_begin(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    task = '[[task]]\napp = "synthetic"\nparams = { seconds = { cpu = 1.0 } }\n'
    path.write_text(
        f'{task}begin = 2030-01-02T03:04:00Z\n{task}begin = "2030-01-02T03:04Z"\n{task}'
    )

    document("batch", str(path))

    sent = daemon.requests(Submit)[0].tasks
    assert [each.begin for each in sent] == [1893553440.0, 1893553440.0, None]


def test_wrong_begins_in_a_batch_are_all_named(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "b.toml"
    task = '[[task]]\napp = "synthetic"\nparams = { seconds = { cpu = 1.0 } }\n'
    path.write_text(f'{task}begin = 5\n{task}begin = ["22:00"]\n{task}begin = "soon"\n')

    lines = complaint("batch", str(path))

    for place in ("task[0].begin: ", "task[1].begin: ", "task[2].begin: "):
        assert f"{place}expected a time such as 22:00" in lines
    assert not daemon.requests(Submit)
