"""The facts of programs that `hetctl show` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unit.fake_daemon import a_task
from unit.hetctl.typed_commands import text

if TYPE_CHECKING:
    from unit.fake_daemon import FakeDaemon

INTERNAL = {"environment": "581bfe87", "folder": "/run/attachments", "umask": 18}


def shown(daemon: FakeDaemon, **params: Any) -> str:
    daemon.tasks[1] = a_task(1, app="command", params=INTERNAL | params)
    return text("show", "1")


def test_a_program_is_shown_as_it_was_typed(daemon: FakeDaemon) -> None:
    said = shown(daemon, argv=["echo", "two words"], index=7, output="log-{id}.txt")

    assert "  command     echo 'two words'\n" in said
    assert "  index       7\n" in said
    assert "  output      log-{id}.txt\n" in said
    assert "581bfe87" not in said


def test_a_script_and_programs_for_kinds_are_shown(daemon: FakeDaemon) -> None:
    script = shown(daemon, argv=["/bin/sh", "a"], script="69dd9", words_before=1)
    programs = {"cpu": ["train", "--cpu"], "gpu": ["train", "--gpu"]}
    moves = shown(daemon, by_kind=programs, stop_signal=15, grace_s=90.0)

    assert "  command     /bin/sh SCRIPT a\n" in script
    assert "  on cpu      train --cpu\n  on gpu      train --gpu\n" in moves
    assert "  to stop     SIGTERM, then 1 min 30 s to save its state\n" in moves


def test_other_parameters_are_shown_as_they_are(daemon: FakeDaemon) -> None:
    assert '"argv":7' in shown(daemon, argv=7)
    assert "to stop" not in shown(daemon, argv=["true"], stop_signal=-3)
