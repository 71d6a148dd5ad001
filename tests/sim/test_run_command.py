"""`hetsim run`: which policy it takes, and how far off a prediction is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import hetd
from hetsched import build
from hetsim.commands.run import command
from scenario_builders import a_node, a_type


def a_trace(folder: Path, policy: str, **parameters: Any) -> str:
    """Write a scenario as `hetctl trace` does; return its path."""
    document = {
        "format": "hetsim/scenario-1",
        "policy": policy,
        "policy_parameters": parameters,
        "measured_makespan": 16.0,
        "resources": a_node("cpu", "gpu0"),
        "types": [a_type("g", cpu=20, gpu0=10, migration_s=1)],
        "tasks": [{"id": 1, "type": "g"}, {"id": 2, "type": "g"}],
    }
    path = folder / "scenario.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def hetsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hetsim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_programs_name_themselves_and_their_version_alike() -> None:
    built = " (compiled)" * (build.NAME == "compiled")
    for program, suffix in (("hetd", built), ("hetsim", built), ("hetctl", "")):
        done = subprocess.run(
            [sys.executable, "-m", program, "--version"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == f"{program} {hetd.__version__}{suffix}\n"


def test_bad_usage_is_one_line_with_the_name_of_the_program() -> None:
    done = hetsim("run")

    assert (done.returncode, done.stderr) == (
        2,
        "hetsim: Missing argument 'SCENARIO'.\n",
    )


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    trace = a_trace(tmp_path, "migration")
    for options in ([], ["--json"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "hetsim", "run", trace, *options],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )

        assert done.returncode == 1
        assert done.stderr == "standard output: No space left on device\n"


def test_a_trace_runs_under_its_own_policy(tmp_path: Path) -> None:
    result = run(a_trace(tmp_path, "migration"))

    assert result["policy"] == "migration"
    assert result["makespan"] == 16.0
    assert result["makespan_error"] == 0.0


def test_a_named_policy_comes_without_the_parameters_of_the_other(
    tmp_path: Path,
) -> None:
    trace = a_trace(tmp_path, "migration", minimum_run_s=2.0)

    result = run(trace, "--policy", "affinity")

    assert (result["policy"], result["makespan"]) == ("affinity", 20.0)


def test_parameters_of_a_trace_hold_unless_set_otherwise(tmp_path: Path) -> None:
    # whoever is so cautious leaves the second task to the GPU
    trace = a_trace(tmp_path, "finish-time", caution=100.0)

    assert run(trace)["makespan"] == 20.0
    assert run(trace, "--set", "caution=1")["makespan"] == 16.0


def test_the_error_is_printed(tmp_path: Path) -> None:
    arguments = [a_trace(tmp_path, "affinity")]

    done = CliRunner().invoke(command, arguments, catch_exceptions=False)

    assert "measured  16.000 s  (predicted +25.0 %)" in done.stdout
