"""Changes that are asked for again: made once, and answered as at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from libtask import messages as m
from unit.daemon_shell import OTHER, USER, Shell, a_spec

if TYPE_CHECKING:
    from collections.abc import Callable

ADMIN = 0
A_SAMPLE = m.Sample("a/1", "cpu", 1.0)


def renumbered(request: m.Change, **fields: Any) -> Any:
    return msgspec.structs.replace(request, request=99, **fields)


CHANGES: list[tuple[m.Change, m.Change]] = [
    (m.Submit(1, [a_spec()]), m.Submit(1, [a_spec(priority=1)])),
    (m.Control(1, "cancel", [1]), m.Control(1, "hold", [1])),
    (m.Amend(1, [1], priority=2), m.Amend(1, [1], priority=3)),
    (m.Migrate(1, 1, "cpu"), m.Migrate(1, 1, "gpu0")),
    (m.Drain(1, "cpu", on=True), m.Drain(1, "cpu", on=False)),
    (m.TestDevices(1), m.TestDevices(1, ["gpu0"])),
    (m.Policies(1, set="migration"), m.Policies(1, set="affinity")),
    (m.AddSamples(1, [A_SAMPLE]), m.AddSamples(1, [])),
    (m.DeleteSamples(1), m.DeleteSamples(1, ["a"])),
    (m.Requeue(1, []), m.Requeue(1, [1])),
    (m.DeleteTasks(1, []), m.DeleteTasks(1, [1])),
    (m.Stop(1), m.Stop(1, expires=1e12)),
]


def test_every_request_that_changes_something_is_tried_here() -> None:
    kinds = {type(change) for change, _ in CHANGES}

    assert kinds == set(m.Change.__subclasses__())


@pytest.mark.parametrize(
    ("change", "other"), CHANGES, ids=lambda each: type(each).__name__
)
def test_a_key_stands_for_one_request(
    shell: Shell, change: m.Change, other: m.Change
) -> None:
    shell.submit(a_spec(hold=True))
    change = msgspec.structs.replace(change, key="k")

    first = shell.ask(change, ADMIN)
    again = shell.ask(renumbered(change, expires=1e12), ADMIN)

    told = {"known": True} if isinstance(first, m.Submitted) else {}
    assert again == msgspec.structs.replace(first, request=99, **told)
    if not isinstance(change, m.Stop):  # it has no other content
        error = shell.error(msgspec.structs.replace(other, key="k"), ADMIN)
        assert error.code == "conflict"
        assert error.text == (
            "key 'k' was already used for another request; nothing was changed: give "
            "each request a key of its own"
        )


def test_a_repeated_change_is_not_made_again(shell: Shell) -> None:
    change = m.Submit(1, [a_spec()], key="k")

    shell.ask(change)
    shell.ask(renumbered(change))

    assert [task.id for task in shell.ask(m.ListTasks(1)).tasks] == [1]


def test_a_repetition_may_come_from_another_environment(shell: Shell) -> None:
    """Another process of the user repeats it: its variables and array's name differ."""
    first = a_spec(attachments=["data", "env1"], from_origin=True, array="x", at_once=1)
    other = a_spec(attachments=["data", "env2"], from_origin=True, array="y", at_once=1)
    more = a_spec(attachments=["more", "env1"], from_origin=True, array="x", at_once=1)

    answers = [shell.ask(m.Submit(1, [each], key="k")) for each in (first, other)]

    assert [(each.ids, each.known) for each in answers] == [([1], False), ([1], True)]
    assert shell.error(m.Submit(1, [more], key="k")).code == "conflict"


def test_users_have_keys_of_their_own(shell: Shell) -> None:
    assert shell.submit(a_spec(), key="k") == [1]
    assert shell.submit(a_spec(), uid=OTHER, key="k") == [2]


def test_what_was_refused_may_be_asked_for_with_the_same_key(shell: Shell) -> None:
    shell.error(m.Submit(1, [a_spec(resources=["nowhere"])], key="k"))

    assert shell.submit(a_spec(), key="k") == [1]


def test_a_lasting_change_is_known_after_a_restart(
    restart: Callable[[], Shell],
) -> None:
    before = restart()
    (task,) = before.submit(a_spec(hold=True), key="k")
    cancel = m.Control(3, "cancel", [task], key="c")
    before.ask(cancel)
    before.commit()

    after = restart()

    assert after.submit(a_spec(hold=True), key="k") == [task]
    assert after.ask(cancel) == m.Done(3, [task])
    assert after.error(m.Submit(1, [a_spec()], key="k")).code == "conflict"


