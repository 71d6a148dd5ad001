"""`hetctl characterize`: what it prints and returns; the measuring itself is elsewhere."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hetctl.commands import models
from libtask.characterisation import Extent, Subject, Trial
from libtask.messages import DeviceInfo, DeviceSpec, Sample
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SAMPLE = Sample("heat/64", "gpu0", 0.25, 4096.0)


extents: list[Extent] = []


class Node:
    """Has one emulated GPU."""

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo(DeviceSpec("gpu0", "gpu", emulated=True))]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], bool]]:
    """Record the requested measurements; `broken` fails, the others give one sample."""
    calls: list[tuple[Sequence[str], bool]] = []

    def measure(
        _node: Any,
        apps: Sequence[str],
        *,
        quick: bool,
        report: Callable[..., None],
        extent: Extent,
    ) -> list[Sample]:
        extents.append(extent)
        calls.append((apps, quick))
        subject = Subject("heat", "heat/64", 4096.0, "gpu0", Task())
        problem = "does not compile" if "broken" in apps else ""
        report(Trial(subject, 1, 2, warm_up=False, problem=problem))
        return [] if problem else [SAMPLE]

    monkeypatch.setattr(models, "connect", lambda _: nullcontext(Node()))
    monkeypatch.setattr(models, "characterise", measure)
    return calls


def invoke(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(
        models.characterize_command, arguments, standalone_mode=False
    )
    return outcome.return_value, outcome.output


def test_samples_are_tabulated_and_emulation_marked(
    asked: list[tuple[Sequence[str], bool]],
) -> None:
    status, output = invoke("--quick", "heat")

    assert asked == [(("heat",), True)]
    assert status == 0
    assert output.splitlines()[-1].split() == [
        *("heat/64", "gpu0", "(emulated)", "0.2500", "-", "0.0000", "-", "4096")
    ]


def test_json_is_one_document(asked: list[tuple[Sequence[str], bool]]) -> None:
    status, output = invoke("--json")

    assert asked == [((), False)]
    assert status == 0
    assert json.loads(output) == {
        "format": "hetctl/characterization-1",
        "samples": [
            {
                "type": "heat/64",
                "resource": "gpu0",
                "emulated": True,
                "seconds": 0.25,
                "work": 4096.0,
                "spread": 0.0,
                "count": 1,
                "setup_s": 0.0,
                "joules": None,
            }
        ],
    }


def test_what_cannot_be_measured_is_told_and_fails(
    asked: list[tuple[Sequence[str], bool]],
) -> None:
    status, output = invoke("broken")

    assert asked == [(("broken",), False)]
    assert status == 1
    assert "cannot measure heat/64 on gpu0 (emulated): does not compile" in output


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("words", "extent"),
    [
        ((), Extent()),
        (("--sizes", "256,512"), Extent(("256", "512"))),
        (("--sizes", "columns=100,200"), Extent(("columns=100", "columns=200"))),
        (("--repeat", "3", "--resume"), Extent(repeat=3, resume=True)),
    ],
)
def test_options_say_what_is_measured(words: tuple[str, ...], extent: Extent) -> None:
    invoke(*words)

    assert extents[-1] == extent
