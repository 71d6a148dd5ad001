"""Control: a client's requests for tasks, resources, the policy and the estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from libtask import messages
from libtask.messages import MAX_IDS, MAX_PARKED, MAX_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from libtask.client.session import Session
    from libtask.messages import (
        AvoidedPair,
        ConfigInfo,
        DeletedSamples,
        LearnedLoad,
        ModelList,
        Note,
        ParkedTask,
        PolicyInfo,
        Renewed,
        Sample,
        SamplePlace,
        StatusInfo,
        UsageInfo,
    )

PARK_S = 300.0
"""Seconds to wait for snapshots: a strip may take a minute, and large states are written."""


class ControlRequests:
    """The control requests of `Client`."""

    _session: Session

    def cancel(self, *ids: int, reason: str = "") -> list[int]:
        """Cancel tasks; a running one ends at its next checkpoint.

        Args:
            ids: the tasks.
            reason: the reason, which is stored with the tasks.

        """
        return self._control("cancel", ids, reason=reason)

    def hold(self, *ids: int, requeue: bool = False) -> list[int]:
        """Hold waiting tasks, and preempt running ones and hold them.

        A command that cannot save its state is suspended and keeps its resource; with
        `requeue` it also leaves, and restarts after its release.
        """
        return self._control("hold", ids, requeue=requeue)

    def release(self, *ids: int) -> list[int]:
        """Let held tasks start."""
        return self._control("release", ids)

    def renew(self, lease: str = "") -> Renewed:
        """Renew a lease of tasks that were submitted with `lease_s`.

        Call it a few times in each period. Tasks that hetd held because it was not renewed
        in time are released.
        """
        done: Renewed = self._session.request(messages.Renew(request=0, lease=lease))
        return done

    def snapshot(self, *ids: int) -> list[int]:
        """Request a snapshot of each task at its next checkpoint; does not wait."""
        return self._control("snapshot", ids)

    def park(self, *ids: int, timeout: float = PARK_S) -> list[ParkedTask]:
        """Hold tasks with their progress on disk; wait for their snapshots.

        A running task stops at its next checkpoint. A task that has not begun is held
        without a file. One that cannot be saved is held, and `ParkedTask.error` says why.

        Args:
            ids: the tasks.
            timeout: seconds to wait; the tasks stay held if it passes.

        Raises:
            InputError: one of them is a command, which has no snapshots; nothing was
                changed.

        """
        parked: list[ParkedTask] = []
        for some in _pages(ids, MAX_PARKED):
            message = messages.Control(request=0, verb="park", ids=some)
            parked += self._session.request(message, timeout=timeout).tasks
        return parked

    def signal(self, number: int, *ids: int) -> list[int]:
        """Send a signal to running commands."""
        return self._control("signal", ids, signal=number)

    def _control(
        self,
        verb: Literal["cancel", "hold", "release", "snapshot", "signal"],
        ids: Sequence[int],
        *,
        requeue: bool = False,
        signal: int = 0,
        reason: str = "",
    ) -> list[int]:
        done: list[int] = []
        for some in _pages(ids, MAX_IDS):
            message = messages.Control(
                request=0,
                verb=verb,
                ids=some,
                requeue=requeue,
                signal=signal,
                reason=reason,
            )
            done += self._session.request(message).ids
        return done

    def forget_tasks(self, *ids: int) -> list[int]:
        """Remove ended tasks from history; return the removed ones."""
        gone: list[int] = []
        for some in _pages(ids, MAX_IDS):
            message = messages.DeleteTasks(request=0, ids=some)
            gone += self._session.request(message).ids
        return gone

    def amend(
        self,
        *ids: int,
        priority: int | None = None,
        deadline_s: float | None = None,
        no_deadline: bool = False,
    ) -> list[int]:
        """Change the priority or the deadline of tasks; return the unfinished ones.

        Args:
            ids: the tasks.
            priority: higher runs first within a queue; None: unchanged.
            deadline_s: seconds from now; None: unchanged.
            no_deadline: remove the deadlines.

        """
        done: list[int] = []
        for some in _pages(ids, MAX_IDS):
            message = messages.Amend(
                request=0,
                ids=some,
                priority=priority,
                deadline_s=deadline_s,
                no_deadline=no_deadline,
            )
            done += self._session.request(message).ids
        return done

    def migrate(self, task_id: int, resource: str) -> None:
        """Move a task to a resource, at its next checkpoint if it runs."""
        self._session.request(
            messages.Migrate(request=0, id=task_id, resource=resource)
        )

    def test_devices(self, *resources: str) -> None:
        """Start the self-test of resources; does not wait.

        Args:
            resources: their names; none: all resources with an OpenCL driver.

        """
        message = messages.TestDevices(request=0, resources=list(resources))
        self._session.request(message)

    def drain(self, resource: str) -> None:
        """Drain a resource, also over restarts.

        Tasks that run there leave at their next checkpoint.
        """
        self._session.request(messages.Drain(request=0, resource=resource, on=True))

    def resume(self, resource: str) -> None:
        """Put a drained resource back into service."""
        self._session.request(messages.Drain(request=0, resource=resource, on=False))

    def status(self) -> StatusInfo:
        """Return the daemon's state and its counters since the start."""
        info: StatusInfo = self._session.request(messages.Status(request=0))
        return info

    def config(self) -> ConfigInfo:
        """Return the daemon's configuration with the source of each value."""
        info: ConfigInfo = self._session.request(messages.ShowConfig(request=0))
        return info

    def policy(self, name: str | None = None, **parameters: Any) -> PolicyInfo:
        """Return the current policy; with a name, set it first, also over restarts."""
        message = messages.Policies(request=0, set=name, parameters=parameters)
        info: PolicyInfo = self._session.request(message)
        return info

    def configured_policy(self) -> PolicyInfo:
        """Return to the configured policy; return it."""
        message = messages.Policies(request=0, configured=True)
        info: PolicyInfo = self._session.request(message)
        return info

    def notes(self, since: float = 0.0, limit: int = 1000) -> list[Note]:
        """Return the events of the node as a whole, oldest first.

        Args:
            since: seconds since the epoch.
            limit: maximum number of events, the newest.

        """
        message = messages.Notes(request=0, since=since, limit=limit)
        found: list[Note] = self._session.request(message).notes
        return found

    def learn(
        self, samples: Sequence[Sample], loads: Sequence[LearnedLoad] = ()
    ) -> None:
        """Store measured execution times, and loads learned from runs beside others."""
        for some in _pages(samples, MAX_SAMPLES):
            self._session.request(messages.AddSamples(request=0, samples=some))
        for part in _pages(loads, LOADS) if loads else ():
            message = messages.AddSamples(request=0, samples=[], loads=part)
            self._session.request(message)

    def models(self) -> list[Sample]:
        """Return the measured execution times that are visible to the caller.

        These are the times of installed applications and of the caller's own.
        """
        return [each for page in self.model_pages() for each in page.samples]

    def model_pages(self) -> Iterator[ModelList]:
        """Iterate over the measured execution times page by page."""
        after: SamplePlace | None = None
        while True:
            message = messages.Models(request=0, after=after)
            page: ModelList = self._session.request(message)
            yield page
            after = page.next
            if after is None:
                return

    def usage(self, user: int | None = None) -> UsageInfo:
        """Return a user's storage in bytes, and the limits.

        Args:
            user: uid; None: the caller.

        """
        info: UsageInfo = self._session.request(messages.Usage(request=0, user=user))
        return info

    def learned_loads(self) -> list[LearnedLoad]:
        """Return the loads learned from runs beside others that are visible to the caller."""
        first: ModelList = next(self.model_pages())
        return first.loads

    def avoided(self) -> list[AvoidedPair]:
        """Return the applications that avoid a resource after failures there."""
        first: ModelList = next(self.model_pages())
        return first.avoided

    def forget(self, names: Sequence[str] = (), resources: Sequence[str] = ()) -> int:
        """Delete measured execution times, loads and failures; return the number of times.

        Args:
            names: applications or types; none: all.
            resources: only those on these resources; none: on all.

        """
        return self.forget_measured(names, resources).count

    def forget_measured(
        self, names: Sequence[str] = (), resources: Sequence[str] = ()
    ) -> DeletedSamples:
        """Delete as `forget` does; return how much was deleted, and the failures."""
        message = messages.DeleteSamples(
            request=0, names=list(names), resources=list(resources)
        )
        gone: DeletedSamples = self._session.request(message)
        return gone

    def stop(self) -> None:
        """Stop the daemon; tasks stay with their launchers."""
        self._session.farewell(messages.Stop(request=0))


LOADS = 64
"""Learned loads in a message, so that any of them fit."""

Item = TypeVar("Item")


def _pages(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Split items into pages for messages; no items make one empty page."""
    for start in range(0, max(len(items), 1), size):
        yield list(items[start : start + size])
