"""Seeds that failed once do not fail again; those that fail in a long run come here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torture.simulate import FAILED, INTERRUPTED, Tally, main
from torture.simulation.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN = Path(__file__).with_name("seeds.txt")
"""A line each: seed, events, and after a `#` what it found; as `simulate` keeps them."""


def known() -> list[tuple[int, int]]:
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    figures = [line.partition("#")[0].split() for line in lines]
    return [(int(seed), int(events)) for seed, events in filter(None, figures)]


@pytest.mark.parametrize(("seed", "events"), known())
def test_a_seed_that_failed_once_does_not_again(seed: int, events: int) -> None:
    assert Run(seed, events).go().found == []


def test_a_seed_that_fails_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # nothing may go on after the storm: what has not ended then never does
    monkeypatch.setattr("torture.simulation.run.LAST_PATIENCE", 0)
    words = ["--first", "7", "--seeds", "1", "--events", "60", "--jobs", "1"]

    status = main([*words, "--keep", str(tmp_path)])

    assert status == 1
    kept = (tmp_path / FAILED).read_text()
    assert kept.startswith("7 60  # ")
    assert "for ever" in kept
    assert kept.removeprefix("7 60  # ").strip() in capsys.readouterr().err


def test_an_interrupted_run_reports_what_it_has_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Iterator[Tally]:
        yield Tally(seeds=3)
        raise KeyboardInterrupt

    monkeypatch.setattr("torture.simulate.in_processes", interrupted)

    assert main(["--json"]) == INTERRUPTED
    assert json.loads(capsys.readouterr().out)["seeds"] == 3


def test_a_daemon_that_decides_without_end_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decide_for_ever(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("torture.simulation.time_limit.LONGEST_S", 0.2)
    monkeypatch.setattr("hetsched.scheduler.Scheduler.handle", decide_for_ever)

    (found,) = Run(7, 60).go().found

    assert found.startswith("no end in 0.2 s of processor time: ")
    assert "> decide_for_ever (" in found
