"""Workers that go on with the next task, and those that a task has spoilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetapps.gaussian_blur import GaussianBlur
from libtask import private_daemon
from system.private_daemon import PATIENCE, SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from libtask.client.client import Client
    from libtask.task import Task

TWO_THREADS = """
[[resource]]
name = "cpu"
kind = "cpu"
slots = 1
threads = 2
"""

LEAVES_A_THREAD = """
import threading
import time
from libtask import Task

class Leaving(Task):
    def total(self):
        return 1

@Leaving.on("cpu")
def leave(task, device, checkpoint):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    for _ in checkpoint.strips():
        yield
"""


def worker_of(client: Client, task: Task | str) -> str:
    """Run a task; return the log of its worker, which tells workers apart."""
    handle = client.submit(task)
    handle.result(PATIENCE)
    return handle.info().segments[0].log


def test_helper_threads_of_kernels_do_not_cost_the_worker() -> None:
    with private_daemon(SETTINGS + TWO_THREADS) as client:
        workers = {worker_of(client, GaussianBlur(n=1024)) for _ in range(3)}

    assert len(workers) == 1


def test_a_thread_that_a_task_leaves_costs_the_worker(tmp_path: Path) -> None:
    app = tmp_path / "leaving.py"
    app.write_text(LEAVES_A_THREAD)
    with private_daemon(SETTINGS + TWO_THREADS) as client:
        workers = {worker_of(client, f"{app}:Leaving") for _ in range(3)}

    assert len(workers) == 3
