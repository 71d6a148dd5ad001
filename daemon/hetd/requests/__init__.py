"""What users ask; one desk for each subject, one method a request.

Every answer that depends on a change is sent after its commit. A refused request
changes nothing and gets one line that says why. A request about many tasks is carried
out bit by bit (`slices`): what is left of it is returned in the place of the reply.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from hetd.requests.ended_tasks import EndedTaskRequests
from hetd.requests.idempotency import IdempotencyKeys
from hetd.requests.listing import ListRequests
from hetd.requests.models import ModelRequests
from hetd.requests.permissions import Permissions
from hetd.requests.resources import NodeRequests
from hetd.requests.slices import Steps, run_to_end
from hetd.requests.status import StatusRequests
from hetd.requests.storage_quota import StorageQuota
from hetd.requests.submit import SubmitRequests
from hetd.requests.tasks import TaskRequests
from hetd.requests.usage import UsageRequests
from hetd.store import StoreFullError
from libtask import messages as m
from libtask.errors import BugError, DaemonUnreachableError, HetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.runtime import Runtime
    from hetd.store import Store
    from hetd.transport.router import Peer


class Service:
    """Answers users' requests.

    Args:
        stop: called when a user who may asks the daemon to stop.
        watchers: counts the connections that watch tasks.

    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        stop: Callable[[], None],
        watchers: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self.storage_quota = StorageQuota(runtime, store)
        self.rights = Permissions(runtime)
        self._idempotency = IdempotencyKeys(runtime, store)
        self.forget = self._idempotency.forget
        self._store = store
        tasks = TaskRequests(runtime, self.rights)
        submission = SubmitRequests(runtime, self.rights, self.storage_quota)
        past = EndedTaskRequests(runtime, self.rights, submission)
        status = StatusRequests(runtime, store, self.rights, watchers)
        models = ModelRequests(runtime, self.rights)
        whole = NodeRequests(runtime, store, self.rights, stop)
        self._handlers: dict[type, Callable[[Peer, Any], Any]] = {
            m.Submit: submission.submit,
            m.Requeue: past.requeue,
            m.DeleteTasks: past.forget,
            m.ListTasks: ListRequests(runtime, self.rights).list_tasks,
            m.Explain: tasks.explain,
            m.Control: tasks.control,
            m.Amend: tasks.amend,
            m.Migrate: tasks.migrate,
            m.Devices: whole.devices,
            m.Status: status.status,
            m.ShowConfig: status.config,
            m.Drain: whole.occupy,
            m.TestDevices: whole.test,
            m.Policies: whole.policies,
            m.Notes: whole.notes,
            m.Stop: whole.stop,
            m.AddSamples: models.learn,
            m.Models: models.models,
            m.DeleteSamples: models.forget,
            m.Usage: UsageRequests(runtime, self.rights).usage,
        }

    def answer(self, peer: Peer, request: m.Request) -> m.Request:
        """Do what is asked, all at once; return the reply, or the error in its place."""
        made = self.begin(peer, request)
        return run_to_end(made) if isinstance(made, Generator) else made

    def begin(self, peer: Peer, request: m.Request) -> m.Request | Steps:
        """Begin with what is asked.

        Returns:
            The reply, or the error in its place; or what is left to do.

        """
        try:
            if isinstance(request, m.Change):
                self._demand_staying()
                known = self._idempotency.recall(peer.uid, request)
                if known is not None:
                    return known
                self._demand_room(request)
            made: m.Request | Steps = self._handlers[type(request)](peer, request)
            if isinstance(made, Generator):
                return self._carry_on(peer, request, made)
            self._remember(peer, request, made)
        except BugError:
            raise  # the loop sees whether the state is still whole
        except HetError as error:
            return m.Error(request.request, error.code, str(error))
        return made

    def _carry_on(self, peer: Peer, request: m.Request, work: Steps) -> Steps:
        """Do what is left of a request; what is refused is so before the first change."""
        try:
            reply = yield from work
            self._remember(peer, request, reply)
        except BugError:
            raise
        except HetError as error:
            return m.Error(request.request, error.code, str(error))
        return reply

    def _demand_staying(self) -> None:
        if self._runtime.stopping:
            raise DaemonUnreachableError("hetd is stopping; ask when it is back")

    def _demand_room(self, request: m.Change) -> None:
        if (
            isinstance(request, (m.Submit, m.Requeue))
            and self._store.shortage is not None
        ):
            raise StoreFullError(
                f"hetd's store has no room ({self._store.shortage}); nothing was "
                f"submitted; try again when there is"
            )

    def _remember(self, peer: Peer, request: m.Request, reply: m.Request) -> None:
        """Keep the answer to a change, to be given when it is asked for again."""
        if isinstance(request, m.Change):
            self._idempotency.remember(peer.uid, request, reply)
