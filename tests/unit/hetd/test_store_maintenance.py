"""A store is checked, saved and brought back without its daemon, and beside it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from hetd.maintenance import SKIPPED_IDS, SKIPPED_STARTS, backup, check, restore
from hetd.store import Batch, Store, StoreError
from hetd.store.integrity import SHOWN
from hetd.store.lock import is_locked, lock
from libtask.errors import InputError, NotFoundError
from unit.daemon_shell import USER, Shell, a_spec

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 200


def _page(task: int) -> bytes:
    return b"%d" % task * 99


def _commit(store: Store, *tasks: int, ended: int = 0) -> None:
    store.submit(Batch(tasks=[(task, ended, _page(task), 7) for task in tasks]))
    store.flush()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Make a store with waiting and ended tasks, closed in order."""
    path = tmp_path / "state" / "hetd.db"
    with closing(Store(path)) as store:
        _commit(store, *range(1, TASKS))
        _commit(store, TASKS, ended=99)
    return path


def _damage(path: Path, task: int) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(_page(task)) + 50] ^= 1
    path.write_bytes(content)


# ---------------------------------------------------------------- check


def test_a_sound_store_is_told_in_numbers(path: Path) -> None:
    before = {each: each.read_bytes() for each in path.parent.iterdir()}

    found = check(path)

    assert (found.problems, found.running) == ([], False)
    assert (found.unended, found.ended, found.last_id) == (TASKS - 1, 1, TASKS)
    assert {each: each.read_bytes() for each in path.parent.iterdir()} == before


def test_damage_is_told(path: Path) -> None:
    _damage(path, 7)
    _damage(path, 9)

    assert check(path).problems == ["damaged pages of tasks: 7, 9"]


def test_a_damaged_structure_is_told(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)

    assert check(path).problems


def test_a_store_in_use_is_checked_as_far_as_it_is_committed(path: Path) -> None:
    held = lock(path.parent)
    with closing(Store(path)) as store:
        _commit(store, TASKS + 1)
        store.submit(Batch(tasks=[(TASKS + 2, 0, b"", 7)]))
        found = check(path)
        store.flush()
    os.close(held)

    assert (found.problems, found.running) == ([], True)
    assert found.last_id in (TASKS + 1, TASKS + 2)


def test_values_that_cannot_be_read_are_told_though_their_checksums_are_right(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    sound, *invalid = shell.submit(*[a_spec(hold=True)] * (SHOWN + 3))
    shell.commit()
    for task in invalid:
        page = msgspec.msgpack.decode(shell.store.task(task) or b"")
        page["migrations"] = "many"
        row = (task, 0, msgspec.msgpack.encode(page), USER)
        shell.journal.batch.tasks.append(row)
    for what in ("drained", "load"):
        shell.journal.batch.settings[what, "gpu0"] = msgspec.msgpack.encode(
            {"by": "me"}
        )
    shell.commit()
    shell.close()

    *pages, more, setting = check(tmp_path / "hetd.db", values=True).problems

    assert pages == [
        f"page of task {task} is invalid: Expected `int`, got `str` - at `$.migrations`; "
        "hetd shows that task as failed"
        for task in invalid[:SHOWN]
    ]
    assert more == f"and {len(invalid) - SHOWN} more like these"
    assert setting == (
        "setting drained gpu0 is invalid: Expected `int`, got `str` - at `$.by`; "
        "hetd does not start with it"
    )
    assert sound not in invalid
    backup(tmp_path / "hetd.db", tmp_path / "saved.db")  # keeps them as they are


def test_no_store_is_not_a_sound_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no store at"):
        check(tmp_path / "hetd.db")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- backup


def test_a_backup_is_made_beside_a_writing_daemon(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    with closing(Store(path)) as store:
        _commit(store, TASKS + 1)
        found = backup(path, target)
        _commit(store, TASKS + 2)

    assert found.file == str(target)
    assert check(target).last_id == TASKS + 1
    assert {each.name for each in tmp_path.iterdir()} == {"state", "backup.db"}
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_backup_replaces_nothing_unless_told(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    target.write_text("dear")

    with pytest.raises(InputError, match="is there already; --force replaces it"):
        backup(path, target)
    assert target.read_text() == "dear"

    backup(path, target, replace=True)
    assert check(target).problems == []


def test_a_damaged_store_is_not_saved_over_a_good_backup(
    path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "backup.db"
    backup(path, target)
    good = target.read_bytes()
    _damage(path, 7)

    with pytest.raises(StoreError, match="is damaged: damaged pages of tasks: 7"):
        backup(path, target, replace=True)

    assert target.read_bytes() == good


def test_a_backup_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    target = path.parent / "nosuch" / "backup.db"
    with pytest.raises(StoreError, match=f"^{target}: No such file or directory$"):
        backup(path, target)

    assert not list(path.parent.glob("*draft*"))


# ---------------------------------------------------------------- restore


def test_a_restored_store_is_the_backup_and_the_old_one_is_kept(
    path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "backup.db"
    backup(path, target)
    with closing(Store(path)) as store:
        _commit(store, TASKS + 1)
        starts = store.incarnation
    _damage(path, 7)

    found = restore(path, target)

    (aside,) = found.aside
    assert "damaged pages of tasks: 7" in check(type(path)(aside)).problems
    with closing(Store(path)) as store:
        assert store.unfinished() == [_page(task) for task in range(1, TASKS)]
        assert store.last_id() == TASKS + 1 + SKIPPED_IDS
        assert store.incarnation == starts + SKIPPED_STARTS + 1


def test_no_log_of_the_old_store_gets_into_the_restored_one(
    path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "backup.db"
    backup(path, target)
    with closing(Store(path)) as store:
        _commit(store, TASKS + 1)
        log = path.with_name("hetd.db-wal").read_bytes()
    path.with_name("hetd.db-wal").write_bytes(log)  # as a crash leaves it

    found = restore(path, target)

    assert any(name.endswith("-wal") for name in found.aside)
    assert not path.with_name("hetd.db-wal").exists()
    with closing(Store(path)) as store:
        assert store.task(TASKS + 1) is None


def test_a_bad_backup_changes_nothing(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    backup(path, target)
    _damage(target, 7)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"backup\.db is damaged"):
        restore(path, target)

    assert path.read_bytes() == before


def test_nothing_is_restored_under_a_running_daemon(path: Path, tmp_path: Path) -> None:
    backup(path, tmp_path / "backup.db")
    held = lock(path.parent)
    try:
        with pytest.raises(InputError, match="another hetd uses"):
            restore(path, tmp_path / "backup.db")
        assert is_locked(path.parent)
    finally:
        os.close(held)
    assert not is_locked(path.parent)


def test_a_restore_that_was_cut_short_lets_no_daemon_start(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup.db"
    backup(path, target)

    def crash(_draft: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hetd.maintenance._put", crash)
        with pytest.raises(KeyboardInterrupt):
            restore(path, target)

    with pytest.raises(StoreError, match="it is gone, though"):
        Store(path)
    restore(path, target)
    with closing(Store(path)) as store:
        assert len(store.unfinished()) == TASKS - 1


def test_a_backup_of_an_older_schema_serves(path: Path, tmp_path: Path) -> None:
    old = type(path)(__file__).parents[2] / "data" / "schema-1.db"

    restore(path, old)

    with closing(Store(path)) as store:
        assert len(store.unfinished()) == 4
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM tasks").fetchone() == (7,)
