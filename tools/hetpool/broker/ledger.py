"""The broker's ledger: which job is on which node, and which nodes there are.

Plain state that the broker changes and the planner reads; times are passed in. Everything
in it can be lost: nodes report what they have when they join, and clients what they want.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetpool.jobs import JobStatus, PlanEntry
from hetpool.messages import JobTerms, OpenJob, SnapshotFile
from hetpool.placing import Commitments, LinkUse, later, uses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hetpool.jobs import NodeSlot, PoolJob, PoolNode
    from hetpool.messages import Join

MOST_KNOWN = 100_000
"""Reported jobs that no client has claimed, jobs that were not started, jobs that nobody
waits for any longer, and jobs that ended before any hetd had them: of each at most."""
LEAST_SHARE = 0.1
"""A job that should have ended is expected to take this share of its time still."""


@dataclass(slots=True)
class PlacedJob:
    """A job on a node.

    Attributes:
        job: without its call.
        entry: of the plan that put it there; `planned_at`: when that was made, seconds.
        generation: see `JobTerms`.
        ended: its result waits for its client.
        cancelled: the reason of its cancellation; empty: none.
        snapshot: the newest one that another node has; `begins_with`: the one from which
            this generation starts.
        reported: its node has reported it, after a restart of the scheduler.
        saved_at: when `snapshot` was taken; `save_s`: how long that took.
        moving: it is on its way to another node.
        runs: its node has said that it computes, and where, which is in `entry` since.
        late_s: seconds after its planned end at which it was last found to be late.

    """

    job: PoolJob
    entry: PlanEntry
    planned_at: float
    generation: int = 0
    ended: bool = False
    cancelled: str = ""
    snapshot: SnapshotFile | None = None
    begins_with: SnapshotFile | None = None
    reported: bool = False
    saved_at: float = 0.0
    save_s: float = 1.0
    moving: bool = False
    runs: bool = False
    late_s: float = 0.0

    @property
    def node(self) -> str:
        return self.entry.node

    def left(self, now: float) -> float:
        """Return the seconds of computing that it is expected to need still.

        One that computes past its planned end is expected to take as long as it is late:
        its estimate was wrong, and by how much nobody knows. A cancelled one ends at its next
        checkpoint.
        """
        if self.cancelled:
            return 0.0
        whole = self.entry.finish - self.entry.start
        end = self.planned_at + self.entry.finish
        least = LEAST_SHARE * whole
        if self.runs and now > end:
            return max(least, now - end)
        return min(whole, max(least, end - now))


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that no node can run now; it travels alone, under its own id.

    Attributes:
        job: without its call.
        order: among all jobs.
        since: when it was entered, seconds.
        size: bytes that the broker and the engine keep of it.

    """

    job: PoolJob
    order: int
    since: float
    size: int

    @property
    def status(self) -> JobStatus:
        """Its state for listings."""
        return JobStatus(self.job.id, self.job.app, "waiting", order=self.order)