def test_what_an_operator_set_is_known_after_a_restart(
    restart: Callable[[], Shell],
) -> None:
    change = m.Policies(1, set="migration", key="k")
    drain = m.Drain(1, "gpu0", on=True, key="d")
    before = restart()
    told = before.ask(change, ADMIN)
    before.ask(drain, ADMIN)
    before.commit()

    after = restart()
    after.runtime.restore()
    after.ask(m.Policies(2, set="affinity"), ADMIN)
    after.ask(m.Drain(2, "gpu0", on=False), ADMIN)

    # asked twice, done once: what was set since stays
    assert after.ask(change, ADMIN) == told
    assert after.ask(drain, ADMIN) == m.Done(1)
    assert after.ask(m.Policies(3)).name == "affinity"
    assert not after.runtime.scheduler.system.states["gpu0"].draining


def test_asking_for_the_policy_leaves_no_key(shell: Shell) -> None:
    shell.ask(m.Policies(1, key="k"))

    assert shell.journal.batch.keys == []


def test_a_change_that_a_restart_undoes_is_made_again(
    restart: Callable[[], Shell],
) -> None:
    stop = m.Stop(1, key="k")
    before = restart()
    before.ask(stop, ADMIN)
    before.commit()

    after = restart()
    after.ask(stop, ADMIN)

    assert after.runtime.lifecycle.stop_requested


def test_a_request_that_nobody_waits_for_is_refused(shell: Shell) -> None:
    now = shell.runtime.clock.now() / 1e9

    error = shell.error(m.Submit(1, [a_spec()], key="k", expires=now - 2))

    assert error.code == "expired"
    assert error.text.startswith("the request arrived 2.0 s after its deadline")
    assert shell.ask(m.ListTasks(1)).tasks == []
    assert shell.submit(a_spec(), key="k", expires=now + 60) == [1]


def test_what_was_done_is_told_however_late_it_is_asked_again(shell: Shell) -> None:
    change = m.Submit(1, [a_spec()], key="k")
    shell.ask(change)

    assert shell.ask(renumbered(change, expires=0.0)).ids == [1]


def test_a_repeated_submit_tells_of_the_launcher_of_now(shell: Shell) -> None:
    change = m.Submit(1, [a_spec()], key="k")
    assert not shell.ask(change).launcher

    shell.launcher(USER)

    assert shell.ask(change).launcher


def test_long_keys_are_refused(shell: Shell) -> None:
    error = shell.error(m.Submit(1, [a_spec()], key="x" * 129))

    assert error.text == "key: expected at most 128 characters"


def test_keys_kept_in_memory_are_bounded(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetd.requests.idempotency.KEYS", 2)
    changes = [m.Submit(1, [a_spec()], key=f"k{number}") for number in range(4)]
    for change in changes:
        shell.ask(change)
        shell.commit()

    assert [shell.ask(change).ids for change in changes] == [[1], [2], [3], [4]]
    assert len(shell.service._idempotency._answers) == 2


# ---------------------------------------------------------------- lasting keys


def without_rows(shell: Shell) -> None:
    """Remove what is kept of keys for a day."""
    shell.commit()
    shell.service._idempotency._answers.clear()
    shell.store._writer.execute("DELETE FROM keys")


def test_a_lasting_key_is_kept_until_its_task_has_ended(
    restart: Callable[[], Shell],
) -> None:
    shell = restart()
    change = m.Submit(1, [a_spec(hold=True)], key="k", lasting=True)
    other = m.Submit(1, [a_spec(hold=True, priority=1)], key="k", lasting=True)
    assert shell.ask(change).ids == [1]
    without_rows(shell)
    assert (shell.ask(change).ids, shell.ask(change).known) == ([1], True)
    assert shell.error(other).code == "conflict"
    assert shell.ask(change, OTHER).ids == [2]
    without_rows(shell)

    shell = restart()
    shell.runtime.restore()
    assert shell.ask(change).ids == [1]
    assert shell.error(other).code == "conflict"
    shell.ask(m.Control(1, "cancel", [1]))
    without_rows(shell)

    assert (shell.ask(change).ids, shell.ask(change, OTHER).ids) == ([3], [2])


def test_other_keys_end_with_their_rows(shell: Shell) -> None:
    single = m.Submit(1, [a_spec(hold=True)], key="k")
    several = m.Submit(1, [a_spec(hold=True)] * 2, key="several", lasting=True)
    shell.ask(single)
    shell.ask(several)
    without_rows(shell)

    assert shell.ask(single).ids == [4]
    assert shell.ask(several).ids == [5, 6]


def test_a_lasting_submit_of_nothing_is_answered(shell: Shell) -> None:
    nothing = m.Submit(1, [], key="k", lasting=True)

    assert shell.ask(nothing).ids == []
    assert shell.ask(nothing).ids == []


def test_lasting_keys_of_ended_tasks_leave_the_memory(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetd.requests.idempotency.FEW", 3)
    for number in range(1, 50):
        change = m.Submit(1, [a_spec(hold=True)], key=f"k{number}", lasting=True)
        assert shell.ask(change).ids == [number]
        shell.ask(m.Control(1, "cancel", [number]))

    assert len(shell.service._idempotency._known_lasting()) <= 5
