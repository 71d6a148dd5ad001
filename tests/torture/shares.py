"""Parts of two users of one daemon in each second, and the time until urgent tasks start.

With real uids, so only root can measure it. Two users with equal shares have more tasks
than there is time for; in some cases one of them states that these take no time. `part` is
their part of the time of all slots in each second, by the times that hetd reports of each
task. Then their tasks keep all slots busy while the other user submits tasks of higher
priority, one at a time: `start` is from the submission of such a task to its start.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from system.shared_daemon import ANN, BEN, SharedDaemon, missing, shared_daemon

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

SECONDS = 10
"""Whole seconds that are measured."""
LEAD_S = 2.0
"""Seconds before these, in which the tasks of both users are released."""
PATIENCE_S = 120.0
CONFIG = """
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
slots = 2
"""


class Load(NamedTuple):
    """Tasks of a user, all submitted at once: more than there is time for."""

    name: str
    seconds: float
    """Sleep of each, a function of the user; 0: an application that does nothing."""
    number: int


LOADS = (
    Load("no-ops", 0.0, 80_000),
    Load("1 ms", 1e-3, 20_000),
    Load("20 ms", 0.02, 2_000),
)
POLICIES = ("finish-time", "affinity")
UNSTATED, FALSE = 0.0, 1e-9

CLIENT = """
import json, random, sys, time
from hetbench.noop import Noop
from libtask.apps import Options, describe, name_of
from libtask.client.client import Client, Selection

def work(seconds):
    import time
    time.sleep(seconds)

def told_to_begin():
    print("ready", flush=True)
    begin, end = map(float, sys.stdin.readline().split())
    time.sleep(max(begin - time.time(), 0.0))
    return end

socket, *words = sys.argv[1:]
client = Client(socket)
list(client.map(work, [0.0] * 2))
client.submit(Noop()).result(60.0)
"""
MANY = """
number, seconds, stated = int(words[0]), float(words[1]), float(words[2])
stated = {"cpu": stated} if stated else {}
if seconds:
    results = client.map(work, [seconds] * number, seconds=stated, hold=True)
else:
    spec = describe(Noop(), name_of(Noop), Options(seconds=stated, hold=True))
    client.submit_specs([spec] * number)
held = client.tasks(Selection(states=("held",), limit=number, mine=True))
end = told_to_begin()
client.release(*(task.id for task in held))
time.sleep(max(end - time.time(), 0.0))
ended = client.iterate(Selection(states=("completed",), limit=number, mine=True))
print(json.dumps([(task.started, task.finished) for task in ended]))
"""
"""Submit many tasks at once; print when those that ran began and ended."""
URGENT = """
infos = []
end = told_to_begin()
while time.time() < end:
    task = client.submit(work, 0.0, priority=10)
    task.result(60.0)
    infos.append(task.info())
    time.sleep(random.uniform(0.05, 0.15))
print(json.dumps([task.started - task.submitted for task in infos]))
"""
"""Submit one task after the other; print the seconds until each started."""


def run(_chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure; return one row a case."""
    if reason := missing():
        return [{"case": "shares", "skipped": reason}]
    rows = []
    for policy in POLICIES:
        with shared_daemon(f'policy = "{policy}"\n{CONFIG}') as shared:
            case = {"policy": policy}
            for load in LOADS:
                rows += [
                    {**case, **_parts(shared, load, stated)}
                    for stated in (UNSTATED, FALSE)
                ]
            rows += [{**case, **_starts(shared, load)} for load in LOADS]
    return rows


def _parts(shared: SharedDaemon, load: Load, stated: float) -> dict[str, Any]:
    """Run the tasks of both users; return the part of the first by second."""
    users = (
        _started(shared, ANN, MANY, load.number, load.seconds, stated),
        _started(shared, BEN, MANY, load.number, load.seconds, UNSTATED),
    )
    begin = _begin(users)
    both = [[tuple(each) for each in _printed(program)] for program in users]
    for uid in (ANN, BEN):
        shared.hetctl(uid, "cancel", "all")
    parts = [_part(both, begin + LEAD_S + number) for number in range(SECONDS)]
    ended = sum(end > begin for tasks in both for _, end in tasks)
    return {
        "case": f"two users, {load.name}",
        "first_user_states": "nothing" if stated == UNSTATED else f"{stated} s",
        "tasks_per_s": round(ended / (SECONDS + LEAD_S)),
        "part_min": min(parts),
        "part_median": round(statistics.median(parts), 3),
        "part_max": max(parts),
    }


def _part(both: Iterable[list[tuple[float, float]]], at: float) -> float:
    """Return the part of the first in the time of slots within a second."""
    first, second = (
        sum(max(min(end, at + 1.0) - max(begin, at), 0.0) for begin, end in tasks)
        for tasks in both
    )
    return round(first / (first + second), 3)


def _starts(shared: SharedDaemon, load: Load) -> dict[str, Any]:
    """Run the tasks of one user beside urgent ones of another."""
    many = _started(shared, ANN, MANY, 2 * load.number, load.seconds, UNSTATED)
    urgent = _started(shared, BEN, URGENT)
    _begin((many, urgent))
    waits = sorted(_printed(urgent))
    _printed(many)
    shared.hetctl(ANN, "cancel", "all")
    return {
        "case": f"urgent tasks, behind {load.name}",
        "tasks": len(waits),
        "start_p50_ms": round(1e3 * statistics.median(waits), 2),
        "start_p90_ms": round(1e3 * waits[int(0.9 * len(waits))], 2),
        "start_max_ms": round(1e3 * waits[-1], 2),
    }


def _started(
    shared: SharedDaemon, uid: int, program: str, *words: float
) -> subprocess.Popen[str]:
    """Start a user's program, which prepares its tasks."""
    python = shared.command(uid)[:-1]  # without -m
    return subprocess.Popen(
        [*python, "-c", CLIENT + program, str(shared.socket), *map(str, words)],
        env=shared.environment(uid),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _begin(programs: Iterable[subprocess.Popen[str]]) -> float:
    """Let programs begin at once, when all of them are ready; return that time."""
    for program in programs:
        assert program.stdout is not None
        program.stdout.readline()
    begin = time.time_ns() / 1e9 + 0.1
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(f"{begin} {begin + LEAD_S + SECONDS}\n")
        program.stdin.flush()
    return begin


def _printed(program: subprocess.Popen[str]) -> Any:
    """Return what a program printed."""
    output, _ = program.communicate(timeout=PATIENCE_S)
    return json.loads(output)
