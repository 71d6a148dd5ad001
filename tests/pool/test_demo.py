"""`hetctl pool demo`, in both of its networks: the outcome, and nothing that stays behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from hetctl.documents.schemas import schema_of
from hetpool.setup.namespaces import obstacle

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
