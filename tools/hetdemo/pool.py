"""`hetctl pool demo`: a pool of three nodes on one machine, from nothing to checked results.

A first task is moved between nodes while it runs; a mixed batch with input files is
planned and run; one node is killed in the middle of it and comes back later; every result
is checked against a reference. The client runs in a process on the gateway's machine, as
only that one can reach the nodes.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hetapps.correlation import Correlation
from hetapps.heat import Heat, generate
from hetapps.synthetic import Synthetic
from hetdemo.checks import check
from hetdemo.pool_machines import HEAD, NODES, DemoMachines
from hetpool.client.pool import Input, Pool
from hetpool.setup.config import read_settings
from libtask.errors import HetError
from libtask.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from hetpool.client.pool import PoolTask

CLIENT = "client"
"""First word of the command line of the client's process."""
INTERRUPTED = 130
KILLED = "n3"
PATIENCE_S = 100.0
"""Seconds for each part of the demo."""
LOOK_S = 0.1
SIDE = 1024
"""Rows and columns of the plates: 4 MiB each."""
HOTSPOTS = 8
HEATS, CORRELATIONS, SYNTHETICS = 6, 3, 18
SYNTHETIC_S = 1.5
APPS: dict[type[Task], str] = {
    Heat: "heat",
    Correlation: "correlation",
    Synthetic: "synthetic",
}
LONG_STEPS = 30_000
BEGUN = 0.02
"""Share that the first task has done before it is moved."""
ENDED_BEFORE_KILL = 6


