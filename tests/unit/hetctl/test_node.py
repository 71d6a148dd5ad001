"""Commands about the node: devices, policy, daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libtask.messages import Policies
from unit.hetctl.typed_commands import document, text

if TYPE_CHECKING:
    from pathlib import Path

    from unit.fake_daemon import FakeDaemon


def test_devices(daemon: FakeDaemon, tmp_path: Path) -> None:
    from tomllib import loads

    path = tmp_path / "hetd.toml"

    found = document("devices", "--write-config", str(path))

    assert [(each["name"], each["emulated"]) for each in found["devices"]] == [
        ("cpu", False),
        ("gpu0", True),
    ]
    assert "gpu0 (emulated)" in text("devices")
    written = loads(path.read_text())["resource"]
    assert written[1]["platform"] == "Portable"
    assert "state" not in written[1]


def test_policy(daemon: FakeDaemon) -> None:
    assert document("policy", "show")["name"] == "migration"
    assert document("policy", "set", "affinity")["name"] == "affinity"
    assert document("policy", "list")["current"] == "migration"
    assert "runs each on its best" in text("policy", "list")


def test_policy_show_names_the_setter_and_how_to_reset(daemon: FakeDaemon) -> None:
    assert text("policy", "set", "affinity").splitlines()[-1] == (
        "set by uid 7 on 2026-01-02 03:04 UTC; "
        "`hetctl policy reset` resets it to the configured migration"
    )
    assert text("policy", "reset") == "migration: moves running tasks\n"
    assert document("policy", "reset")["set"] is None
    (*_, asked) = [each for each in daemon.seen if isinstance(each, Policies)]
    assert asked.configured


def test_daemon_status(daemon: FakeDaemon) -> None:
    found = document("daemon", "status")

    assert (found["running"], found["pid"], found["version"]) == (True, 42, "9.9")
    assert "gpu0 (emulated)" in text("daemon", "status")
