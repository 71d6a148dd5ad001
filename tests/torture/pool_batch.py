"""A batch of jobs on a pool that is tortured: the client's process, and what jobs write down.

    python -m torture.pool_batch CONFIG FOLDER      prints one JSON object

It runs on the machine of the scheduler, as only that one reaches the nodes where machines
are network namespaces. `judge` compares what the jobs themselves wrote.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetpool import Pool, as_completed
from hetpool.setup.config import read_settings
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetpool import PoolTask

JOBS = 200
SECONDS = 0.3
ROUNDS = 50
PATIENCE_S = 600.0


def digest(number: int) -> str:
    """Return the result of a job: the digest of a digest, many times."""
    text = str(number)
    for _ in range(ROUNDS):
        text = hashlib.sha256(text.encode()).hexdigest()
    return text


def job(number: int, folder: str) -> str:
    """Compute a result slowly and write down when it was computed."""
    began = time.monotonic()
    time.sleep(SECONDS)
    result = digest(number)
    name = Path(folder) / f"{number}-{os.getpid()}-{time.monotonic_ns()}"
    name.write_text(json.dumps([began, time.monotonic()]))
    return result


# ------------------------------------------------------------ the client


def main() -> None:
    config, folder = map(Path, sys.argv[1:])
    settings = read_settings(config, {}).engine()
    incoming = config.parent / "incoming"
    with Pool(
        settings, timeout=PATIENCE_S, patience=PATIENCE_S, incoming=incoming
    ) as pool:
        began = time.monotonic()
        tasks = pool.map(job, range(JOBS), [str(folder)] * JOBS)
        complaints = list(followed(tasks))
        seconds = time.monotonic() - began
    print(json.dumps({"complaints": complaints, "seconds": round(seconds, 1)}))


def followed(tasks: list[PoolTask]) -> Iterator[str]:
    """Take the result of each job as it ends and compare it; yield what is wrong."""
    numbers = {id(task): number for number, task in enumerate(tasks)}
    seen: set[int] = set()
    try:
        for task in as_completed(tasks, timeout=PATIENCE_S):
            number = numbers[id(task)]
            if number in seen:
                yield f"job {number} ended twice"
            seen.add(number)
            yield from _wrong(number, task)
    except TimeoutError:
        for number in sorted(set(range(len(tasks))) - seen):
            yield f"job {number} did not end: {tasks[number]!r}"


def _wrong(number: int, task: PoolTask) -> Iterator[str]:
    try:
        result = task.result(0)
    except (HetError, TimeoutError) as error:
        yield f"job {number}: {type(error).__name__}: {error}"
        return
    if result != digest(number):
        yield f"job {number}: another result"


# ------------------------------------------------------------ what the jobs wrote


def judge(folder: Path) -> tuple[int, list[str]]:
    """Return the number of executions and what is wrong with them."""
    times: dict[int, list[Any]] = {number: [] for number in range(JOBS)}
    count = 0
    for path in folder.iterdir():
        count += 1
        times[int(path.name.split("-")[0])].append(_times(path))
    complaints = [
        f"job {number} never ran" for number, runs in times.items() if not runs
    ]
    for number, runs in times.items():
        known = sorted(each for each in runs if each)
        for (_, ended), (began, _) in pairwise(known):
            if began < ended:
                text = (
                    f"job {number} ran in two places at once, for {ended - began:.2f} s"
                )
                complaints.append(text)
    return count, complaints


def _times(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if text else None  # killed while it wrote


if __name__ == "__main__":
    main()