@dataclass(slots=True)
class DemoOfPool:
    """A run of the demo.

    Attributes:
        machines: the pool's.
        output: folder for results and the picture.

    """

    machines: Outside
    output: Path
    began: float = field(default_factory=time.monotonic)
    work: list[tuple[Task, PoolTask]] = field(default_factory=list)

    def run(self, pool: Pool) -> dict[str, Any]:
        """Run all parts; return the document of the outcome."""
        self._await_nodes(pool, {HEAD, *NODES})
        self._introduce(pool)
        moved = self._move_first(pool)
        self._submit_batch(pool)
        lost = self._kill(pool)
        results = self._results()
        wrong = self._check(results)
        replaced = self._return_of_the_killed(pool, lost)
        picture = self._draw(pool)
        places = Counter(task.node for _, task in self.work)
        seconds = time.monotonic() - self.began
        correct = not wrong and len(results) == len(self.work)
        self.machines.say(
            f"{len(results)} results {'right' if correct else 'NOT ALL RIGHT'}, "
            f"{seconds:.0f} s; by node: "
            + ", ".join(f"{name} {places[name]}" for name in NODES)
        )
        return {
            "format": "hetctl/pool-demo-1",
            "network": self.machines.network,
            "emulated": True,
            "tasks": len(self.work),
            "correct": correct,
            "executions": dict(places),
            "moved": moved,
            "replaced": replaced,
            "seconds": seconds,
            "picture": str(picture),
        }

    # ------------------------------------------------------------ nodes

    def _await_nodes(self, pool: Pool, wanted: set[str]) -> None:
        def there() -> bool:
            return wanted <= {node.name for node in pool.nodes() if node.present}

        self._until(there, f"nodes {', '.join(sorted(wanted))} to come")

    def _introduce(self, pool: Pool) -> None:
        from hetctl.pool.gathering import nodes_of
        from hetctl.pool.nodes import node_row

        why = self.machines.why
        if why:
            self.machines.say(
                f"nodes on 127.0.0.x, links without limits: no network namespaces ({why})"
            )
        else:
            self.machines.say(
                "nodes in network namespaces; links of 4 MB/s, the gateway's of 8 MB/s"
            )
        for view in nodes_of(pool):
            name, state, address, devices, *_ = node_row(view)
            self.machines.say(f"  {name:<5} {state}  {address}  {devices}")
        self.machines.say(
            "  cpu is real; gpu0 is emulated: synthetic tasks wait there and compute nothing"
        )

    # ------------------------------------------------------------ a move

    def _move_first(self, pool: Pool) -> int:
        """Move a running task between nodes; return the number of moves."""
        plate = self._plate("plate-first", 1000)
        task = Heat(
            input=str(plate), output=str(self.output / "first.npy"), steps=LONG_STEPS
        )
        first = self._submit(pool, task, plate, {"cpu": 10.0})
        self._until(
            lambda: first.done() or first.progress > BEGUN, "the first task to begin"
        )
        if first.done():
            first.result(0)  # raises the error, if that is why
            raise HetError("the first task ended before it could be moved")
        source = first.node
        target = next(name for name in NODES if name not in (source, KILLED))
        before = first.progress
        self.machines.say(
            f"a heat task runs on {source}, {100 * before:.0f} % done; it moves to {target}"
        )
        pool.move(first.id, target)
        self._until(
            lambda: first.done() or (first.node == target and first.progress > 0),
            f"it to run on {target}",
        )
        self.machines.say(
            f"  it runs on {first.node}, from {100 * first.progress:.0f} %"
        )
        return int(first.node == target)

    # ------------------------------------------------------------ the batch

    def _submit_batch(self, pool: Pool) -> None:
        begin = len(self.work)
        jobs = [*self._heats(), *self._correlations(), *self._synthetics()]
        described = [
            pool.job(
                APPS[type(task)],
                _parameters(task, file),
                resources=(where,),
                seconds=times,
            )
            for task, file, where, times in jobs
        ]
        plan, tasks = pool.batch(described)
        self.work += [(job[0], task) for job, task in zip(jobs, tasks, strict=True)]
        megabytes = sum(file.stat().st_size for _, file, *_ in jobs if file) / 1e6
        self.machines.say(
            f"a batch of {len(tasks)} tasks with {megabytes:.0f} MB of input files, by "
            f"{plan.planner}: planned to end in {plan.makespan:.1f} s"
        )
        self._until(
            lambda: (
                sum(task.done() for _, task in self.work[begin:]) >= ENDED_BEFORE_KILL
            ),
            f"{ENDED_BEFORE_KILL} tasks to end",
        )

    def _heats(self) -> Iterator[tuple[Task, Path, str, dict[str, float]]]:
        for number in range(HEATS):
            plate = self._plate(f"plate-{number}", number)
            output = str(self.output / f"heat-{number}.npy")
            yield Heat(str(plate), output, steps=400), plate, "cpu", {"cpu": 1.0}

    def _correlations(self) -> Iterator[tuple[Task, Path, str, dict[str, float]]]:
        for number in range(CORRELATIONS):
            table = self.output / f"table-{number}.npy"
            values = np.random.default_rng(number).normal(size=(2000, 250))
            np.save(table, values.astype(np.float32))
            output = str(self.output / f"correlation-{number}.npy")
            yield Correlation(str(table), output), table, "cpu", {"cpu": 1.0}

    def _synthetics(self) -> Iterator[tuple[Task, None, str, dict[str, float]]]:
        for _ in range(SYNTHETICS):
            yield Synthetic({"gpu": SYNTHETIC_S}), None, "gpu0", {"gpu": SYNTHETIC_S}

    def _plate(self, name: str, seed: int) -> Path:
        path = self.output / f"{name}.npy"
        np.save(path, generate(SIDE, HOTSPOTS, seed))
        return path

    def _submit(
        self, pool: Pool, task: Task, file: Path, seconds: dict[str, float]
    ) -> PoolTask:
        params = _parameters(task, file)
        started = pool.submit(
            APPS[type(task)], params, resources=("cpu",), seconds=seconds
        )
        self.work.append((task, started))
        return started

    # ------------------------------------------------------------ a loss

    def _kill(self, pool: Pool) -> set[str]:
        """Kill a node; return the ids of the tasks that it had."""
        lost = {job.id for job in pool.tasks() if job.node == KILLED}
        self.machines.kill(KILLED)
        self.machines.say(
            f"{KILLED} is killed, with {len(lost)} unfinished tasks: others take them over"
        )
        return lost

    def _return_of_the_killed(self, pool: Pool, lost: set[str]) -> int:
        """Start the killed node again; return how many of its tasks ran elsewhere."""
        elsewhere = {task.id: task.node for _, task in self.work if task.id in lost}
        count = sum(node != KILLED for node in elsewhere.values())
        self.machines.say(
            f"{count} tasks of {KILLED} ran elsewhere; it is started again"
        )
        self.machines.start(KILLED)
        self._await_nodes(pool, {KILLED})
        return count

    # ------------------------------------------------------------ results

    def _results(self) -> list[tuple[Task, Any]]:
        left = {task.ended for _, task in self.work}
        deadline = time.monotonic() + PATIENCE_S
        while left and time.monotonic() < deadline:
            _, left = wait(left, 10.0, FIRST_COMPLETED)
        return [(task, handle.result(0)) for task, handle in self.work]

    def _check(self, results: list[tuple[Task, Any]]) -> list[str]:
        """Check the results; return a line for each that is wrong."""
        wrong = []
        for task, result in results:
            if isinstance(task, Synthetic):
                continue  # it has completed; it computes nothing
            verdict = check(task, result)
            if not verdict.passed:
                wrong.append(f"{type(task).__name__}: {verdict}")
        for line in wrong:
            self.machines.say(f"WRONG: {line}")
        return wrong

    def _draw(self, pool: Pool) -> Path:
        from hetctl.pool.gathering import gathered
        from hetctl.pool.pictures import draw

        path = self.output / "pool.png"
        found = gathered(pool)
        draw(found, found.tasks, path)
        return path

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise HetError(f"the demo waited {PATIENCE_S:g} s for {what}")
            time.sleep(LOOK_S)


