"""Records of tasks as a daemon has them."""

from __future__ import annotations

from typing import Any

from libtask.messages import Segment
from unit.fake_daemon import a_task


def a_moved_task() -> Any:
    return a_task(
        7,
        state="completed",
        resource="gpu0",
        progress=1.0,
        submitted=1000.0,
        started=1000.5,
        finished=1004.0,
        migrations=1,
        checkpoint_at=1003.9,
        kinds=["cpu", "gpu"],
        result={"mean": 0.5},
        segments=[
            Segment("cpu", 1000.5, 1002.0, seconds=1.4, strips=10),
            Segment("gpu0", 1002.25, 1004.0, seconds=1.6, strips=30, transfer_in=0.1),
        ],
    )
