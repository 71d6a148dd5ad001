"""`hetctl pool demo`: the outcome in both of its networks, and nothing that stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hetctl.documents.schemas import schema_of
from hetpool.setup.namespaces import obstacle
from system.private_daemon import ROOM, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 400.0


def left_over() -> list[str]:
    """Return the command lines that name a folder of a demo."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if "/hetpool-demo-" in line and "hetdemo" not in line:
            found.append(line)
    return found


@pytest.mark.timeout(500)
@pytest.mark.parametrize("network", ["namespaces", "loopback"])
def test_the_demo_ends_with_checked_results(tmp_path: Path, network: str) -> None:
    why = obstacle()
    if network == "namespaces" and why:
        pytest.skip(f"no network namespaces: {why}")
    if network == "loopback" and not why and "HETD_DEMOS" not in os.environ:
        pytest.skip("the demo in namespaces runs; both are part of make torture")
    before = set(left_over())
    words = ["--loopback"] * (network == "loopback")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hetctl", "pool", "demo", "--json"),
            "-o",
            "out",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema_of("pool-demo-1"))
    assert found["network"] == network
    assert found["correct"]
    assert found["emulated"]
    assert sum(found["executions"].values()) == found["tasks"] == 28
    assert found["moved"] == 1
    assert found["replaced"] > 0
    assert (tmp_path / "out" / "pool.png").read_bytes()[:4] == b"\x89PNG"
    assert set(left_over()) <= before


def namespaces() -> set[str]:
    """Return the names of network namespaces."""
    folder = Path("/run/netns")
    return {each.name for each in folder.iterdir()} if folder.exists() else set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_behind_a_demo_that_is_ended(
    short_folder: Path, number: signal.Signals
) -> None:
    before, named = set(left_over()), namespaces()
    process = subprocess.Popen(
        [sys.executable, "-m", "hetctl", "pool", "demo"],
        stdout=subprocess.DEVNULL,
        cwd=short_folder,
        env={**os.environ, "TMPDIR": str(short_folder)},
        start_new_session=True,
    )
    try:
        eventually(
            lambda: any("hetpool gateway" in each for each in new(before)),
            "the processes of the demo",
            PATIENCE_S,
        )
    finally:
        os.kill(process.pid, number)
        status = process.wait(PATIENCE_S)

    assert status == (130 if number == signal.SIGINT else -number)
    eventually(lambda: not new(before), "the end of its processes", PATIENCE_S)
    eventually(lambda: namespaces() <= named, "its namespaces' removal", PATIENCE_S)
    # its files are what nobody can remove for a program that is killed
    left = list(short_folder.glob("hetpool-demo-*"))
    assert len(left) == (number == signal.SIGKILL)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for temporary files whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="hetd-", dir=ROOM) as made:
        yield Path(made)


def new(before: set[str]) -> set[str]:
    return set(left_over()) - before
