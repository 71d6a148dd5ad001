"""`simulate`: run many seeds of the simulated daemon; replay one, with its trace.

python -m torture simulate --seeds 500 --events 1000
python -m torture simulate --seed 37 --trace

A failing seed is printed and kept at once: the run may go on for hours. If it is
interrupted (Ctrl-C), it reports what it has done.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torture.failure_report import KEPT
from torture.simulation.run import Run
from torture.simulation.world import tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torture.simulation.run import Outcome

INTERRUPTED = 130
"""Exit status after Ctrl-C."""
CHUNK = 20
"""Seeds that a process takes at once."""
FAILED = "failed-simulations.txt"
"""File of the seeds that failed: seed, events, what was wrong first. A line of it, put into
`tests/simulated/seeds.txt`, is replayed with every change."""


@dataclass(slots=True)
class Tally:
    """The results of many runs.

    Attributes:
        failing: seed -> what was wrong.

    """

    seeds: int = 0
    events: int = 0
    tasks: int = 0
    starts: int = 0
    seconds: float = 0.0
    failing: dict[int, list[str]] = field(default_factory=dict)

    def take(self, seed: int, outcome: Outcome) -> None:
        """Count one run."""
        self.seeds += 1
        self.events += outcome.events
        self.tasks += outcome.tasks
        self.starts += outcome.starts
        if outcome.found:
            self.failing[seed] = outcome.found

    def add(self, other: Tally) -> None:
        """Count what another process has counted."""
        self.seeds += other.seeds
        self.events += other.events
        self.tasks += other.tasks
        self.starts += other.starts
        self.failing |= other.failing

    def document(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "format": "torture/simulation-1",
            "seeds": self.seeds,
            "events": self.events,
            "tasks": self.tasks,
            "daemon_starts": self.starts,
            "seconds": round(self.seconds, 2),
            "events_per_s": round(self.events / max(self.seconds, 1e-9)),
            "failing": {str(seed): found for seed, found in self.failing.items()},
        }


def simulated(seeds: Sequence[int], events: int) -> Tally:
    """Run seeds one after the other.

    Args:
        seeds: of the runs.
        events: in each, before the faults end.

    """
    logging.disable(logging.CRITICAL)  # the daemon's log of hours that never were
    tally = Tally()
    for seed in seeds:
        tally.take(seed, Run(seed, events).go())
    return tally


def in_processes(seeds: range, events: int, jobs: int) -> Iterator[Tally]:
    """Run seeds in several processes; yield as they come."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as pool:
        try:
            yield from pool.map(simulated, chunks, [events] * len(chunks))
        finally:
            pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 where a seed fails, 130 after Ctrl-C."""
    options = _options(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.events, trace=options.trace)
    began = time.perf_counter()
    tally = Tally()
    seeds = range(options.first, options.first + options.seeds)
    interrupted = False
    try:
        for part in in_processes(seeds, options.events, options.jobs):
            tally.add(part)
            _keep(part.failing, options.events, options.keep)
    except KeyboardInterrupt:
        interrupted = True
    tally.seconds = time.perf_counter() - began
    _report(tally, as_json=options.json)
    return INTERRUPTED if interrupted else int(bool(tally.failing))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument(
        "--events", type=int, default=1000, help="events before the faults end"
    )
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help="processes")
    parser.add_argument("--seed", type=int, help="replay this one run")
    parser.add_argument("--trace", action="store_true", help="tell what happened")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--keep", type=Path, default=KEPT, help="where seeds that fail are kept"
    )
    return parser.parse_args(arguments)


def _replay(seed: int, events: int, *, trace: bool) -> int:
    logging.disable(logging.CRITICAL)
    outcome = Run(seed, events).go()
    if trace:
        for note in outcome.trace:
            print(tell(note))
    print(f"seed {seed}: {outcome.events} events, trace {outcome.digest}")
    for text in outcome.found:
        print(f"seed {seed}: {text}")
    return 1 if outcome.found else 0


def _keep(failing: dict[int, list[str]], events: int, folder: Path) -> None:
    """Print seeds that failed, and add them to the file of failures."""
    if not failing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FAILED).open("a", encoding="utf-8") as kept:
        for seed, found in failing.items():
            first = " ".join(found[0].split())
            kept.write(f"{seed} {events}  # {first}\n")
            sys.stderr.write(f"seed {seed}: {first}\n")


def _report(tally: Tally, *, as_json: bool) -> None:
    document = tally.document()
    if as_json:
        print(json.dumps(document))
        return
    print(
        f"{tally.seeds} seeds, {tally.events} events, {tally.tasks} tasks, "
        f"{tally.starts} starts of the daemon in {tally.seconds:.1f} s "
        f"({document['events_per_s']} events/s): {len(tally.failing)} seeds fail"
    )
