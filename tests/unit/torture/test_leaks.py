"""The look for what a torture run has left: it takes no old launcher for the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torture.leaks import _snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from torture.deployment import Deployment


class LateToNotice:
    """An deployment whose daemon notices only at the third look that a launcher is gone."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "hetd.sock"
        self.told: list[str] = []

    def keep_launcher(self) -> None:
        self.told.append("keep")

    def kill_launcher(self) -> None:
        self.told.append("kill")

    def start_launcher(self) -> None:
        self.told.append("start")

    def is_launcher_there(self) -> bool:
        self.told.append("look")
        return self.told.count("look") < 3


def test_the_next_launcher_comes_when_the_last_is_gone(tmp_path: Path) -> None:
    deployment = LateToNotice(tmp_path)

    assert list(_snapshots(cast("Deployment", deployment))) == []

    assert deployment.told == ["keep", "kill", "look", "look", "look", "start"]
