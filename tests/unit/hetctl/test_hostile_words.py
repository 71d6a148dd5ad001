"""Other users' words in output: they cannot control a terminal or forge a line."""

from __future__ import annotations

import json
import logging
import os
import re
import unicodedata
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import hetctl
from hetctl.__main__ import main
from hetctl.export import modelplot
from hetctl.export.chart import draw
from hetctl.export.lanes import laid_out
from hetctl.export.page import write_page
from hetctl.top.picture import task_row
from hetctl.waiting import _bars
from hetd.log import LONGEST, LogWriter
from libtask.messages import Error, Explain, Note, NoteList, Notes, Sample, Segment
from libtask.plaintext import one_line, visible
from unit.fake_daemon import FakeDaemon, a_node, a_task

if TYPE_CHECKING:
    from collections.abc import Iterator

STEERING = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\x7f\u202e\u2066\u2028"
"""Renames the window, clears the screen, colours, goes back, turns the direction."""
FORGED = "2026-01-01 00:00:00,000 INFO hetd: all is well"
EVIL = f"a{STEERING}[/bold][link=x]$\\oops$<script>\n{FORGED}"


def steers(text: str) -> list[str]:
    """List the control characters in a text, except line ends."""
    return [
        c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl") and c != "\n"
    ]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "s")
    fake.tasks[1] = a_task(
        1,
        app=EVIL,
        type=EVIL,
        name=EVIL,
        owner=EVIL,
        reason=EVIL,
        state="failed",
        params={EVIL: EVIL},
        result=EVIL,
        submitted=1000.0,
        started=1000.0,
        finished=1002.0,
        snapshot_error=EVIL,
        segments=[Segment("cpu", 1000.0, 1001.0, rule=EVIL, stop_rule=EVIL)],
    )
    fake.answers[Notes] = lambda asked: [
        NoteList(asked.request, [Note(1.0, "lost", "cpu", EVIL)])
    ]
    fake.answers[Explain] = lambda asked: [Error(asked.request, "bad-input", EVIL)]
    monkeypatch.setenv("HETD_SOCKET", str(fake.path))
    monkeypatch.setenv("COLUMNS", "500")
    yield fake
    fake.close()


SHOWING = (
    "list --all",
    "show 1",
    "wait 1",
    "events",
    "events 1",
    "history",
    "report",
    "explain 1",
    "trace --format scenario",
)


@pytest.mark.parametrize("reader", ["program", "person"])
@pytest.mark.parametrize("command", SHOWING)
def test_printed_text_cannot_control_the_terminal(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, command: str, reader: str
) -> None:
    monkeypatch.setattr("hetctl.output.on_terminal", lambda: reader == "person")

    result = CliRunner().invoke(main, command.split(), color=True)

    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "a\\x1b" in result.output or "a\\u001b" in result.output
    assert steers(result.output) == []
    assert FORGED not in result.output.splitlines()


@pytest.mark.parametrize("command", ["list --all", "show 1", "events"])
def test_json_keeps_the_words_and_cannot_control_the_terminal(
    daemon: FakeDaemon, command: str
) -> None:
    shown = CliRunner().invoke(main, [*command.split(), "--json"]).stdout

    assert steers(shown) == []
    documents = [json.loads(line) for line in shown.splitlines()]
    assert EVIL in _strings(documents)


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *_strings(list(value.values()))]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []


def test_a_warning_about_a_result_is_one_line(daemon: FakeDaemon) -> None:
    daemon.tasks[2] = a_task(2, state="completed", result=1, warnings=[EVIL])

    done = CliRunner().invoke(main, ["result", "2"])

    (line,) = done.stderr.splitlines()
    assert line.startswith("hetctl: a")
    assert FORGED in line


def test_live_pictures_are_steered_by_nobody(daemon: FakeDaemon) -> None:
    console = Console(width=500, record=True)
    console.print(_bars([daemon.tasks[1]], frozenset(), 5))
    shown = [*task_row(daemon.tasks[1], 0.0), console.export_text()]
    assert [steers(each) for each in shown] == [[]] * len(shown)


def test_drawn_charts_take_names_as_they_are(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    lanes, bars = laid_out([daemon.tasks[1]], a_node(), 2000.0)

    draw(lanes, bars, tmp_path / "chart.png")
    write_page(lanes, bars, tmp_path / "page.html")
    samples = [Sample(f"{EVIL}/{EVIL}", "cpu", 1.5, work=work) for work in (1.0, 50.0)]
    modelplot.draw(EVIL, samples, frozenset(), tmp_path / "model.svg")

    assert (tmp_path / "chart.png").stat().st_size > 0
    assert steers((tmp_path / "model.svg").read_text(encoding="utf-8")) == []
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>\\n" not in page  # what a user wrote cannot begin an element


def test_all_that_is_printed_goes_through_one_place() -> None:
    folder = Path(hetctl.__file__).parent
    direct = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"click\.(echo|secho)\(|[^.\w]print\(", path.read_text("utf-8"))
    }

    # measurements overwrite one line; logs are the task's own output
    assert direct <= {
        "output.py",
        "commands/models.py",
        "commands/results.py",
        "pool/tasks.py",  # a pool belongs to one user, and so does the output
    }


@pytest.mark.parametrize(("reader", "red"), [(0, "\x1b[31mred"), (1, "\\x1b[31mred")])
def test_another_users_log_cannot_control_the_terminal(
    daemon: FakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: int,
    red: str,
) -> None:
    monkeypatch.setattr("hetctl.commands.results.on_terminal", lambda: True)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + reader)
    log = tmp_path / "w.log"
    log.write_text("\x1b[31mred\n")
    segment = Segment("cpu", 1.0, 2.0, log=str(log), log_start=0, log_end=9)
    daemon.tasks[2] = a_task(2, owner=f"uid:{os.geteuid()}", segments=[segment])

    shown = CliRunner().invoke(main, ["logs", "2"], color=True).stdout

    assert shown == f"{red}\n"


# ---------------------------------------------------------------- the daemon's log


@contextmanager
def _told(logger: logging.Logger) -> Iterator[None]:
    try:
        yield
    except ValueError:
        logger.exception("a request failed")
        raise


def test_no_word_of_a_user_begins_a_line_of_the_log() -> None:
    reader, descriptor = os.pipe()
    writer = LogWriter(descriptor)
    logger = logging.Logger("hetd")  # noqa: LOG001  nobody else is to find it
    logger.addHandler(writer)

    logger.warning("task 1: %s", EVIL)
    logger.warning("task 1: %s", "x" * 10 * LONGEST)
    with suppress(ValueError), _told(logger):
        raise ValueError(EVIL)
    writer.flush()
    os.close(descriptor)
    with os.fdopen(reader, encoding="utf-8", newline="") as file:
        lines = file.read().split("\n")

    assert [each for line in lines for each in steers(line)] == []
    assert FORGED not in lines
    assert max(map(len, lines)) <= LONGEST
    starts = [line for line in lines if line and not line.startswith("  ")]
    assert len(starts) == 3


def test_only_control_characters_are_changed() -> None:
    words = "naïve 東京 😀 \t x\N{NO-BREAK SPACE}y"

    assert visible(words) == words
    assert visible("a\nb") == "a\nb"
    assert one_line("a\tb\nc") == "a\\tb\\nc"
    assert one_line("\x1b\x9b\u202e") == "\\x1b\\x9b\\u202e"
