"""Notes: what happened to the node as a whole, kept for users, bounded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hetd.store import rows
from hetsched import events as e
from libtask import messages as m
from unit.daemon_shell import Shell

if TYPE_CHECKING:
    pass

ADMIN = os.getuid()


def told(shell: Shell, **fields: float) -> list[tuple[str, str | None, str]]:
    shell.commit()
    answer = shell.ask(m.Notes(1, **fields))  # type: ignore[arg-type]  # whole where it must be
    assert isinstance(answer, m.NoteList)
    return [(note.what, note.resource, note.text) for note in answer.notes]


def test_what_rulers_and_devices_do_is_kept(shell: Shell) -> None:
    shell.ask(m.Policies(1, set="finish-time", parameters={"caution": 3}), ADMIN)
    shell.ask(m.Drain(1, "gpu0", on=True), ADMIN)
    shell.ask(m.Drain(1, "gpu0", on=False), ADMIN)
    shell.runtime.dispatch(e.ResourceLost("gpu0", "fell off the bus"))

    by = f", by uid {ADMIN}"
    assert told(shell) == [
        ("policy-set", None, f"policy finish-time with caution=3{by}"),
        ("drained", "gpu0", f"gpu0 is drained{by}"),
        ("returned", "gpu0", "gpu0 takes tasks again"),
        ("lost", "gpu0", "gpu0 is lost: fell off the bus"),
    ]
    assert [what for what, _, _ in told(shell, limit=2)] == ["returned", "lost"]
    assert told(shell, since=1e12) == []


def test_a_refused_change_leaves_no_note(shell: Shell) -> None:
    shell.error(m.Policies(1, set="nice"), ADMIN)
    shell.error(m.Drain(1, "gpu7", on=True), ADMIN)
    shell.error(m.Policies(1, set="affinity"), 4321)

    assert told(shell) == []
    assert "limit" in shell.error(m.Notes(1, limit=0)).text


def test_only_the_newest_are_kept(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "NOTES_KEPT", 3)
    for number in range(5):
        shell.journal.record_note(float(number), "policy-set", None, str(number))
        shell.commit()

    assert [text for _, _, text in told(shell)] == ["2", "3", "4"]
