"""A short soak: under mixed load and faults the daemon does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torture.soak import soak

if TYPE_CHECKING:
    from pathlib import Path

MINUTES = 0.5
"""`make torture` has ten; this is long enough for what leaks with each task or worker."""


@pytest.mark.timeout(400)
def test_a_daemon_does_not_grow_under_load_and_faults(tmp_path: Path) -> None:
    run, figures = soak(6, MINUTES, tmp_path)

    assert run.complaints == [], run.failure_report()
    assert figures["looks"] > 5
    assert run.states["completed"] > 0
    assert run.kills["worker"] > 0
