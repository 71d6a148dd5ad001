"""A demo that is ended by a signal: one line, the status of a signal, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Timer
from typing import TYPE_CHECKING

import psutil
import pytest

from system.private_daemon import eventually

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60.0
COMPUTED_S = 1.5
"""Seconds of a processor after which a check has started and imported all it needs."""
ENDLESS = '''
import sys
from types import SimpleNamespace

from hetapps.markov import Markov
from hetdemo import __main__ as program


def run(demo):
    """Check results that take for ever."""
    jobs = [SimpleNamespace(task=Markov(n=16)) for _ in range(12)]
    result = {"iterations": 10**12, "converged": True}
    infos = [SimpleNamespace(name="m", state="completed", result=result) for _ in jobs]
    return demo._check(jobs, infos)


if __name__ == "__main__":
    program.Demo.run = run
    sys.exit(program.main())
'''


def _checks(demo: int) -> list[psutil.Process]:
    """List the processes of a demo that have computed for a while."""
    children = psutil.Process(demo).children(recursive=True)
    return [each for each in children if sum(each.cpu_times()[:2]) > COMPUTED_S]


@pytest.mark.parametrize("group", [True, False], ids=["all", "alone"])
def test_a_signal_ends_the_checks_with_one_line(*, group: bool, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    ) as demo:
        eventually(lambda: bool(_checks(demo.pid)), "results are checked")
        checks = _checks(demo.pid)
        watchdog = Timer(PATIENCE_S, os.killpg, (demo.pid, signal.SIGKILL))
        watchdog.start()

        (os.killpg if group else os.kill)(demo.pid, signal.SIGTERM)

        output, complaint = demo.communicate()
        watchdog.cancel()
        assert (demo.returncode, complaint) == (143, "")
        assert output.splitlines()[1:] == [
            "hetdemo: ended by SIGTERM; the daemon was stopped"
        ]
        eventually(lambda: not any(map(psutil.Process.is_running, checks)), "all ended")
