"""Make `schema-N.db`: what a daemon of this schema leaves, for tests of later ones.

Run it before the schema changes, with the code of the old one:

    PYTHONPATH=tests python tests/data/make_database.py

It holds one task of each state that outlives a daemon, an idempotency key and a measured
execution time; nothing in it names a machine or a user.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hetd.store.checksums import page_sum
from libtask import messages as m
from system.private_daemon import RESOURCES, SETTINGS, PrivateDaemon

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
KEY = "a key of two tasks"


def main() -> None:
    """Run a daemon, leave tasks behind, store its database."""
    with tempfile.TemporaryDirectory(prefix="hetd-") as folder:
        daemon = PrivateDaemon(Path(folder), SETTINGS + RESOURCES)
        daemon.start()
        _leave_tasks(daemon)
        daemon.terminate()
        hidden = str(daemon.state.parent), str(HERE.parents[1])
        print(_store(daemon.state / "hetd.db", hidden))  # noqa: T201  says what it made
        daemon.start()
        daemon.close()


def _leave_tasks(daemon: PrivateDaemon) -> None:
    client = daemon.client
    specs = {
        "completed": m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}),
        "failed": m.TaskSpec("nosuch", kinds=["cpu"]),
        "held": m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, hold=True),
        "waiting": m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, after=[3]),
        "cancelled": m.TaskSpec("synthetic", {"seconds": {"cpu": 0.0}}, hold=True),
    }
    ids = [client.submit_specs([spec])[0].id for spec in specs.values()]
    client.cancel(ids[-1])
    for task, state in zip(ids, specs, strict=True):
        daemon.await_state(task, state)
    client._session.request(m.Submit(request=0, tasks=[specs["held"]] * 2, key=KEY))
    client.learn([m.Sample("synthetic/1", "cpu", 2.5, 4.0, 0.1, 3, 0.25, 9.0)])


def _store(path: Path, hidden: Sequence[str]) -> Path:
    with closing(sqlite3.connect(path)) as database:
        schema = database.execute("PRAGMA user_version").fetchone()[0]
        copy = HERE / f"schema-{schema}.db"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as target:
            database.backup(target)
            _hide(target, hidden)
            target.execute("PRAGMA journal_mode = DELETE")
            target.execute("VACUUM")
    return copy


def _hide(database: sqlite3.Connection, folders: Sequence[str]) -> None:
    """Replace folders of this machine in the pages of tasks, e.g. in tracebacks."""
    rows = database.execute("SELECT id, ended, entry FROM tasks").fetchall()
    for task, ended, entry in rows:
        page = _without(msgspec.msgpack.decode(entry), folders)
        changed = msgspec.msgpack.encode(page)
        values = changed, page_sum(task, ended, changed), task
        database.execute("UPDATE tasks SET entry = ?, sum = ? WHERE id = ?", values)
    database.execute(
        "UPDATE usage SET tasks = (SELECT sum(length(entry)) FROM tasks "
        "WHERE tasks.owner = usage.owner)"
    )
    database.commit()


def _without(value: Any, folders: Sequence[str]) -> Any:
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(folder, "/folder")
    elif isinstance(value, list):
        value = [_without(each, folders) for each in value]
    elif isinstance(value, dict):
        value = {name: _without(each, folders) for name, each in value.items()}
    return value


if __name__ == "__main__":
    main()
