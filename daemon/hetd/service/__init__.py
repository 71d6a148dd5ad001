"""What users ask; one desk for each subject, one method a request.

Every answer that depends on a change is sent after its commit. A refused request
changes nothing and gets one line that says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetd.service.models import ModelDesk
from hetd.service.once import Once
from hetd.service.permissions import Permissions
from hetd.service.resources import NodeDesk
from hetd.service.status import StatusDesk
from hetd.service.submission import SubmissionDesk
from hetd.service.tasks import TaskDesk
from hetd.store import StoreFullError
from libtask import messages as m
from libtask.errors import BugError, DaemonUnreachableError, HetError
from libtask.faultpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from hetd.node import Node
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
        node: Node,
        store: Store,
        stop: Callable[[], None],
        watchers: Callable[[], int],
    ) -> None:
        self._node = node
        self.rights = Permissions(node)
        self._once = Once(node, store)
        self.forget = self._once.forget
        self._store = store
        tasks = TaskDesk(node, self.rights)
        models = ModelDesk(node, self.rights)
        whole = NodeDesk(node, store, self.rights, stop)
        self._handlers: dict[type, Callable[[Peer, Any], Any]] = {
            m.Submit: SubmissionDesk(node, self.rights).submit,
            m.ListTasks: tasks.list_tasks,
            m.Explain: tasks.explain,
            m.Control: tasks.control,
            m.Amend: tasks.amend,
            m.Migrate: tasks.migrate,
            m.Devices: whole.devices,
            m.Status: StatusDesk(node, store, watchers).status,
            m.Occupy: whole.occupy,
            m.Policies: whole.policies,
            m.Notes: whole.notes,
            m.Stop: whole.stop,
            m.Learn: models.learn,
            m.Models: models.models,
            m.Forget: models.forget,
        }

    def answer(self, peer: Peer, request: m.Request) -> m.Message:
        """Do what is asked; return the reply, or the error in its place."""
        try:
            if isinstance(request, m.Change):
                self._demand_staying()
                return self._change(peer, request)
            reply: m.Message = self._handlers[type(request)](peer, request)
        except BugError:
            raise  # the loop sees whether the state is still whole
        except HetError as error:
            reply = m.Error(request.request, error.code, str(error))
        return reply

    def _demand_staying(self) -> None:
        if self._node.stopping:
            raise DaemonUnreachableError("hetd is stopping; ask when it is back")

    def _change(self, peer: Peer, request: m.Change) -> m.Message:
        """Make a change, or tell how it was made when it was asked for before."""
        known = self._once.recall(peer.uid, request)
        if known is not None:
            return known
        if isinstance(request, m.Submit) and self._store.shortage is not None:
            raise StoreFullError(
                f"hetd's store has no room ({self._store.shortage}); nothing was "
                f"submitted; try again when there is"
            )
        reply: m.Request = self._handlers[type(request)](peer, request)
        self._once.remember(peer.uid, request, reply)
        reach("change.remembered")
        return reply
