"""Explain where a task is, and estimate when it would start and end elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetd.requests.policies import policy_name
from hetsched.ids import TaskId
from hetsched.planning.explain import RESOURCE_LOST, estimate, explain
from hetsched.tasks import State
from libtask import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hetd.devices.health import Health
    from hetd.requests.permissions import Permissions
    from hetd.requests.submit import SubmitRequests
    from hetd.tasks.page import TaskPage
    from hetd.transport.router import Peer
    from hetd.workers.pool import WorkerPool
    from hetsched.estimates.table import EstimateTable
    from hetsched.planning.explain import Prospect
    from hetsched.scheduler import Scheduler
    from hetsched.system import System
    from hetsched.tasks import TaskRecord


class ExplainRequests:
    """Handles requests for an explanation."""

    def __init__(
        self,
        scheduler: Scheduler,
        prospects: ProspectMessages,
        pool: WorkerPool,
        rights: Permissions,
    ) -> None:
        self._scheduler = scheduler
        self._system = scheduler.system
        self._prospects = prospects
        self._pool = pool
        self._rights = rights

    def explain(self, peer: Peer, request: m.Explain) -> m.Explained:
        page = self._rights.own(peer, request.id)
        system = self._system
        record = system.tasks.get(TaskId(page.id))
        if record is None:
            passive = "been " if page.state in ("cancelled", "dropped") else ""
            because = f": {page.reason}" if page.reason else ""
            why = f"has {passive}{page.state}{because}"
            return m.Explained(
                request.request,
                page.id,
                page.state.value,
                why,
                resource=page.resource,
            )
        found = explain(system, record)
        return m.Explained(
            request.request,
            page.id,
            page.shown_state.value,
            self._why(page, found.why) + self._lack_of_worker(record),
            policy_name(self._scheduler),
            found.rule,
            system.objective,
            record.resource,
            self._prospects.of(record, found.prospects),
        )

    def _why(self, page: TaskPage, why: str) -> str:
        """Return why a task waits; the scheduler does not know of leases."""
        if not (page.fenced and page.state is State.HELD):
            return why
        return (
            f"is {page.reason}; a renewal of its lease {page.spec.lease!r} releases it"
        )

    def _lack_of_worker(self, record: TaskRecord) -> str:
        """Return why a task waits for a worker; empty if it does not."""
        pool, system = self._pool, self._system
        owner = record.submitted.owner
        kept_out = owner in system.unattended and record in system.deferred.get(
            owner, ()
        )
        runs = record.state is State.RUNNING and pool.worker_of(record.id) is None
        if not (kept_out or runs):
            return ""
        workers, waits = pool.of_user(owner), ", and waits for a worker"
        if workers.launcher is None:
            return f"{waits}: its owner's launcher is not there; a submit starts it"
        if workers.hung:
            pid = workers.hung_launcher
            return f"{waits}: its owner's launcher, process {pid}, hangs; a submit replaces it"
        return waits


class EstimateRequests:
    """Handles requests to estimate a task that is not submitted."""

    def __init__(
        self,
        scheduler: Scheduler,
        prospects: ProspectMessages,
        submission: SubmitRequests,
    ) -> None:
        self._scheduler = scheduler
        self._prospects = prospects
        self._submission = submission

    def estimate(self, peer: Peer, request: m.Estimate) -> m.Estimated:
        system = self._scheduler.system
        described = self._submission.draft(peer, request.spec)
        record = self._scheduler.state.draft(described)
        return m.Estimated(
            request.request,
            policy_name(self._scheduler),
            system.objective,
            self._prospects.of(record, estimate(system, record)),
        )


class ProspectMessages:
    """Writes prospects as messages, with how sure they are and why a resource is lost."""

    def __init__(
        self, system: System, estimates: EstimateTable, health: Health
    ) -> None:
        self._system = system
        self._estimates = estimates
        self._health = health

    def of(self, record: TaskRecord, prospects: Iterable[Prospect]) -> list[m.Prospect]:
        """Return the messages for the prospects of a task."""
        return [self._prospect(record, each) for each in prospects]

    def _prospect(self, record: TaskRecord, each: Prospect) -> m.Prospect:
        resource = self._system.resources[each.resource]
        possible = not each.note
        return m.Prospect(
            each.resource,
            each.affinity,
            each.remaining if possible else None,
            each.spread if possible else None,
            each.ahead,
            each.wait if possible else None,
            each.moving,
            each.finish if possible else None,
            self._estimates.confidence(record.row, resource) if possible else None,
            self._note(each),
        )

    def _note(self, each: Prospect) -> str:
        """Return why a task cannot run on a resource, with the reason of a lost resource."""
        reason = self._health.reason(each.resource)
        lost = each.note == RESOURCE_LOST and reason
        return f"{each.note}: {reason}" if lost else each.note
