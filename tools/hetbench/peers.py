"""Dask and Ray, in an interpreter of their own: no-op tasks a second.

`PeerProcess` runs this file with another interpreter (`make bench PEERS=1` installs
both into `.venv-peers`), as a program that imports nothing of hetd. For each line that
it reads it runs as many no-op tasks as the line says, and prints the seconds.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PYTHON = "HETBENCH_PEERS"
"""Variable with the interpreter that has Dask and Ray; empty: they are left out."""
NAMES = ("Dask", "Ray")
READY = "ready"


class PeerProcess:
    """Another system in a process of its own.

    Args:
        name: one of `NAMES`.
        python: its interpreter.
        workers: processes that run tasks.

    """

    def __init__(self, name: str, python: str, workers: int) -> None:
        self._process = subprocess.Popen(
            [python, __file__, name, str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._orders = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        if self._answer() != READY:
            raise SystemExit(f"{name} does not start with {python}")

    def seconds(self, tasks: int) -> float:
        """Run no-op tasks; return how long they took, wall time in seconds."""
        print(tasks, file=self._orders, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """End it, with all processes that it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._orders.close()
        self._answers.close()

    def _answer(self) -> str:
        return self._answers.readline().strip()


@contextmanager
def peers(workers: int) -> Iterator[dict[str, PeerProcess]]:
    """Start the other systems, if there is an interpreter that has them."""
    python = os.environ.get(PYTHON, "")
    found = {name: PeerProcess(name, python, workers) for name in NAMES if python}
    try:
        yield found
    finally:
        for each in found.values():
            each.close()


def nothing(_: int) -> None:
    """Do nothing."""


def _dask(workers: int) -> Callable[[int], Any]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None
    )
    client = Client(cluster)
    return lambda tasks: client.gather(client.map(nothing, range(tasks), pure=False))


def _ray(workers: int) -> Callable[[int], Any]:
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(nothing)
    return lambda tasks: ray.get([remote.remote(number) for number in range(tasks)])


def main(name: str, workers: int) -> None:
    """Serve `PeerProcess`."""
    run = {"Dask": _dask, "Ray": _ray}[name](workers)
    run(100)
    print(READY, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        run(int(line))
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    module = {"Dask": "distributed", "Ray": "ray"}[sys.argv[1]]
    if importlib.util.find_spec(module) is None:
        sys.exit(f"{sys.executable} has no {module}: make bench PEERS=1 installs it")
    main(sys.argv[1], int(sys.argv[2]))
