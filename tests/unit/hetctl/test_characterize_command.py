"""`hetctl characterize`: what it prints and returns; the measuring itself is elsewhere."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from click import UsageError
from click.testing import CliRunner

from hetctl.commands import models, together
from hetd.config import read_config
from libtask.characterisation import Extent, Subject, Trial
from libtask.messages import (
    DeviceInfo,
    DeviceList,
    DeviceSpec,
    LearnedLoad,
    LoadEvidence,
    Sample,
    SharedLoad,
)
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SAMPLE = Sample("heat/64", "gpu0", 0.25, 4096.0)


extents: list[Extent] = []


class Node:
    """Has one emulated GPU."""

    def devices(self) -> list[DeviceInfo]:
        return [DeviceInfo(DeviceSpec("gpu0", "gpu", emulated=True))]

    def node_load(self) -> DeviceList:
        return DeviceList(0, self.devices(), busy)


busy: list[SharedLoad] = []
CROWDED: tuple[Any, ...] = (
    *(0.0, [0.0, 1.0], [0.02, 0.98], 0.98, 1.0),
    [LoadEvidence("offered", 1.0, 1, 0.0)],
)


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


def test_loads_are_written_as_tables_that_the_daemon_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = LearnedLoad("heat", "cpu", "memory", 0.8, 0.65, {"heat": 1.39})
    monkeypatch.setattr(models, "connect", lambda _: nullcontext(Node()))
    monkeypatch.setattr(together, "characterise_together", lambda *_, **__: [load])
    path = tmp_path / "loads.toml"

    status, output = invoke("--together", "heat", "-o", str(path), "--json")
    busy.append(SharedLoad("cores", "cores", ["cpu"], *CROWDED))
    printed = invoke("--together", "heat")[1]

    assert status == 0
    busy.clear()
    assert json.loads(output) == {
        "format": "hetctl/learned-loads-1",
        "loads": [
            {
                "app": "heat",
                "resource": "cpu",
                "shared": "memory",
                "demand": 0.8,
                "bound": 0.65,
                "slowdowns": {"heat": 1.39},
            }
        ],
        "file": str(path),
    }
    assert "1.39 beside heat" in printed
    assert "hetctl: other programs use 98% of cores: measure again" in printed
    (known,) = read_config(path).contention.load
    assert (known.app, known.demand, known.bound) == ("heat", 0.8, 0.65)


@pytest.mark.parametrize(
    "words", [("--together", "--quick"), ("--together", "--resume"), ("-o", "x.toml")]
)
def test_options_that_do_not_go_together_are_refused(words: Sequence[str]) -> None:
    outcome = CliRunner().invoke(
        models.characterize_command, words, standalone_mode=False
    )

    assert isinstance(outcome.exception, UsageError)
