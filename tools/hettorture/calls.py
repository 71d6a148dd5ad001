"""A kill at the N-th system call of a kind: between any two of the daemon's own steps.

    python -m hettorture calls --count 50

Fault points are where we thought of them; system calls are wherever they are. strace
starts the daemon and kills it at the entry of the N-th call, under the load of customers.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import psutil

from hettorture.arena import NotInTimeError, eventually
from hettorture.kills import besiege

if TYPE_CHECKING:
    import argparse

    from hettorture.kills import Siege

CALLS = ("fdatasync", "pwrite64", "sendto", "recvfrom", "unlink", "write")
LATEST = {"unlink": 1, "fdatasync": 60, "pwrite64": 300}
"""Largest N; where there are few calls, a daemon would never come to a later one."""
PATIENCE_S = 15.0


def possible() -> str | None:
    """Return what is missing; None: nothing."""
    return None if shutil.which("strace") else "there is no strace"


def kill_at_calls(siege: Siege, count: int) -> None:
    """Kill the daemon at so many calls, one kind after the other."""
    for number in range(count):
        call = CALLS[number % len(CALLS)]
        when = siege.draw.randint(1, LATEST.get(call, 1000))
        siege.arena.kill_daemon()
        siege.arena.start_wrapped(_tracer(call, when))
        if _comes_to_it(siege):
            siege.note_kill("daemon")
    siege.arena.kill_daemon()
    siege.arena.start_daemon()
    siege.arena.await_answer()


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


def _comes_to_it(siege: Siege) -> bool:
    """Wait until the call has killed the daemon; else end it ourselves."""
    tracer = siege.arena.daemon or 0

    def look() -> bool:
        siege.arena.keep_launcher()
        return siege.arena.is_down()

    try:
        eventually(look, "the call", PATIENCE_S)
    except NotInTimeError:
        # the daemon only: a tracer that is killed lets go of one that lives
        with contextlib.suppress(psutil.NoSuchProcess):  # it came to it meanwhile
            for process in psutil.Process(tracer).children():
                process.kill()
        eventually(siege.arena.is_down, "the tracer's end")
        return False
    return True


def run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Sweep once for each seed; skip, with the reason, where it cannot be done."""
    obstacle = possible()
    if obstacle is not None:
        return [{"skipped": obstacle, "complaints": []}]
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    attacks = [
        besiege(seed, lambda s: kill_at_calls(s, chosen.count), chosen.keep)
        for seed in seeds
    ]
    return [{**each.report(), "sweep": list(CALLS)} for each in attacks]
