"""Steering: what a client changes of tasks, resources, the policy and the estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from libtask import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from libtask.client.session import Session
    from libtask.messages import Note, PolicyInfo, Sample, StatusInfo


class Steering:
    """The requests that change something; `Client` has them."""

    _session: Session

    def cancel(self, *ids: int) -> list[int]:
        """Cancel tasks; a running one ends at its next checkpoint."""
        return self._control("cancel", ids)

    def hold(self, *ids: int) -> list[int]:
        """Keep waiting tasks from starting."""
        return self._control("hold", ids)

    def release(self, *ids: int) -> list[int]:
        """Let held tasks start."""
        return self._control("release", ids)

    def snapshot(self, *ids: int) -> list[int]:
        """Have tasks write a snapshot, each at its next checkpoint; does not wait."""
        return self._control("snapshot", ids)

    def _control(
        self, verb: Literal["cancel", "hold", "release", "snapshot"], ids: Sequence[int]
    ) -> list[int]:
        message = messages.Control(request=0, verb=verb, ids=list(ids))
        done: list[int] = self._session.request(message).ids
        return done

    def amend(
        self,
        *ids: int,
        priority: int | None = None,
        deadline_s: float | None = None,
        no_deadline: bool = False,
    ) -> list[int]:
        """Change the priority or the deadline of tasks; return those that had not ended.

        Args:
            ids: the tasks.
            priority: higher runs first within a queue; None: as it was.
            deadline_s: seconds from now; None: as it was.
            no_deadline: they have none any more.

        """
        message = messages.Amend(
            request=0,
            ids=list(ids),
            priority=priority,
            deadline_s=deadline_s,
            no_deadline=no_deadline,
        )
        done: list[int] = self._session.request(message).ids
        return done

    def migrate(self, task_id: int, resource: str) -> None:
        """Move a task to a resource, at its next checkpoint where it runs."""
        self._session.request(
            messages.Migrate(request=0, id=task_id, resource=resource)
        )

    def drain(self, resource: str) -> None:
        """Keep a resource free of tasks, over restarts too.

        Tasks that run there leave at their next checkpoint.
        """
        self._session.request(messages.Occupy(request=0, resource=resource, drain=True))

    def resume(self, resource: str) -> None:
        """Give a drained resource back to the scheduler."""
        self._session.request(
            messages.Occupy(request=0, resource=resource, drain=False)
        )

    def status(self) -> StatusInfo:
        """Return how the daemon is, and what it has done since its start."""
        info: StatusInfo = self._session.request(messages.Status(request=0))
        return info

    def policy(self, name: str | None = None, **parameters: Any) -> PolicyInfo:
        """Return the policy in force; with a name, set it first, over restarts too."""
        message = messages.Policies(request=0, set=name, parameters=parameters)
        info: PolicyInfo = self._session.request(message)
        return info

    def configured_policy(self) -> PolicyInfo:
        """Go back to the policy of the configuration; return it."""
        message = messages.Policies(request=0, configured=True)
        info: PolicyInfo = self._session.request(message)
        return info

    def notes(self, since: float = 0.0, limit: int = 1000) -> list[Note]:
        """Return what happened to the node as a whole, oldest first.

        Args:
            since: seconds since the epoch.
            limit: at most so many, the newest.

        """
        message = messages.Notes(request=0, since=since, limit=limit)
        found: list[Note] = self._session.request(message).notes
        return found

    def learn(self, samples: Sequence[Sample]) -> None:
        """Store measured execution times."""
        self._session.request(messages.Learn(request=0, samples=list(samples)))

    def models(self) -> list[Sample]:
        """Return the execution times that the daemon expects."""
        samples: list[Sample] = self._session.request(
            messages.Models(request=0)
        ).samples
        return samples

    def forget(
        self, names: Sequence[str] = (), resources: Sequence[str] = ()
    ) -> list[Sample]:
        """Forget measured execution times; return those that are gone.

        Args:
            names: applications or types; none: all.
            resources: only what was measured there; none: everywhere.

        """
        message = messages.Forget(
            request=0, names=list(names), resources=list(resources)
        )
        gone: list[Sample] = self._session.request(message).samples
        return gone

    def stop(self) -> None:
        """Ask the daemon to end; tasks stay with their launchers."""
        self._session.farewell(messages.Stop(request=0))
