"""`hetsim bound`: the least makespan of a scenario, as a program of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from click.testing import CliRunner

from hetsim.bound import lower_bound_of
from hetsim.commands.bound import command
from hetsim.scenario import read_scenario
from scenario_builders import a_node, a_scenario, a_type

if TYPE_CHECKING:
    from pathlib import Path


def test_the_bound_is_told_as_text_and_json(tmp_path: Path) -> None:
    scenario = a_scenario(
        a_node("cpu", "gpu0"),
        [a_type("both", cpu=30, gpu0=10)],
        [("a", "both", 0), ("b", "both", 0)],
    )
    path = tmp_path / "s.json"
    path.write_bytes(msgspec.json.encode(scenario))

    asked = CliRunner().invoke(command, [str(path), "--json"])
    text = CliRunner().invoke(command, [str(path)])

    found = json.loads(asked.stdout)
    assert found == {
        "format": "hetsim/bound-1",
        "lower_bound": lower_bound_of(read_scenario(path)),
    }
    # three quarters of the work on the GPU, a quarter on the CPU: both end at 15 s
    assert abs(found["lower_bound"] - 15) < 1e-3
    assert text.stdout == "no schedule of it is shorter than 15.000 s\n"