def _parameters(task: Task, file: Path | None) -> dict[str, Any]:
    """Return a task's parameters, with its input file as one that is sent along."""
    values = dict(vars(task)) if file is None else {"input": Input(file)}
    for name in ("output", "steps"):
        if file is not None and hasattr(task, name):
            values[name] = getattr(task, name)
    return values


# ------------------------------------------------------------ the client's process


class Outside:
    """The demo's machines, as the client's process sees them: it asks for what it needs.

    Each request is a line of JSON on standard output; those to kill or start a machine are
    answered by a line on standard input.
    """

    def __init__(self, network: str, why: str) -> None:
        self.network = network
        self.why = why
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def say(self, text: str) -> None:
        self._send({"say": text})

    def kill(self, name: str) -> None:
        self._ask({"kill": name})

    def start(self, name: str) -> None:
        self._ask({"start": name})

    def end(self, outcome: dict[str, Any]) -> None:
        self._send({"outcome": outcome})

    def _ask(self, request: dict[str, Any]) -> None:
        self._send(request)
        self._answers.get()

    def _listen(self) -> None:
        """Pass answers on; end with the demo, whatever is waited for."""
        # unbuffered: the end of the interpreter waits for who reads a buffer
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as answers:
            for line in answers:
                self._answers.put(line)
        os._exit(INTERRUPTED)

    def _send(self, request: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(request) + "\n")
        sys.stdout.flush()


def client(words: list[str]) -> int:
    """Run the demo's client on the gateway's machine; return the exit status."""
    config, incoming, output, network, why = words
    outside = Outside(network, why)
    settings = read_settings(Path(config), {}).engine()
    try:
        with Pool(settings, timeout=PATIENCE_S, incoming=Path(incoming)) as pool:
            outside.end(DemoOfPool(outside, Path(output)).run(pool))
    except HetError as error:
        sys.stderr.write(f"hetctl: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


# ------------------------------------------------------------ the process outside


def main() -> int:
    """Run the demo; return its exit status."""
    if sys.argv[1:2] == [CLIENT]:
        return client(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="hetctl pool demo", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)  # no process may be left
    try:
        found = _run(options)
    except HetError as error:
        sys.stderr.write(f"hetctl: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    if found is None:
        return 1
    sys.stdout.write(
        json.dumps(found) + "\n"
        if options.as_json
        else f"picture: {found['picture']}\n"
    )
    return 0 if found["correct"] else 1


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _run(options: argparse.Namespace) -> dict[str, Any] | None:
    output = options.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.fromtimestamp(time.time(), dt.UTC)  # noqa: TID251  the shell's clock
    if not options.as_json:
        sys.stdout.write(
            "starting a pool: a scheduler with a gateway, and three nodes\n"
        )
    with (
        tempfile.TemporaryDirectory(prefix="hetpool-demo-") as folder,
        DemoMachines(Path(folder), now, loopback=options.loopback) as machines,
    ):
        words = [sys.executable, "-m", "hetdemo.pool", CLIENT, str(machines.config)]
        words += [str(machines.incoming), str(output), machines.network, machines.why]
        with subprocess.Popen(  # noqa: S603  our own interpreter and module
            machines.command(HEAD, words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            return _serve(process, machines, quiet=options.as_json)


def _serve(
    process: subprocess.Popen[str], machines: DemoMachines, *, quiet: bool
) -> dict[str, Any] | None:
    """Do what the client's process asks for; return the outcome, None: it failed."""
    outcome = None
    assert process.stdout is not None  # noqa: S101  they are pipes
    assert process.stdin is not None  # noqa: S101
    for line in process.stdout:
        match json.loads(line):
            case {"say": text} if not quiet:
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
            case {"kill": name}:
                machines.kill(name)
                process.stdin.write("done\n")
                process.stdin.flush()
            case {"start": name}:
                machines.start(name)
                process.stdin.write("done\n")
                process.stdin.flush()
            case {"outcome": found}:
                outcome = found
            case _:
                pass
    return outcome


if __name__ == "__main__":
    sys.exit(main())
