"""Two users of one daemon with real uids, one of whom states false times: root only."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from system.private_daemon import PATIENCE
from system.shared_daemon import ANN, BEN, SharedDaemon, missing, shared_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

CONFIG = """
policy = "affinity"
[[resource]]
name = "cpu"
kind = "cpu"
driver = "null"
"""
PROGRAM = """
import json, sys, time
from libtask.client.client import Client, Selection

def work(number):
    import time
    time.sleep(0.02)

socket, count, said, at = sys.argv[1:]
client = Client(socket)
time.sleep(max(float(at) - time.monotonic(), 0.0))
list(client.map(work, range(int(count)), seconds={"cpu": float(said)}))
print(json.dumps([each.started for each in client.tasks(Selection(limit=1000))]))
"""
SYNC_S = 3.0
"""Until the clients of both users are connected."""


@pytest.fixture
def shared() -> Iterator[SharedDaemon]:
    with shared_daemon(CONFIG) as shared:
        yield shared


def begin(
    shared: SharedDaemon, uid: int, count: int, said: float, at: float
) -> subprocess.Popen[str]:
    python = shared.command(uid)[:-1]  # without -m
    words = [str(shared.socket), str(count), str(said), str(at)]
    return subprocess.Popen(
        [*python, "-c", PROGRAM, *words],
        env=shared.environment(uid),
        stdout=subprocess.PIPE,
        text=True,
    )


def test_tasks_said_to_take_no_time_do_not_all_go_first(shared: SharedDaemon) -> None:
    at = time.monotonic() + SYNC_S
    liar = begin(shared, ANN, 300, 1e-9, at)
    honest = begin(shared, BEN, 20, 0.02, at + 0.3)

    theirs = json.loads(liar.communicate(timeout=PATIENCE)[0])
    own = json.loads(honest.communicate(timeout=PATIENCE)[0])

    assert len(own) == 20
    assert max(own) < max(theirs)
