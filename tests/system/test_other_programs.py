"""Work that is not ours: other programs on the cores are noticed, and kept away from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from hetapps.synthetic import Synthetic
from libtask.apps import Options, describe
from libtask.messages import Sample
from system.private_daemon import PATIENCE, RESOURCES, eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from libtask.messages import SharedLoad
    from system.private_daemon import PrivateDaemon

CONFIG = """
policy = "contention-aware"
cancel_grace_s = 0.3

[contention]
discover = true
every_s = 0.2
"""
MEMORY_BOUND = """
import numpy
a = numpy.ones(2_000_000)
b = a.copy()
while True:
    numpy.add(a, b, out=b)
"""
TASK = Synthetic(seconds={"cpu": 0.1, "gpu": 0.11})


def test_a_task_keeps_away_from_cores_that_other_programs_use(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon(CONFIG + RESOURCES)
    client = daemon.client
    spec = describe(TASK, "synthetic", Options())
    seconds = {"cpu": 0.1, "gpu0": 0.11}
    client.learn([Sample(spec.type, on, s, spec.work) for on, s in seconds.items()])

    def crowded() -> SharedLoad | None:
        cores = client.node_load().shared[0]
        return cores if cores.probabilities[-1] > 0.8 else None

    def place() -> str:
        task = client.submit(TASK)
        assert task.wait(PATIENCE) == "completed"
        return daemon.info(task.id).segments[0].resource

    with ExitStack() as stack:
        for _ in range(3 * (os.cpu_count() or 1)):
            program = [sys.executable, "-c", MEMORY_BOUND]
            other = stack.enter_context(subprocess.Popen(program))
            stack.callback(other.kill)
        cores = eventually(crowded, "the other programs are noticed")
        aware = place()
        shown = json.loads(Terminal(daemon)("devices", "--load", "--json"))
        client.policy("finish-time")
        unaware = place()

    assert (cores.name, cores.used_by) == ("cores", ["cpu"])
    assert {each.source for each in cores.evidence} >= {"offered"}
    assert (aware, unaware) == ("gpu0", "cpu")
    assert shown["used"] is True
    assert shown["shared"][0]["others"] > 1.0
