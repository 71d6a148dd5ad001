"""A record of requests and replies of clients, and a check of all promises.

Used by every torture run and of the simulated daemon. It believes clients only,
never the daemon's own opinion of itself: a `History` notes what was asked, what was
acknowledged and what results came; `complaints` compares it with the tasks that are
there at the end. Pure: no I/O, no clock, so that a simulation can use it.

Each task is named `name_of(key, position)`, where the key is the idempotency key of
its submit: that identifies a task of which no client knows the id.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ENDED = frozenset({"completed", "failed", "cancelled", "dropped"})
FAILS = "<fails by itself>"
"""Expected of a task that raises an error, in place of a result."""


@dataclass(frozen=True, slots=True)
class Found:
    """A task as the daemon lists it, during a run or at its end."""

    id: int
    name: str
    state: str
    result: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """One submit: all of its tasks or none, however often it is repeated.

    Attributes:
        key: its idempotency key.
        expected: the result that each of its tasks must have, in order; or `FAILS`.

    """

    key: str
    expected: tuple[Any, ...]


@dataclass(slots=True)
class History:
    """Requests and replies as clients saw them. Only ever added to; threads may share it."""

    submissions: dict[str, Submission] = field(default_factory=dict)
    acknowledged: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    cancels: set[int] = field(default_factory=set)
    told: list[Found] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Names of tasks that may fail or be dropped: for a cause that is not the daemon's."""

    def ask(self, key: str, expected: Sequence[Any]) -> None:
        """Note a submit before it is sent for the first time."""
        self.submissions[key] = Submission(key, tuple(expected))

    def acknowledge(self, key: str, ids: Iterable[int]) -> None:
        """Note that a submit was answered; each answer to a repeated one too."""
        self.acknowledged.append((key, tuple(ids)))

    def latest(self) -> int:
        """Return the largest id that was acknowledged; 0: none was."""
        return max((max(ids, default=0) for _, ids in self.acknowledged), default=0)

    def refuse(self, key: str) -> None:
        """Note that a submit was refused by the daemon: none of its tasks may exist."""
        self.refused.add(key)

    def ask_to_cancel(self, *ids: int) -> None:
        """Note, before it is sent, that a client wants an end to these tasks."""
        self.cancels.update(ids)

    def tell(self, found: Found) -> None:
        """Note what a client heard of a task: an end is final, an id is its name's."""
        self.told.append(found)


def name_of(key: str, position: int) -> str:
    """Name the task at a position of a submit."""
    return f"{key}/{position}"


def complaints(
    history: History, tasks: Iterable[Found], *, settled: bool = True
) -> list[str]:
    """Return every way in which the daemon broke its promise, one line each.

    Args:
        history: requests and replies of clients.
        tasks: all tasks that are there now.
        settled: the daemon had the time to end every task.

    """
    judge = _Comparison(history, list(tasks))
    found = [*judge.identities(), *judge.presence(), *judge.ends()]
    return [*found, *judge.results(), *(judge.unfinished() if settled else ())]


class _Comparison:
    """One comparison of a history with the tasks that are there."""

    def __init__(self, history: History, tasks: list[Found]) -> None:
        self._history = history
        self._tasks = tasks
        self._by_id = {task.id: task for task in tasks}
        self._by_name = {task.name: task for task in tasks}
        self._expected = dict(_expectations(history.submissions.values()))

    def identities(self) -> Iterator[str]:
        """Every id and every name belongs to one task, which somebody asked for."""
        for what, counts in (
            ("id", Counter(task.id for task in self._tasks)),
            ("name", Counter(task.name for task in self._tasks)),
        ):
            for each, times in counts.items():
                if times > 1:
                    yield f"{what} {each} belongs to {times} tasks: submitted twice"
        for task in self._tasks:
            if task.name not in self._expected:
                yield f"task {task.id} ({task.name!r}) was never asked for"

    def presence(self) -> Iterator[str]:
        """Report acknowledged tasks that are missing, and submits stored in part."""
        answers: dict[str, tuple[int, ...]] = {}
        for key, ids in self._history.acknowledged:
            if answers.setdefault(key, ids) != ids:
                yield f"submit {key} was answered with {answers[key]}, then with {ids}"
        for key, ids in dict.fromkeys(self._history.acknowledged):
            yield from self._missing(key, ids)
        for key, submission in self._history.submissions.items():
            yield from self._partial(key, len(submission.expected))

    def _missing(self, key: str, ids: tuple[int, ...]) -> Iterator[str]:
        asked = len(self._history.submissions[key].expected)
        if len(ids) != asked:
            yield f"submit {key} of {asked} tasks was answered with {len(ids)} ids"
        for position, task in enumerate(ids):
            name, found = name_of(key, position), self._by_id.get(task)
            if found is None:
                yield f"task {task} ({name}) was acknowledged and is lost"
            elif found.name != name:
                yield f"task {task} was acknowledged as {name} and is {found.name}"

    def _partial(self, key: str, asked: int) -> Iterator[str]:
        names = [name_of(key, position) for position in range(asked)]
        there = sum(name in self._by_name for name in names)
        if 0 < there < asked:
            yield f"submit {key} is there with {there} of its {asked} tasks"
        if there and key in self._history.refused:
            yield f"submit {key} was refused and is there"

    def ends(self) -> Iterator[str]:
        """Report tasks that are not as a client heard."""
        for told in self._history.told:
            now = self._by_id.get(told.id)
            if now is None:
                yield f"task {told.id} was reported as {told.state} and is lost"
            elif told.name and now.name != told.name:
                yield f"task {told.id} was {told.name} and is {now.name}"
            elif told.state in ENDED and now.state != told.state:
                yield f"task {told.id} had ended as {told.state} and is {now.state}"
            elif told.state in ENDED and now.result != told.result:
                yield (
                    f"task {told.id} had the result {_short(told.result)} and has "
                    f"{_short(now.result)}: recorded twice"
                )

    def results(self) -> Iterator[str]:
        """A completed task has the right result; others ended as somebody wanted."""
        for task in self._tasks:
            wanted = self._expected.get(task.name)
            if task.state == "completed" and task.result != wanted:
                yield (
                    f"task {task.id} has the result {_short(task.result)}, "
                    f"not {_short(wanted)}"
                )
            if task.state == "cancelled" and task.id not in self._history.cancels:
                yield f"task {task.id} is cancelled, which nobody asked for"
            excused = task.name in self._history.excused or (
                task.state == "failed" and wanted == FAILS
            )
            if task.state in {"failed", "dropped"} and not excused:
                yield f"task {task.id} is {task.state}: {task.reason or 'no reason'}"

    def unfinished(self) -> Iterator[str]:
        """Every task has ended."""
        for task in self._tasks:
            if task.state not in ENDED:
                yield f"task {task.id} has not ended: it is {task.state}"


def _expectations(submissions: Iterable[Submission]) -> Iterator[tuple[str, Any]]:
    for submission in submissions:
        for position, result in enumerate(submission.expected):
            yield name_of(submission.key, position), result


def _short(value: Any, length: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}…"
