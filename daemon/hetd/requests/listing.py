"""List and count tasks by id, owner, state and time, newest first, in pages."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hetd.requests.pages import AnswerPage
from hetd.requests.slices import LOOKS, ReadBudget, chunks
from hetd.tasks.task_types import kept_type
from hetsched.tasks import Row
from libtask import messages as m
from libtask.errors import InputError
from libtask.names import bears

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hetd.requests.permissions import Permissions
    from hetd.requests.slices import Steps
    from hetd.tasks.journal import Journal
    from hetd.tasks.leases import SubmitterLeases
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from hetsched.estimates.table import EstimateTable
    from hetsched.system import System

COUNTED = 10_000
"""Live tasks that one step counts: about 2 ms."""

Expected = dict[Any, dict[str, tuple[float, float]]]
"""Expected seconds and deviation by resource, computed once for similar tasks."""


class ListRequests:
    """Lists and counts tasks."""

    def __init__(
        self,
        journal: Journal,
        rights: Permissions,
        estimates: EstimateTable,
        system: System,
        leases: SubmitterLeases,
    ) -> None:
        self._leases = leases
        self._journal = journal
        self._rights = rights
        self._estimates = estimates
        self._system = system

    def list_tasks(self, peer: Peer, request: m.ListTasks) -> Steps:
        if not 0 < request.limit <= m.MAX_IDS:
            text = f"limit: expected 1 to {m.MAX_IDS}, got {request.limit}"
            raise InputError(text)
        if request.count:
            return self._count(peer, request)
        return self._page(peer, request)

    def _page(self, peer: Peer, request: m.ListTasks) -> Steps:
        journal = self._journal
        answer: AnswerPage[m.TaskInfo] = AnswerPage(request.limit)
        expected: Expected = {}
        following: int | None = None
        doubtful = journal.doubtful()
        for page in self._candidates(peer, request):
            if page is None:
                yield
                doubtful = journal.doubtful()
                continue
            told = journal.certain(page, doubtful)
            if told is None or not _fits(told, request):
                continue
            info = self._described(told, expected, detail=request.detail)
            if not answer.take(info):
                following = answer.parts[-1].id
                break
        return m.TaskList(request.request, answer.parts, len(journal.live), following)

    def _candidates(
        self, peer: Peer, request: m.ListTasks
    ) -> Iterator[TaskPage | None]:
        """Yield the tasks to list, newest first, and None where the step may end."""
        owner, states = self._owner(peer, request), set(request.states)
        if request.ids is not None:
            yield from self._those(peer, request)
        elif states and not states & m.ENDED:
            yield from self._known(request.before, owner, [])
        elif (recent := self._recently_ended(request)) is None:
            some = request.name or request.job or (states and "completed" not in states)
            unfinished = not states or not states <= m.ENDED
            yield from self._newest(
                request.before, owner, marked=bool(some), unfinished=unfinished
            )
        elif states and states <= m.ENDED:
            yield from self._ended(request.before, owner, recent)
        else:
            yield from self._known(request.before, owner, recent)

    def _owner(self, peer: Peer, request: m.ListTasks) -> int | None:
        """Return the uid whose tasks are listed, or None for all users."""
        if request.user is not None and request.user != peer.uid:
            self._rights.require_admin(peer)
            return request.user
        mine = request.mine or request.user is not None
        return self._rights.whose(peer, mine=mine)

    def _those(self, peer: Peer, request: m.ListTasks) -> Iterator[TaskPage | None]:
        before = request.before
        wanted = request.ids or ()
        ids = {task for task in wanted if before is None or task < before}
        reading = ReadBudget(self._journal)
        for task in sorted(ids, reverse=True):
            yield self._rights.own(peer, task)
            if reading.is_enough():
                yield None

    def _recently_ended(self, request: m.ListTasks) -> list[int] | None:
        """Return the ids of tasks that ended since a time, or None if there are too many."""
        if request.since is None:
            return None
        return self._journal.ended_since(request.since, COUNTED)

    def _known(
        self, before: int | None, owner: int | None, ended: list[int]
    ) -> Iterator[TaskPage | None]:
        """Yield the unfinished tasks and the given ended ones, newest first."""
        journal = self._journal
        reading = ReadBudget(journal)
        while tasks := journal.newest_of(before, LOOKS, owner, ended):
            for task in tasks:
                before = task
                page = journal.find(task)
                if page is not None and owner in (None, page.owner):
                    yield page
                if reading.is_enough():
                    yield None

    def _ended(
        self, before: int | None, owner: int | None, ended: list[int]
    ) -> Iterator[TaskPage | None]:
        """Yield the given ended tasks, newest first."""
        reading = ReadBudget(self._journal)
        for task in ended:
            page = self._journal.find(task) if before is None or task < before else None
            if page is not None and owner in (None, page.owner):
                yield page
            if reading.is_enough():
                yield None

    def _newest(
        self, before: int | None, owner: int | None, *, marked: bool, unfinished: bool
    ) -> Iterator[TaskPage | None]:
        reading = ReadBudget(self._journal)
        there_is_more = True
        while there_is_more:
            there_is_more = False
            found = self._journal.newest(
                before, LOOKS, owner, marked=marked, unfinished=unfinished
            )
            for page in found:
                before = page.id
                yield page
                there_is_more = reading.is_enough()
                if (
                    there_is_more
                ):  # the read transaction of the store must not stay open
                    break
            if there_is_more:
                yield None

    def _expected(self, spec: m.TaskSpec, owner: int) -> dict[str, tuple[float, float]]:
        """Return the expected seconds of a task, and their relative deviation.

        Only for resources where its application was measured, or its user has said.
        """
        kinds, allowed = frozenset(spec.kinds), frozenset(spec.resources)
        task_type = kept_type(spec.type, spec.app, owner)
        row = Row(task_type, kinds, allowed, spec.work, spec.seconds)
        return {
            name: (
                self._estimates.seconds(row, resource),
                self._estimates.spread(row, resource),
            )
            for name, resource in self._system.resources.items()
            if resource.kind in kinds
            and (not allowed or name in allowed)
            and self._estimates.knows(row, resource)
        }

    def _described(
        self, page: TaskPage, expected: Expected, *, detail: bool
    ) -> m.TaskInfo:
        """Describe a task; with `detail`, add its expected times."""
        info = page.info(detail=detail)
        if not detail:
            return info
        spec = page.spec
        what = (page.owner, spec.type, spec.app, spec.work)
        alike = (*what, *spec.kinds, *spec.resources)
        if alike not in expected:
            expected[alike] = self._expected(spec, page.owner)
        known = expected[alike]
        known_as = kept_type(spec.type, spec.app, page.owner)
        return structs.replace(
            info,
            expected={name: seconds for name, (seconds, _) in known.items()},
            spread={name: spread for name, (_, spread) in known.items()},
            known_as="" if known_as == spec.type else known_as,
            lease_left_s=self._leases.left_s(page),
        )

    # ------------------------------------------------------------ count

    def _count(self, peer: Peer, request: m.ListTasks) -> Steps:
        """Count the tasks that match, by states and times without most of their pages."""
        owner = self._owner(peer, request)
        if request.ids is not None or request.name or request.job:
            counting = self._count_fitting(peer, request)
        else:
            ended = self._count_ended(peer, request, owner)
            counting = chain(self._count_unfinished(request, owner), ended)
        count = 0
        for some in counting:
            count += some
            yield
        live = len(self._journal.live)
        # a task that ends in between may be counted among the others only
        return m.TaskList(request.request, [], live, count=max(0, count))

    def _count_unfinished(
        self, request: m.ListTasks, owner: int | None
    ) -> Iterator[int]:
        """Count in memory."""
        journal, before = self._journal, request.before
        live = journal.live if owner is None else journal.live_of.get(owner, {})
        if request.states and m.ENDED.issuperset(request.states):
            return
        for some in chunks(list(live), COUNTED):
            known = (live[task] for task in some if task in live)
            yield sum(
                (before is None or page.id < before)
                and (not request.states or page.shown_state in request.states)
                for page in known
            )

    def _count_ended(
        self, peer: Peer, request: m.ListTasks, owner: int | None
    ) -> Iterator[int]:
        """Count by an index; completed ones as what is left without the others.

        The others are found by another index, together with those that have a name or a
        job; the pages of these are read.
        """
        states = m.ENDED.intersection(request.states) if request.states else m.ENDED
        if "completed" not in states:
            others, sign = states, 1
        else:
            others, sign = m.ENDED - states, -1
            since = 0 if request.since is None else int(request.since)
            owners = [owner] if owner is not None else self._journal.usage.owners()
            for each in owners:
                yield from self._journal.count_ended(each, request.before, since)
        if others:
            rest = structs.replace(request, states=sorted(others))
            yield from (sign * some for some in self._count_fitting(peer, rest))

    def _count_fitting(self, peer: Peer, request: m.ListTasks) -> Iterator[int]:
        count = 0
        for page in self._candidates(peer, request):
            if page is None:
                yield count
                count = 0
            else:
                count += _fits(page, request)
        yield count


def _fits(page: TaskPage, request: m.ListTasks) -> bool:
    """Whether a task matches the states and the time of a request."""
    if request.states and page.shown_state not in request.states:
        return False
    if request.name and not bears(page.spec.name, request.name):
        return False
    if request.job and not bears(page.spec.job, request.job):
        return False
    if request.since is None or page.state not in m.ENDED:
        return True
    return (page.finished or page.submitted) >= request.since
