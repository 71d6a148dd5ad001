"""Seeded bugs: mistakes that could be made in hetd, and who must notice each.

A bug is one piece of one file, replaced by a worse one. Who notices it is a test of the
suite, or a run of this harness; `bugs` tries them all. Pieces that are not there exactly
once any more are to be written anew, which a test demands.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeededBug:
    """A change for the worse.

    Attributes:
        what: what is wrong then.
        file: where, from the root of the sources.
        right: a piece of it; `wrong`: what stands there instead.
        noticed_by: what follows `python -m`, and must fail.

    """

    what: str
    file: str
    right: str
    wrong: str
    noticed_by: tuple[str, ...]


def _test(*names: str) -> tuple[str, ...]:
    """Name tests of the suite."""
    paths = tuple(f"tests/{name}" for name in names)
    return ("pytest", "-q", "-x", "-p", "no:randomly", *paths)


def _kill_at(*points: str) -> tuple[str, ...]:
    """Name a walk over fault points."""
    return ("hettorture", "points", "--only", ",".join(points))


CREWS = ("hettorture", "crews", "--seeds", "2", "--count", "40")
SIMULATED = ("hettorture", "simulate", "--seeds", "100")

SEEDS = {
    "answer-early": SeededBug(
        "requests are answered before the commit",
        "daemon/hetd/loop.py",
        "            self._journal.batch.replies.append((route, reply))",
        "            self._tell(route, reply)",
        _kill_at(
            "store.written",
            "store.before-commit",
            "change.remembered",
            "control.done",
        ),
    ),
    "failed-commit-told": SeededBug(
        "what a failed commit should have kept is told all the same",
        "daemon/hetd/store/store.py",
        "            self._on_failure(batch, outcome)\n            return []\n",
        "            pass\n",
        _test("unit/test_store.py::test_a_failed_commit_tells_nothing"),
    ),
    "commit-not-synchronised": SeededBug(
        "commits are not forced to the disk",
        "daemon/hetd/store/opening.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = OFF",
        _test("unit/test_store.py::test_every_commit_is_synchronised"),
    ),
    "keys-in-memory": SeededBug(
        "idempotency keys do not outlive the daemon",
        "daemon/hetd/requests/idempotency.py",
        "self._node.journal.batch.keys.append(row)",
        "pass",
        _kill_at("store.committed", "loop.durable"),
    ),
    "keys-ignored": SeededBug(
        "a repeated request is a new one",
        "daemon/hetd/requests/idempotency.py",
        "known = self._find(uid, request.key) if request.key else None",
        "known = None",
        _test("unit/test_once.py::test_a_repeated_change_is_not_made_again"),
    ),
    "stale-requests": SeededBug(
        "requests count that nobody waits for any more",
        "daemon/hetd/requests/idempotency.py",
        "if late > 0:",
        "if late > 1e9:",
        _test("unit/test_once.py::test_a_request_that_nobody_waits_for_is_refused"),
    ),
    "newer-schema": SeededBug(
        "a database of a newer hetd is opened",
        "daemon/hetd/store/schema.py",
        "if version > SCHEMA:",
        "if version < 0:",
        _test("unit/test_store_schemas.py"),
    ),
    "two-daemons": SeededBug(
        "a second daemon may use the state directory",
        "daemon/hetd/store/lock.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        _test(
            "system/test_restart.py::test_two_daemons_share_neither_socket_nor_state"
        ),
    ),
    "ids-again": SeededBug(
        "ids begin anew at each start",
        "daemon/hetd/tasks/journal.py",
        "self._next = store.last_id() + 1",
        "self._next = 1",
        _kill_at("loop.received", "loop.handled"),
    ),
    "restart-anew": SeededBug(
        "running tasks begin anew at a restart, beside their workers",
        "daemon/hetd/tasks/recovery.py",
        "epoch = entry.epoch if where is not None or entry.in_worker else 0",
        "epoch, where = 0, None",
        _test("system/test_restart.py::test_running_tasks_run_on_in_the_same_worker"),
    ),
    "cancel-forgotten": SeededBug(
        "a cancellation that waits for a checkpoint is lost in a restart",
        "daemon/hetd/tasks/recovery.py",
        "if entry.cancelling is not None:",
        "if not entry:",
        SIMULATED,
    ),
    "no-fence": SeededBug(
        "reports count whoever sends them, and of whatever epoch",
        "daemon/hetd/reports/worker_reports.py",
        "if entry is None or not held or entry.epoch != message.epoch:",
        "if entry is None:",
        _test(
            "unit/test_crew.py::test_reports_of_others_and_of_old_epochs_do_not_count"
        ),
    ),
    "no-epoch": SeededBug(
        "what happened to an older binding counts for the present one",
        "daemon/hetsched/state.py",
        "return task if task and task.bound and task.epoch == epoch else None",
        "return task if task and task.bound else None",
        _test(
            "unit/scheduler/test_losses.py::test_reports_of_an_older_binding_change_nothing"
        ),
    ),
    "waiting-tasks-claimed": SeededBug(
        "a task that waits for a worker is given to whoever claims it, and to others too",
        "daemon/hetd/reports/worker_reports.py",
        "if not self._node.pool.may_claim(entry.id, peer.uid, hello):",
        "if not entry:",
        _test("hostile/test_liars.py"),
    ),
    "claimed-and-waiting": SeededBug(
        "a task whose worker keeps it stays in the line of those that need one",
        "daemon/hetd/workers/pool.py",
        "            if task in waiting:  # else its worker was expected to greet again\n"
        "                waiting.remove(task)",
        "            pass",
        _test("hostile/test_liars.py", "unit/test_workers.py"),
    ),
    "waits-for-ever": SeededBug(
        "a task holds its slot for ever while no worker comes for it",
        "daemon/hetd/workers/watchdog.py",
        "            self._give_up_waiting(record, complaint)",
        "            self.runs(record.id, record.epoch)",
        _test("hostile/test_liars.py"),
    ),
    "excused-for-ever": SeededBug(
        "a launcher that comes and goes keeps the slots of its tasks",
        "daemon/hetd/workers/watchdog.py",
        "return len(self._excused) > before",
        "return True",
        _test("hostile/test_liars.py"),
    ),
    "aborted-of-any-epoch": SeededBug(
        "a worker gives up a task under an epoch that is not its own",
        "daemon/hetd/reports/worker_reports.py",
        "if entry is not None and entry.epoch != message.epoch:",
        "if entry is not None and entry.epoch > message.epoch:",
        _test("hostile/test_liars.py"),
    ),
    "ends-unseen": SeededBug(
        "the end of a worker is noticed only when its launcher says so",
        "daemon/hetd/reports/worker_reports.py",
        "            heappush(self._ended_processes, (due, peer.uid, name, peer.pid))",
        "            pass",
        _test("hostile/test_liars.py"),
    ),
    "claims-believed": SeededBug(
        "a worker that claims another user's task gets it",
        "daemon/hetd/reports/worker_reports.py",
        "if entry is None or entry.owner != peer.uid:",
        "if entry is None:",
        _test(
            "unit/test_crew.py::test_nobody_gets_another_users_task_by_claiming_to_hold_it"
        ),
    ),
    "everybody-sees": SeededBug(
        "users see and touch each other's tasks",
        "daemon/hetd/requests/permissions.py",
        "return entry.owner == peer.uid or self.may_rule(peer.uid)",
        "return True",
        _test("unit/test_permissions.py::test_nobody_touches_another_users_task"),
    ),
    "lost-destination": SeededBug(
        "a task that yields forgets where it was sent",
        "daemon/hetsched/reactor.py",
        "self.ledger.enqueue(task, destination)",
        "self.ledger.enqueue(task)",
        _test(
            "unit/scheduler/test_wishes.py",
            "sim/test_policies.py",
            "sim/test_simulation.py",
        ),
    ),
    "order-after-preempt": SeededBug(
        "a preempted task waits behind those that were there before it",
        "daemon/hetsched/reactor.py",
        '        task.rank = FRONT\n        task.advance("TaskYielded"',
        '        task.rank = -FRONT\n        task.advance("TaskYielded"',
        _test(
            "unit/scheduler/test_losses.py::"
            "test_a_preempted_task_without_a_destination_waits_first"
        ),
    ),
    "slot-not-freed": SeededBug(
        "a task that ends keeps its slot",
        "daemon/hetsched/state.py",
        "self._vacate(task, self.system.states[task.resource])",
        "pass",
        _test(
            "unit/scheduler/test_placement.py::test_a_finished_task_makes_room_for_the_next"
        ),
    ),
    "slot-too-many": SeededBug(
        "a resource takes one task more than it has slots",
        "daemon/hetsched/scheduler.py",
        "while len(state.running) < state.slots and state.queue:",
        "while len(state.running) <= state.slots and state.queue:",
        _test("unit/scheduler/test_placement.py::test_slots_run_tasks_side_by_side"),
    ),
    "endless-attempts": SeededBug(
        "a task that kills its workers is tried for ever",
        "daemon/hetsched/state.py",
        "task.attempts += begun",
        "pass",
        _test(
            "unit/scheduler/test_losses.py::test_a_task_fails_when_it_loses_too_many_workers"
        ),
    ),
    "checkpoint-off-by-one": SeededBug(
        "a task goes on one iteration before where it stopped",
        "libtask/libtask/checkpoint.py",
        "self._drawn = record.done",
        "self._drawn = max(0, record.done - 1)",
        _test("unit/test_execution.py::test_goes_on_where_it_stopped"),
    ),
    "record-not-resumed": SeededBug(
        "a task takes its state from a snapshot, and begins to count anew",
        "libtask/libtask/worker/snapshot_writer.py",
        "        held.record = record\n",
        "",
        CREWS,
    ),
    "snapshot-in-place": SeededBug(
        "a snapshot has its name before it is whole",
        "libtask/libtask/snapshots/folder.py",
        'draft = f".{name}.new"',
        "draft = name",
        _test("unit/test_snapshot_steps.py"),
    ),
    "snapshot-not-forced": SeededBug(
        "a snapshot has its name before it is on the disk",
        "libtask/libtask/snapshots/file.py",
        "    os.fsync(descriptor)\n    return written\n",
        "    return written\n",
        _test("unit/test_snapshot_steps.py"),
    ),
    "one-generation": SeededBug(
        "the snapshot before the last is removed",
        "libtask/libtask/snapshots/folder.py",
        "GENERATIONS = 2",
        "GENERATIONS = 1",
        _test("unit/snapshots/test_generations.py::test_two_generations_are_kept"),
    ),
    "checksum-ignored": SeededBug(
        "a damaged snapshot is used",
        "libtask/libtask/snapshots/file.py",
        "if bytes(source.take(DIGEST_BYTES)) != found:",
        "if not found:",
        _test("unit/snapshots/test_refused_files.py::test_no_flipped_bit_is_accepted"),
    ),
    "bad-snapshot-again": SeededBug(
        "a bad snapshot is tried again and again",
        "libtask/libtask/snapshots/folder.py",
        "if name in self._refused:",
        "if not name:",
        _test(
            "unit/snapshots/test_generations.py::test_where_it_cannot_be_put_aside_it_is_remembered"
        ),
    ),
    "last-word-once": SeededBug(
        "a worker says its last word once, heard or not",
        "libtask/libtask/worker/pending_report.py",
        "return [hello, *([] if self.message is None else [self.message])]\n",
        "return [hello]\n",
        _test(
            "unit/worker/test_life_of_the_worker.py::test_a_result_is_said_again_to_a_new_daemon"
        ),
    ),
    "exits-not-kept": SeededBug(
        "how a worker ended is not written down",
        "libtask/libtask/launcher/launcher.py",
        "self._exits.keep(exited)",
        "pass",
        _test(
            "unit/launcher/test_life_of_the_launcher.py::test_exits_outlive_the_launcher"
        ),
    ),
    "drafts-left": SeededBug(
        "a launcher that comes leaves the drafts of the one before",
        "libtask/libtask/launcher/exit_records.py",
        "            draft.unlink()\n",
        "            pass\n",
        _kill_at("exit.drafted"),
    ),
    "group-only": SeededBug(
        "only the worker's process group is killed, not what left it",
        "libtask/libtask/launcher/supervisor.py",
        "        kill_with_descendants(orphans)\n",
        "",
        _test(
            "unit/launcher/test_ends_of_workers.py::test_what_a_task_started_ends_with_its_worker"
        ),
    ),
}
