"""Seeded bugs: the simulation must find what is wrong on purpose.

Each replaces one piece of hetd's source, in memory, before it is imported; the files stay
as they are. A piece that is not there exactly once is an error: the bug is to be
written anew.

    python -m hettorture.simulation.bugs NAME     how many seeds it takes
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

SEEDS = 2000
EVENTS = 1000


@dataclass(frozen=True, slots=True)
class Bug:
    """A change for the worse.

    Attributes:
        what: what is wrong then.
        module: whose source it is in.
        right: a piece of it; `wrong`: what stands there instead.

    """

    what: str
    module: str
    right: str
    wrong: str


BUGS = {
    "answer-early": Bug(
        "requests are answered before the commit",
        "hetd.loop",
        "            self._journal.batch.replies.append((route, reply))",
        "            self._tell(route, reply)",
    ),
    "no-fence": Bug(
        "reports count whoever sends them, and of whatever epoch",
        "hetd.reports.worker_reports",
        "if entry is None or not held or entry.epoch != message.epoch:",
        "if entry is None:",
    ),
    "keys-forgotten": Bug(
        "idempotency keys are lost in a restart",
        "hetd.requests.idempotency",
        "self._node.journal.batch.keys.append(row)",
        "pass",
    ),
    "keys-ignored": Bug(
        "a repeated request is a new one",
        "hetd.requests.idempotency",
        "known = self._find(uid, request.key) if request.key else None",
        "known = None",
    ),
    "restart-anew": Bug(
        "running tasks begin anew at a restart, beside their workers",
        "hetd.tasks.recovery",
        "epoch = entry.epoch if where is not None or entry.in_worker else 0",
        "epoch, where = 0, None",
    ),
    "ids-again": Bug(
        "ids begin anew at each start",
        "hetd.tasks.journal",
        "self._next = store.last_id() + 1",
        "self._next = 1",
    ),
    "ends-forgotten": Bug(
        "the store does not learn that tasks have ended",
        "hetd.tasks.page",
        "return max(1, int(entry.finished or 0)) if entry.state in ENDED else 0",
        "return 0",
    ),
    "hold-forgotten": Bug(
        "a hold that waits for a checkpoint is lost in a restart",
        "hetd.tasks.recovery",
        "if entry.holding:",
        "if not entry:",
    ),
    "cancel-forgotten": Bug(
        "a cancellation that waits for a checkpoint is lost in a restart",
        "hetd.tasks.recovery",
        "if entry.cancelling is not None:",
        "if not entry:",
    ),
    "drains-forgotten": Bug(
        "a drained resource is in use again after a restart",
        "hetd.tasks.operator_settings",
        'self._journal.batch.settings["drained", resource] = _encode(setting)',
        "pass",
    ),
    "drains-for-ever": Bug(
        "a resource that was given back is drained again after a restart",
        "hetd.tasks.operator_settings",
        'self._journal.batch.settings["drained", resource] = None',
        "pass",
    ),
    "policy-forgotten": Bug(
        "the policy that was set is not in force after a restart",
        "hetd.tasks.operator_settings",
        'self._journal.batch.settings["policy", ""] = _encode(setting)',
        "pass",
    ),
    "launchers-unseen": Bug(
        "the ends of launchers are not noticed",
        "hetd.loop",
        "self._wakes.guard(Guarded(peer, None))",
        "pass",
    ),
    "no-abort-fence": Bug(
        "what a worker gave up before frees it of the same task anew",
        "hetd.reports.worker_reports",
        "if entry is not None and entry.epoch != message.epoch:",
        "if not peer:",
    ),
    "slot-too-many": Bug(
        "a resource takes one task more than it has slots",
        "hetsched.scheduler",
        "while len(state.running) < state.slots and state.queue:",
        "while len(state.running) <= state.slots and state.queue:",
    ),
    "everybody-sees": Bug(
        "users see each other's tasks",
        "hetd.requests.permissions",
        "return None if self.may_rule(peer.uid) and not mine else peer.uid",
        "return None",
    ),
    "out-of-turn": Bug(
        "tasks run though what they come after has failed",
        "hetsched.state",
        "if ended.state is not State.COMPLETED:",
        "if not ended:",
    ),
    "everybody-hears": Bug(
        "who watches is told of everybody's tasks",
        "hetd.requests.subscriptions",
        "rulers = [uid for uid in self._routes if may_rule(uid)]",
        "rulers = list(self._routes)",
    ),
    "elsewhere-unseen": Bug(
        "where a worker says it computes is not looked at after a restart",
        "hetd.reports.worker_reports",
        "if hello.resource and expected:",
        "if not hello:",
    ),
    "read-early": Bug(
        "what a full disk may still undo is listed",
        "hetd.tasks.journal",
        "if stuck is None:",
        "if True:",
    ),
    "refused-and-kept": Bug(
        "tasks that are refused for want of room stay",
        "hetd.requests.out_of_space",
        "batch.tasks[:] = [row for row in batch.tasks if row[0] not in ids]",
        "pass",
    ),
    "no-grace": Bug(
        "nobody asks after workers that do not come back after a restart",
        "hetd.workers.watchdog",
        "self._later(grace, task, entry.epoch)",
        "pass",
    ),
}


class _Worsened(SourceFileLoader):
    """Loads a module with a bug in it."""

    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self._bug = bug

    def get_data(self, path: str) -> bytes:
        """Return the worsened source, for the loader to compile."""
        source = super().get_data(path).decode()
        if source.count(self._bug.right) != 1:
            raise ValueError(f"{self._bug.module}: the piece is not there once")
        return source.replace(self._bug.right, self._bug.wrong).encode()

    def path_stats(self, path: str) -> Any:
        raise OSError  # neither read nor write compiled code of it


class _Finder:
    """Finds the one module that is to be worse."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._bug.module:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ValueError(f"there is no module {name}")
        loader = _Worsened(name, found.origin, self._bug)
        return importlib.util.spec_from_file_location(name, found.origin, loader=loader)


def seeds_needed(seeds: int = SEEDS, events: int = EVENTS) -> tuple[int, str]:
    """Run seeds until one finds something; return how many, and what; 0: none did."""
    from hettorture.simulation.run import Run

    for seed in range(seeds):
        outcome = Run(seed, events).go()
        if outcome.found:
            return seed + 1, outcome.found[0]
    return 0, ""


def main() -> int:
    """Seed the bug that is named; return 0 where it is found."""
    bug = BUGS[sys.argv[1]]
    logging.disable(logging.CRITICAL)  # the daemon's log of hours that never were
    sys.meta_path.insert(0, _Finder(bug))
    needed, found = seeds_needed()
    print(f"{needed} {found}")  # noqa: T201  the command's answer
    return 0 if needed else 1


if __name__ == "__main__":
    sys.exit(main())
