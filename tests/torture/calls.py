"""A kill at the N-th system call of a kind: between any two of the daemon's own steps.

    python -m torture calls --count 50

Fault points are where we thought of them; system calls are wherever they are. strace
starts the daemon and kills it at the entry of the N-th call, under the load of clients.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import psutil

from torture.deployment import NotInTimeError, eventually
from torture.kills import run_under_load

if TYPE_CHECKING:
    import argparse

    from torture.kills import LoadTest

CALLS = ("fdatasync", "pwrite64", "sendto", "recvfrom", "unlink", "write")
LATEST = {"unlink": 1, "fdatasync": 60, "pwrite64": 300}
"""Largest N; where there are few calls, a daemon would never come to a later one."""
PATIENCE_S = 15.0


def possible() -> str | None:
    """Return what is missing; None: nothing."""
    return None if shutil.which("strace") else "there is no strace"


def kill_at_calls(test: LoadTest, count: int) -> None:
    """Kill the daemon at this number of system calls, kinds in rotation."""
    for number in range(count):
        call = CALLS[number % len(CALLS)]
        when = test.draw.randint(1, LATEST.get(call, 1000))
        test.deployment.kill_daemon()
        test.deployment.start_wrapped(_tracer(call, when))
        if _comes_to_it(test):
            test.note_kill("daemon")
    test.deployment.kill_daemon()
    test.deployment.start_daemon()
    test.deployment.await_answer()


def _tracer(call: str, when: int) -> list[str]:
    inject = f"inject={call}:signal=KILL:when={when}"
    return [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        inject,
    ]


def _comes_to_it(test: LoadTest) -> bool:
    """Wait until the call has killed the daemon; else end it ourselves."""
    tracer = test.deployment.daemon or 0

    def look() -> bool:
        test.deployment.keep_launcher()
        return test.deployment.is_down()

    try:
        eventually(look, "the call", PATIENCE_S)
    except NotInTimeError:
        # the daemon only: a tracer that is killed lets go of one that lives
        with contextlib.suppress(psutil.NoSuchProcess):  # it came to it meanwhile
            for process in psutil.Process(tracer).children():
                process.kill()
        eventually(test.deployment.is_down, "the tracer's end")
        return False
    return True


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Sweep once for each seed; skip, with the reason, where it cannot be done."""
    obstacle = possible()
    if obstacle is not None:
        return [{"skipped": obstacle, "complaints": []}]
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    attacks = [
        run_under_load(seed, lambda s: kill_at_calls(s, chosen.count), chosen.keep)
        for seed in seeds
    ]
    return [{**each.report(), "sweep": list(CALLS)} for each in attacks]
