"""The loop bench reports regressions against recorded figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hetbench.loop import RECORDED, regressions

if TYPE_CHECKING:
    from pathlib import Path


def recorded(path: Path, steps: int) -> Path:
    rows = [{"case": "stream", "calibration_steps": steps}]
    document = {"machine": {"cpu": "AMD EPYC"}, "benches": {"loop": rows}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def row(steps: int) -> dict[str, Any]:
    return {"case": "stream", "calibration_steps": steps}


def test_a_case_that_takes_over_15_percent_longer_is_reported(tmp_path: Path) -> None:
    slow = row(1160)
    (line,) = regressions([slow], recorded(tmp_path / "loop.json", 1000))
    assert line == (
        "stream: regression, takes 1.16 times the recorded 1000 calibration steps "
        "(AMD EPYC)"
    )
    assert slow["over_recorded"] == 1.16


def test_a_case_within_15_percent_is_not_reported(tmp_path: Path) -> None:
    for steps in (500, 1000, 1150):
        assert not list(regressions([row(steps)], recorded(tmp_path / "l.json", 1000)))


def test_a_case_that_was_never_recorded_is_left_alone(tmp_path: Path) -> None:
    new = row(9999) | {"case": "another"}
    assert not list(regressions([new], recorded(tmp_path / "loop.json", 1000)))
    assert "over_recorded" not in new


def test_a_missing_record_is_said(tmp_path: Path) -> None:
    (line,) = regressions([row(1000)], tmp_path / "absent.json")
    assert "nothing to compare with" in line


def test_the_record_has_the_cases_of_the_bench() -> None:
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    cases = {row["case"] for row in document["benches"]["loop"]}
    assert {"stream, submits of 500", "one at a time"} <= cases
