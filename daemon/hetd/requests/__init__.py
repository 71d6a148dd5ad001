"""Handle users' requests: one class for each subject, one method for each request.

The loop calls `Service`. An answer that depends on a change is sent after its commit. A
refused request changes nothing and gets one line with the reason. A request about many
tasks runs in steps (`slices`): its handler returns a generator instead of the reply.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from hetd.requests.slices import Steps, run_to_end
from hetd.store import StoreFullError
from libtask import messages as m
from libtask.errors import BugError, DaemonUnreachableError, HetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hetd.requests.idempotency import IdempotencyKeys
    from hetd.requests.parking import ParkRequests
    from hetd.requests.permissions import Permissions
    from hetd.requests.resources import ResourceRequests
    from hetd.requests.storage_quota import StorageQuota
    from hetd.runtime import Lifecycle
    from hetd.store import Store
    from hetd.transport.router import Peer

    Handler: TypeAlias = Callable[[Peer, Any], Any]
    """Handles the requests of a type: returns the reply, or the steps of a long request."""


class Service:
    """Answers users' requests.

    Args:
        parking: the requests that are answered later.
        resources: knows their states.
        handlers: by type of request.

    """

    def __init__(  # noqa: PLR0913, PLR0917  the parts that it uses
        self,
        lifecycle: Lifecycle,
        store: Store,
        rights: Permissions,
        storage_quota: StorageQuota,
        idempotency: IdempotencyKeys,
        parking: ParkRequests,
        resources: ResourceRequests,
        handlers: Mapping[type, Handler],
    ) -> None:
        self._lifecycle = lifecycle
        self._store = store
        self.rights = rights
        self.storage_quota = storage_quota
        self._idempotency = idempotency
        self._parking = parking
        self.resource_states = resources.states
        self.unanswered = parking.groups
        """Requests that wait for workers; see `late_answers`."""
        self.forget = idempotency.forget
        self._handlers: dict[type, Handler] = {**handlers, m.Stop: self._stop}

    def _stop(self, peer: Peer, request: m.Stop) -> m.Message:
        self.rights.require_admin(peer)
        self._lifecycle.stop_requested = True
        return m.Done(request.request)

    def answer(self, peer: Peer, request: m.Request) -> m.Request | None:
        """Carry out a request without interruption; return the reply or an `Error`.

        None: the reply follows, see `late_answers`.
        """
        made = self.begin(peer, request)
        return run_to_end(made) if isinstance(made, Generator) else made

    def late_answers(self) -> Iterator[tuple[Peer, m.Request, m.Request]]:
        """Yield requests that waited for workers, and their replies."""
        for peer, request, reply in self._parking.finished():
            self._remember(peer, request, reply)
            yield peer, request, reply

    def begin(self, peer: Peer, request: m.Request) -> m.Request | Steps:
        """Carry out a request, or its first part.

        Returns:
            The reply or an `Error`; for a long request, the generator of its steps.

        """
        try:
            if isinstance(request, m.Change):
                return self._change(peer, request)
            made: m.Request | Steps = self._handlers[type(request)](peer, request)
            if isinstance(made, Generator):
                return self._carry_on(peer, request, made)
        except BugError:
            raise  # the loop checks that the state is consistent
        except HetError as error:
            return m.Error(request.request, error.code, str(error))
        return made

    def _change(self, peer: Peer, request: m.Change) -> m.Request | Steps:
        """Make a change, unless it was made before; store the answer for repetitions."""
        if self._lifecycle.draining:
            raise DaemonUnreachableError(
                "hetd is stopping; retry when it has restarted"
            )
        known = self._idempotency.recall(peer.uid, request)
        if known is not None:
            return known
        if self._store.shortage is not None:
            self._require_space(request)
        made: m.Request | Steps = self._handlers[type(request)](peer, request)
        if isinstance(made, Generator):
            return self._carry_on(peer, request, made)
        self._idempotency.remember(peer.uid, request, made)
        return made

    def _carry_on(self, peer: Peer, request: m.Request, work: Steps) -> Steps:
        """Run the steps of a request; handlers raise errors before their first change."""
        try:
            reply = yield from work
            if reply is not None:
                self._remember(peer, request, reply)
        except BugError:
            raise
        except HetError as error:
            return m.Error(request.request, error.code, str(error))
        return reply

    def _remember(self, peer: Peer, request: m.Request, reply: m.Request) -> None:
        """Store the answer to a change; a repetition of the request gets the same one."""
        if isinstance(request, m.Change):
            self._idempotency.remember(peer.uid, request, reply)

    def _require_space(self, request: m.Change) -> None:
        if isinstance(request, (m.Submit, m.Requeue)):
            raise StoreFullError(
                f"no space left in hetd's store ({self._store.shortage}); nothing was "
                f"submitted; retry when there is space"
            )
