"""The calls of an event, which the bench of the simulator counts."""

from __future__ import annotations

import pytest

from hetbench.simulator import a_workload, calls_of
from hetsched import build


@pytest.mark.skipif(build.COMPILED is not None, reason="compiled calls are not counted")
def test_an_event_takes_few_calls() -> None:
    # 37 when it was recorded; each takes some 0.1 µs and more
    assert calls_of(a_workload(gap=6.0, count=500), "affinity") < 42
