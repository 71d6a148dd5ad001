"""A daemon of twin GPUs whose limits are short, and whose clock tests turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.daemon_shell import Shell
from unit.hetd.watchdog.devices_on_trial import TWINS
from unit.turned_clock import Hands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from libtask.messages import DeviceInfo


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def devices() -> list[DeviceInfo]:
    return TWINS


@pytest.fixture
def shell(tmp_path: Path, hands: Hands, devices: list[DeviceInfo]) -> Iterator[Shell]:
    limits = {"strip_limit_s": 10.0, "setup_limit_s": 50.0}
    shell = Shell(tmp_path, hands.clock(), devices, **limits)
    yield shell
    shell.close()
