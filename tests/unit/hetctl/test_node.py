"""Commands about the node: devices, policy, daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetctl.commands.resources import LIVE
from hetd.config import ResourceTable
from libtask.messages import DeviceInfo, DeviceSpec, Policies, PolicyInfo
from unit.hetctl.typed_commands import complaint, document, text

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


def test_what_is_written_of_a_resource_is_what_a_configuration_takes() -> None:
    """Only some devices have all fields: a UUID is a real card's."""
    fields = {*DeviceSpec.__struct_fields__, *DeviceInfo.__struct_fields__} - {"spec"}

    assert fields - set(LIVE) == set(ResourceTable.__struct_fields__)


def test_load_names_levels_and_what_they_are_known_by(daemon: FakeDaemon) -> None:
    found = document("devices", "--load")
    printed = text("devices", "--load")

    assert found["used"] is False
    assert found["shared"] == [
        {
            "name": "cores",
            "kind": "cores",
            "used_by": ["cpu", "gpu0"],
            "own": 0.5,
            "others": 0.98,
            "slowdown": 1.48,
            "levels": [
                {"load": 0.0, "probability": 0.02},
                {"load": 1.0, "probability": 0.98},
            ],
            "evidence": [
                {"source": "offered", "value": 1.5, "count": 3, "age_s": 2.0},
            ],
        }
    ]
    assert found["counters"][1] == {
        "source": "/sys/fs/resctrl",
        "shared": "memory",
        "counter": "bandwidth",
        "state": "missing",
        "reason": "not mounted",
    }
    assert "not read: not mounted" in printed
    assert "100%: 98%" in printed
    assert "0%: 2%" not in printed
    assert "offered 1.50 (2 s ago)" in printed
    assert "no counters are read" in printed


def test_load_takes_no_other_option(daemon: FakeDaemon) -> None:
    assert not text("devices", "--load", "--test", status=2)


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


def test_a_policy_that_fails_is_told_of(daemon: FakeDaemon) -> None:
    setter = "by uid 7 on 2026-01-02 03:04 UTC"
    daemon.answers[Policies] = lambda message: [
        PolicyInfo(
            *(message.request, "finish-time", {}, {"finish-time": "ends it early"}),
            set=setter,
            configured="affinity",
            failed="mine",
            fault="Mine: KeyError: 3",
        )
    ]
    shown = (
        "finish-time: ends it early\n"
        "in place of mine, which failed: Mine: KeyError: 3\n"
        f"mine was set {setter}; "
        "`hetctl policy reset` resets it to the configured affinity\n"
    )
    failed = "policy mine failed: Mine: KeyError: 3; finish-time decides until"

    assert text("policy", "show") == shown
    for words in (("policy", "set", "mine"), ("policy", "reset")):
        assert text(*words, status=1) == shown
        told = complaint(*words, status=1)
        assert told == f"hetctl: {failed} another is set\n"
    found = document("policy", "show")
    assert (found["failed"], found["fault"]) == ("mine", "Mine: KeyError: 3")
    assert "finish-time (in place of mine, which failed, set by uid 7" in text(
        "daemon", "status"
    )


def test_daemon_status(daemon: FakeDaemon) -> None:
    found = document("daemon", "status")

    assert (found["running"], found["pid"], found["version"]) == (True, 42, "9.9")
    assert "gpu0 (emulated)" in text("daemon", "status")
