"""`python -m hetbench [NAME …]`: run benchmarks, print one JSON object.

Every bench is a module with `run() -> list of rows`; `BENCHES` is the table. `python -m
hetbench trip --calls` prints calls instead.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from hetbench.machine import machine

BENCHES = {
    "tasks": "no-op tasks through the real daemon: rate and latency; clients, workers",
    "calls": "calls of 1 to 100 ms beside `ProcessPoolExecutor`",
    "idle": "wake-ups and processor time of a daemon that has nothing to do",
    "commands": "1,000 times `true` as tasks, beside `xargs -P2`",
    "loop": "processor time of hetd's main thread for a no-op task, without sockets",
    "trip": "calls and files that one no-op task runs through, in every process",
    "checkpoints": "cost of a checkpoint, and of being preemptible",
    "moves": "time of a migration by bytes moved",
    "snapshots": "writing and reading snapshots by bytes, and what they cost",
    "losses": "dead, hanging and flooding workers: how soon all is well",
    "start": "start-up of hetctl; of a daemon with its drivers known or not",
    "waiting": "a million waiting tasks: memory and decisions",
    "store": "100,000 waiting tasks: submitting, starting, listing, memory",
    "core": "decisions: microseconds an event",
    "accelerators": "the applications in large sizes on CPU and accelerators",
    "estimates": "expected times of sizes never measured, against what they take",
    "graphs": "10,000 tasks with dependencies: submitting, decisions; chains of calls",
    "passing": "chains of calls that pass an array of 64 MiB on",
    "residents": "chains of calls on one device: results stay there or are copied",
    "crowds": "policies beside programs that are not ours",
    "simulator": "events a second",
    "mapping": "decisions with deadlines: 1,000 waiting tasks, 16 machines",
    "two_applications": "execution times for Figs 5 and 8 of mokhtari-felare",
    "kernels": "the CPU kernels beside the libraries: the faster side in 20 runs",
    "kernels_heat": "heat against NumPy, SciPy and plain Numba",
    "kernels_gaussian_blur": "Gaussian blur against SciPy and OpenCV",
    "kernels_markov": "steady states against BLAS and SciPy",
    "kernels_correlation": "correlation against NumPy and pandas",
    "planners": "batch planning against bisection with HiGHS",
    "pool": "a pool beside Dask alone, on links of network namespaces; kills; costs",
    "pool_planning": "placing in large pools: processor time, memory; whole and by racks",
}


def main() -> None:
    """Run what is named, or all."""
    names = sys.argv[1:] or list(BENCHES)
    if names == ["trip", "--calls"]:
        importlib.import_module("hetbench.trip").show()
        return
    for name in names:
        if name not in BENCHES:
            sys.exit(f"hetbench: no bench {name!r}; there are: {', '.join(BENCHES)}")
    # What is started runs from byte code kept on disk, as what is installed does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results: dict[str, Any] = {}
    before = machine()
    for name in names:
        print(f"{name}: {BENCHES[name]}", file=sys.stderr)
        results[name] = importlib.import_module(f"hetbench.{name}").run()
    document = {"format": "hetbench-1", "machine": before, "benches": results}
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