@dataclass(slots=True)
class Ledger:
    """Jobs, errands and nodes.

    Attributes:
        nodes: by name, absent ones too.
        lost_at: when a node that is absent was lost.
        placed: by job; `errands`: jobs by the key of their errand.
        waiting: jobs that no node can run now, by job.
        ends: of jobs that no hetd ever had, so that nobody else knows how they ended.
        known: reports of nodes about jobs that no client has claimed since the start.
        unstarted: jobs that were placed and that their client has not started in time; a
            client that was suspended starts them late.
        forgotten: jobs that nobody waits for any longer; a node that was lost may still have one.
        order: of the next job.

    """

    nodes: dict[str, PoolNode] = field(default_factory=dict)
    lost_at: dict[str, float] = field(default_factory=dict)
    placed: dict[str, PlacedJob] = field(default_factory=dict)
    errands: dict[str, list[str]] = field(default_factory=dict)
    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    ends: dict[str, JobStatus] = field(default_factory=dict)
    known: dict[str, tuple[str, int]] = field(default_factory=dict)
    unstarted: dict[str, PlacedJob] = field(default_factory=dict)
    forgotten: dict[str, None] = field(default_factory=dict)
    order: int = 0

    # ------------------------------------------------------------ nodes

    def join(self, join: Join) -> list[OpenJob]:
        """Enter a node and what it has; return the jobs that it has lost to others."""
        old = self.nodes.get(join.node.name)
        draining = old.draining if old is not None else join.node.draining
        measured = old.measured if old is not None else None
        self.nodes[join.node.name] = replace(
            join.node, draining=draining, present=True, measured=measured
        )
        self.lost_at.pop(join.node.name, None)
        lost = []
        for each in join.open:
            placed = self.placed.get(each.id)
            if self._is_over(each.id) and not each.ended:
                lost.append(each)
            elif placed is None:
                self._learn(each, join.node.name)
            elif (placed.node, placed.generation) != (join.node.name, each.generation):
                lost.append(each)
        return lost

    def _is_over(self, job: str) -> bool:
        """Return whether nobody wants a job any longer that a node may still have."""
        end = self.ends.get(job)
        return job in self.forgotten or (end is not None and end.state == "cancelled")

    def _learn(self, job: OpenJob, node: str) -> None:
        there = self.known.get(job.id)
        if there is None or there[1] < job.generation:
            self.known[job.id] = (node, job.generation)
        _shorten(self.known)

    def set_rate(self, name: str, rate: float | None) -> None:
        """Enter the rate that a node measured; without one, the last stays."""
        if rate is not None and name in self.nodes:
            self.nodes[name] = replace(self.nodes[name], measured=rate)

    def set_slots(self, name: str, slots: tuple[NodeSlot, ...]) -> None:
        """Enter which resources of a node are up."""
        if name in self.nodes:
            self.nodes[name] = replace(self.nodes[name], slots=slots)

    def offers(self, entry: PlanEntry) -> bool:
        """Return whether the resource of a plan's entry is up; an unknown one may be."""
        node = self.nodes.get(entry.node)
        if node is None or not node.present or not entry.resource:
            return True
        return any(slot.resource == entry.resource for slot in node.slots)

    def lose(self, name: str, now: float) -> None:
        """Mark a node as absent; it stays lost until it joins, even if it connects."""
        if name in self.nodes and self.nodes[name].present:
            self.nodes[name] = replace(self.nodes[name], present=False)
            self.lost_at[name] = now

    def present(self) -> dict[str, str]:
        """Return the nodes that are connected: name -> address."""
        return {name: each.address for name, each in self.nodes.items() if each.present}

    def addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Return where nodes listen that are present."""
        found = ((name, self.nodes.get(name)) for name in names)
        return {
            name: node.address
            for name, node in found
            if node is not None and node.present
        }

    # ------------------------------------------------------------ jobs

    def place(
        self, jobs: Iterable[PoolJob], entries: Iterable[PlanEntry], now: float
    ) -> None:
        """Enter new jobs at the places of a plan."""
        by_id = {job.id: job for job in jobs}
        for entry in entries:
            self.placed[entry.job] = PlacedJob(by_id[entry.job], entry, now)
            self.forgotten.pop(entry.job, None)
            self.unstarted.pop(entry.job, None)
            self.waiting.pop(entry.job, None)
            self.ends.pop(entry.job, None)
            self.errands.setdefault(entry.errand, []).append(entry.job)
            self.order = max(self.order, entry.order + 1)

    def adopt(self, job: PoolJob, now: float) -> bool:
        """Leave a job where a node has reported it; return whether one has."""
        there = self.known.pop(job.id, None)
        if there is None or job.id in self.placed:
            return False
        node, generation = there
        self.place([job], [PlanEntry(job.id, node, "", self.order, job.id)], now)
        self.placed[job.id].generation = generation
        self.placed[job.id].reported = True
        return True

    def place_again(self, entry: PlanEntry, now: float, generation: int) -> None:
        """Enter another place of a job, which stays in its errand."""
        placed = self.placed[entry.job]
        placed.entry = replace(entry, errand=placed.entry.errand)
        placed.planned_at = now
        placed.generation = max(placed.generation + 1, generation)
        placed.begins_with = placed.snapshot
        placed.reported = False
        placed.moving = False
        placed.runs = False
        placed.late_s = 0.0
        self.order = max(self.order, entry.order + 1)

    def learn(self, status: JobStatus) -> None:
        """Enter where a job computes, as its node says: hetd may choose another resource."""
        placed = self.placed.get(status.id)
        if placed is None or status.state != "running" or placed.node != status.node:
            return
        placed.runs = True
        if status.resource:
            placed.entry = replace(placed.entry, resource=status.resource)

    def begin_again(self, job: OpenJob, node: str, now: float) -> None:
        """Enter another attempt at a job where it is, if that node has given this one up."""
        placed = self.placed.get(job.id)
        if placed is None or placed.moving or placed.ended:
            return
        if (placed.node, placed.generation) == (node, job.generation):
            self.place_again(placed.entry, now, 0)

    def wait(self, job: PoolJob, size: int, now: float) -> None:
        """Enter a new job that no node can run now; `size`: bytes that are kept of it."""
        self.waiting[job.id] = WaitingJob(job, self.order, now, size)
        self.ends.pop(job.id, None)
        self.forgotten.pop(job.id, None)
        self.order += 1

    def wait_last(self, job: str) -> None:
        """Have the other waiting jobs planned before this one."""
        self.waiting[job] = self.waiting.pop(job)

    def cancel_waiting(self, job: str, reason: str, finished: float) -> None:
        """End a job that waits; `finished`: seconds since the epoch."""
        status = self.waiting.pop(job).status
        self._keep_end(
            replace(status, state="cancelled", reason=reason, finished=finished)
        )

    def end(self, status: JobStatus) -> None:
        """Enter how a job ended that its node's hetd never had."""
        placed = self.placed.get(status.id)
        if placed is not None and placed.node == status.node:
            self._keep_end(replace(status, order=placed.entry.order))

    def _keep_end(self, status: JobStatus) -> None:
        self.ends[status.id] = status
        _shorten(self.ends)

    def set_aside(self, errand: str) -> None:
        """Make room for others where an errand was placed that its client has not started."""
        for job in self.errands.pop(errand, ()):
            self.unstarted[job] = self.placed.pop(job)
        _shorten(self.unstarted)

    def recall(self, job: str, node: str, now: float) -> None:
        """Enter a job again that was set aside, if its node has it by now."""
        placed = self.unstarted.get(job)
        if placed is None or placed.node != node:
            return
        self.placed[job] = self.unstarted.pop(job)
        placed.planned_at = now
        self.errands.setdefault(placed.entry.errand, []).append(job)

    def expects(self, errand: str) -> bool:
        """Return whether an errand is placed, or waits."""
        return (
            errand in self.errands or errand in self.waiting or errand in self.unstarted
        )

    def begin(self, job: str, node: str) -> None:
        """Drop the end of a job whose node begins it again: its errand had not ended."""
        placed = self.placed.get(job)
        if placed is not None and placed.node == node:
            self.ends.pop(job, None)

    def forget(self, errand: str) -> None:
        """Remove the jobs of an errand that nobody waits for any longer."""
        for job in self.errands.pop(errand, ()):
            self.placed.pop(job, None)
            self.forgotten[job] = None
        _shorten(self.forgotten)

    def set_ended(self, errand: str, *, ended: bool) -> None:
        for job in self.errands.get(errand, ()):
            self.placed[job].ended = ended

    def on(self, node: str) -> list[PlacedJob]:
        """List the unfinished jobs of a node."""
        return [each for each in self.unfinished() if each.node == node]

    def unfinished(self) -> Iterator[PlacedJob]:
        return (each for each in self.placed.values() if not each.ended)

    def terms(self, job: str, node: str, cap: float | None = None) -> JobTerms:
        """Return how a node may run a job now."""
        placed = self.placed.get(job)
        if placed is None or placed.node != node or placed.moving:
            elsewhere = placed is not None and placed.node != node
            return JobTerms(job, owned=False, elsewhere=elsewhere)
        names = [name for file in placed.job.inputs for name in file.sources]
        if placed.begins_with is not None:
            names.append(placed.begins_with.node)
        return JobTerms(
            job,
            generation=placed.generation,
            order=placed.entry.order,
            cap=cap,
            sources=self.addresses(names),
            snapshot=placed.begins_with,
            reported=placed.reported,
            cancelled=placed.cancelled,
        )

    def commitments(self, now: float, without: Sequence[str] = ()) -> Commitments:
        """Return what the unfinished jobs hold, but for some."""
        left_out = set(without)
        busy: dict[tuple[str, str], list[float]] = {}
        uses: list[LinkUse] = []
        for each in sorted(self.unfinished(), key=lambda one: one.entry.order):
            if each.job.id in left_out:
                continue
            place = (each.node, each.entry.resource)
            busy.setdefault(place, []).append(each.left(now))
            held = uses_of([each.entry], {each.job.id: each.job})
            uses += later(held, now - each.planned_at)
        return Commitments(busy, tuple(uses))


def _shorten(kept: dict[str, Any]) -> None:
    """Remove the oldest entries above `MOST_KNOWN`."""
    while len(kept) > MOST_KNOWN:
        del kept[next(iter(kept))]
