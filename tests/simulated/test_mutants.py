"""The simulation finds each deliberate mistake within a few seeds.

A mutant replaces one method of the daemon by a wrong one. `make mutants` makes thousands
of small syntactic mutants of the scheduler and the store, for the unit tests; these few
are semantic mistakes that only a whole daemon with crashes and clients can show.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from hetd.requests.idempotency import IdempotencyKeys
from hetd.requests.permissions import Permissions
from hetd.requests.publication import Publication
from hetd.requests.subscriptions import Subscriptions
from hetd.tasks import journal as journal_module
from hetd.tasks.called_tasks import CalledTasks
from hetd.tasks.journal import Journal
from hetd.tasks.operator_settings import OperatorSettings
from hetsched.state import SchedulerState
from hetsched.tasks import State, Step
from hetsched.transitions import advance
from libtask import messages as m
from torture.simulation import run
from torture.simulation.run import Run
from torture.simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Patch: TypeAlias = pytest.MonkeyPatch

SEEDS = (72, 35, 17, 10, *range(100))
"""The first of them notice most mutants."""
EVENTS = 1000
PATIENCE = 400 * SECOND
"""Simulated time in which all has ended once nothing goes wrong any more: 176 s at most in
150 runs without a mutant."""


def reply_before_the_commit(patch: Patch) -> None:
    def reply(
        publication: Publication, peer: Any, _request: m.Request, reply: m.Message
    ) -> None:
        publication._tell(peer.route, reply)

    patch.setattr(Publication, "reply", reply)


def lose_idempotency_keys_at_a_restart(patch: Patch) -> None:
    remember = IdempotencyKeys.remember

    def in_memory(
        once: IdempotencyKeys, uid: int, request: m.Change, reply: m.Request
    ) -> None:
        remember(once, uid, request, reply)
        once._journal.batch.keys.clear()

    patch.setattr(IdempotencyKeys, "remember", in_memory)


def repeat_a_change_that_was_made(patch: Patch) -> None:
    patch.setattr(IdempotencyKeys, "_find", lambda _once, _uid, _key: None)


def give_task_ids_again_after_a_restart(patch: Patch) -> None:
    begin = Journal.__init__

    def from_one(journal: Journal, store: Any) -> None:
        begin(journal, store)
        journal._next = 1

    patch.setattr(Journal, "__init__", from_one)


def keep_ended_tasks_alive_in_the_store(patch: Patch) -> None:
    patch.setattr(journal_module, "ended_at", lambda _entry: 0)


def list_the_tasks_of_all_users(patch: Patch) -> None:
    patch.setattr(Permissions, "whose", lambda _permissions, _peer, *, mine: None)


def tell_all_watchers_of_all_tasks(patch: Patch) -> None:
    patch.setattr(
        Subscriptions, "_interested", lambda watchers, *_: [*watchers._watches]
    )


def lose_drains_at_a_restart(patch: Patch) -> None:
    def drain(settings: OperatorSettings, resource: str, setting: Any) -> None:
        settings.drained.setdefault(resource, setting)

    patch.setattr(OperatorSettings, "drain", drain)


def lose_the_chosen_policy_at_a_restart(patch: Patch) -> None:
    def choose(settings: OperatorSettings, setting: Any) -> None:
        settings.policy = setting

    patch.setattr(OperatorSettings, "choose", choose)


def run_dependents_of_failed_tasks(patch: Patch) -> None:
    def follow(state: SchedulerState, ended: Any, why: str, task: Any) -> None:
        task.unmet.discard(ended.id)
        if not task.unmet and task.state is State.WAITING:
            advance(task, Step.DEPENDENCIES_MET, state.system.now)
            state.enqueue(task)
            state.record(task, "queued")

    patch.setattr(SchedulerState, "_follow", follow)


def leave_what_was_called(patch: Patch) -> None:
    patch.setattr(CalledTasks, "changed", lambda _called, _caller: None)


MUTANTS: list[Callable[[Patch], None]] = [
    reply_before_the_commit,
    lose_idempotency_keys_at_a_restart,
    repeat_a_change_that_was_made,
    give_task_ids_again_after_a_restart,
    keep_ended_tasks_alive_in_the_store,
    list_the_tasks_of_all_users,
    tell_all_watchers_of_all_tasks,
    lose_drains_at_a_restart,
    lose_the_chosen_policy_at_a_restart,
    run_dependents_of_failed_tasks,
    leave_what_was_called,
]


@pytest.fixture
def silence() -> Iterator[None]:
    """Log nothing meanwhile.

    Not by patching the manager of loggers, which leaves what loggers remember of it.
    """
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silence")
@pytest.mark.timeout(900)  # up to 100 seeds, on a machine that may be busy
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_noticed(
    mutant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(run, "LAST_PATIENCE", PATIENCE)
    mutant(monkeypatch)

    assert any(Run(seed, EVENTS).go().found for seed in SEEDS)
