"""The fork server of the torture runs: its processes do not outlive the harness."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

from torture import environment
from torture.deployment import eventually

if TYPE_CHECKING:
    from pathlib import Path

HARNESS = """
import sys, time
from pathlib import Path
from torture.fork_server import COMMAND, ForkServer
log = Path(sys.argv[1])
fork_server = ForkServer()
script = "sleep 1000 & setsid sleep 1000 & wait"
fork_server.start(COMMAND, ["sh", "-c", script], log)
while len(family := fork_server.family()) < 3:
    time.sleep(0.01)
print(*(each.pid for each in family), flush=True)
time.sleep(1000)
"""


def test_nobody_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HARNESS, str(tmp_path / "log")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment()
    ) as harness:
        assert harness.stdout is not None
        born = [psutil.Process(int(pid)) for pid in harness.stdout.readline().split()]
        harness.send_signal(signal.SIGKILL)

    assert len(born) == 3
    eventually(lambda: not any(each.is_running() for each in born), "the end of all")
