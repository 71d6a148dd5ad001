"""What "Your first hour" shows, and each example file, runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import SETTINGS, opened
from system.test_docs import DOCS, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from system.private_daemon import PrivateDaemon

PAGE = "first-hour.md"
EXAMPLES = DOCS / "examples"
ELSEWHERE = {
    "family-half-rack.json",
    "family-node.json",
    "job-graph.json",
    "scenario.json",
    "shortest-first",
    "train.py",
}
"""Examples that other tests read or run."""


CPU = """
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[PrivateDaemon]:
    """A daemon without accelerators: null devices do not run the kernels of applications."""
    with opened(SETTINGS + CPU) as opened_daemon:
        yield opened_daemon


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with the examples in it, and commands by their names."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    return tmp_path


def _at_the_prompt(command: str, folder: Path, daemon: PrivateDaemon) -> str:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ
        | {
            "HETD_SOCKET": str(daemon.socket),
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def _sessions() -> list[str]:
    return blocks(PAGE, "console")


@pytest.mark.parametrize("number", range(len(_sessions())))
def test_the_commands_of_the_page_work(
    number: int, folder: Path, daemon: PrivateDaemon
) -> None:
    """Each block's commands, one after the other; what the page says they print is right."""
    printed = ""
    for line in _sessions()[number].splitlines():
        if line.startswith("$ "):
            printed = _at_the_prompt(line.removeprefix("$ "), folder, daemon)
        else:
            assert line in printed


def test_the_page_shows_its_files_as_they_are() -> None:
    (script,) = blocks(PAGE, "sh")
    module, _ = blocks(PAGE, "python")

    assert script == (EXAMPLES / "words.sh").read_text()
    assert (EXAMPLES / "count_primes.py").read_text().endswith(module)


def test_the_output_of_an_array_and_of_a_script_is_in_files(
    folder: Path, daemon: PrivateDaemon
) -> None:
    _at_the_prompt("hetctl submit --wait words.sh words.sh", folder, daemon)

    (found,) = folder.glob("words-*.txt")
    assert found.read_text().splitlines()[0].split()[0].isdigit()


def test_the_cells_of_the_notebook_run(folder: Path, daemon: PrivateDaemon) -> None:
    cells = json.loads((folder / "notebook.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    program = folder / "notebook_as_program.py"
    program.write_text("\n".join(sources).replace("\n4 *", "\nestimate = 4 *"))
    program.write_text(program.read_text() + "\nprint(round(estimate, 1))\n")

    assert _at_the_prompt(f"python {program}", folder, daemon).endswith("3.1\n")


def test_every_example_is_on_the_page_or_tested_elsewhere() -> None:
    page = (DOCS / PAGE).read_text()
    shown = {path.name for path in EXAMPLES.iterdir() if path.name in page}

    names = {path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"}
    assert names - shown == ELSEWHERE
