"""The broker: places the jobs of all clients on the nodes, beside the pool's scheduler.

It plans batches in a process of its own and pins errands to nodes; Dask carries them out.
What it knows is in `Ledger`, and can be lost: see there.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from hetpool import messages as m
from hetpool.broker.copying import Copier
from hetpool.broker.estimates import EstimateCache
from hetpool.broker.ledger import Ledger
from hetpool.broker.moving import Mover
from hetpool.broker.racks import WHOLE, batch_of
from hetpool.broker.replanning import Replanner
from hetpool.broker.waiting import WaitingJobs
from hetpool.inquiry import INQUIRE, Relay
from hetpool.jobs import CANCELLED, MAX_JOBS, JobStatus, PlanEntry, PoolPlan
from hetpool.messages import decode, encode
from hetpool.placing import gathered, obstacle, placing_of
from hetpool.seam import ErrandState
from libtask.errors import HetError, InputError, NotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from hetpool.broker.planning_process import PlanningProcess
    from hetpool.jobs import PoolJob
    from hetpool.seam import SchedulerEngine
    from hetpool.setup.settings import BrokerSettings

Kind = TypeVar("Kind")

UNSTARTED_S = 60.0
"""A placed job that its client has not started after this time counts no more."""
PARK_S = 600.0
"""Seconds for a node to save a job: a strip may take a minute, and states are large."""
LOOK_S = 1.0
"""Seconds between two looks at what is due."""
FIRST_WINDOW_S = 0.005
"""Seconds for which jobs are gathered if none came lately: clients that begin together are
planned together, and a single job does not wait for others that do not come."""

log = logging.getLogger("hetpool")


@dataclass(slots=True, eq=False)
class BatchRequest:
    """Jobs of one client that wait for the end of the window."""

    jobs: list[PoolJob]
    planner: str
    plan: asyncio.Future[PoolPlan] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Broker:
    """The broker of one pool; a `SchedulerAudience` of its engine.

    Args:
        engine: the scheduler's side of the engine.
        settings: see `BrokerSettings`.
        planning: plans batches.
        clock: monotonic seconds.

    """

    def __init__(
        self,
        engine: SchedulerEngine,
        settings: BrokerSettings,
        planning: PlanningProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger = Ledger()
        self.settings = settings
        self._engine = engine
        self._planning = planning
        self._clock = clock
        self._began = clock()
        self._estimates = EstimateCache(self._ask, clock)
        self._mover = Mover(self.ledger, engine, self._ask)
        self._copier = Copier(self.ledger, settings, self._ask, clock)
        self._replanner = Replanner(
            self.ledger, self._ask, self._planned, self._mover, clock
        )
        self._waiting = WaitingJobs(self.ledger, engine, self._planned, clock)
        self._requests: list[BatchRequest] = []
        self._window_closed_at = -math.inf
        """When the last window closed."""
        self._planning_now = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        for name, handler in self._handlers().items():
            engine.answer(name, handler)

    def _handlers(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        return {
            "place": self._on_place,
            "nodes": self._on_nodes,
            "jobs": self._on_jobs,
            "cancel": self._on_cancel,
            "move": self._on_move,
            "drain": self._on_drain,
            "join": self._on_join,
            "slots": self._on_slots,
            "claim": self._on_claim,
            "receive": self._on_receive,
            "ended": self._on_ended,
            INQUIRE: Relay(self._engine, self.ledger.present).answer,
        }

    # ------------------------------------------------------------ audience

    def node_went(self, name: str, address: str) -> None:
        node = self.ledger.nodes.get(name)
        if node is not None and node.address == address:
            log.warning("node %s is lost", name)
            self.ledger.lose(name, self._clock())

    def errand_changed(self, key: str, state: ErrandState) -> None:
        if key not in self.ledger.errands:
            self._waiting.errand_changed(key, state)
            return
        if state is ErrandState.FORGOTTEN:
            self.ledger.forget(key)
            return
        if state is ErrandState.ENDED:
            for job in self.ledger.errands[key]:
                placed = self.ledger.placed[job]
                self._replanner.ended(placed, self.settings.deviation)
        self.ledger.set_ended(key, ended=state is ErrandState.ENDED)

    async def watch(self, stop: asyncio.Event) -> None:
        """Do what is due at a time, until `stop` is set."""
        while not stop.is_set():
            try:
                await self.look()
            except Exception:  # one node's or job's trouble must not end the watch
                log.exception("broker")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Place the jobs of lost nodes and those that wait; set aside what no client started."""
        now = self._clock()
        for name, since in list(self.ledger.lost_at.items()):
            if now - since >= self.settings.replace_s:
                await self._replace(name)
        for key, jobs in list(self.ledger.errands.items()):
            placed = self.ledger.placed[jobs[0]]
            old = now - placed.planned_at > UNSTARTED_S
            if old and not self._engine.knows(key):
                self.ledger.set_aside(key)
        self._waiting.drop_unstarted(now - UNSTARTED_S)
        await self._cancel_again()
        for placed in list(self._copier.due()):
            self._spawn(self._copier.copy(placed))
        self._replanner.find_overdue(self.settings.deviation)
        async with self._planning_now:
            if await self._waiting.look(self.settings.planner):
                self._replanner.set_due()
            await self._replanner.look(self.settings.planner)

    async def _cancel_again(self) -> None:
        """Repeat cancellations: one that met a job on its way to its node had no effect."""
        alike: dict[tuple[str, str], list[str]] = {}
        for each in self.ledger.unfinished():
            if each.cancelled:
                alike.setdefault((each.node, each.cancelled), []).append(each.job.id)
        for (node, reason), ids in alike.items():
            order = m.CancelJobs(tuple(ids), reason)
            with suppress(HetError, OSError):
                await self._ask(node, "cancel", order, m.NameList)

    # ------------------------------------------------------------ placing

    async def _on_place(self, content: bytes) -> bytes:
        wanted = decode(m.PlaceJobs, content)
        planner = wanted.planner or self.settings.planner
        if wanted.only_plan:
            plan = await self._planned(list(wanted.jobs), planner)
            there = {entry.job for entry in plan.entries}
            return encode(
                self._noted(plan, [job for job in wanted.jobs if job.id not in there])
            )
        self._adopt(wanted)
        fresh = [job for job in wanted.jobs if self._is_fresh(job, wanted)]
        plan = PoolPlan(planner, ())
        if fresh:
            plan = await self._in_batch(BatchRequest(fresh, planner))
        entries = [
            self.ledger.placed[job.id].entry
            for job in wanted.jobs
            if job.id in self.ledger.placed
        ]
        left = [job for job in wanted.jobs if job.id in self.ledger.waiting]
        waiting = {job.id: self.ledger.waiting[job.id].order for job in left}
        mine = replace(plan, entries=tuple(entries), waiting=waiting)
        return encode(self._noted(mine, left))

    def _noted(self, plan: PoolPlan, left: Sequence[PoolJob]) -> PoolPlan:
        """Return a plan that says how many jobs of a client wait, and why the first one does."""
        if not left:
            return plan
        one = len(left) == 1
        text = "1 job waits" if one else f"{len(left)} jobs wait"
        why = obstacle(left[0], self.ledger.nodes.values())
        if not why:
            why = f"no node that is present can run {'it' if one else 'them'}"
        return replace(plan, notes=(*plan.notes, f"{text}: {why}"))

    def _adopt(self, wanted: m.PlaceJobs) -> None:
        """Leave jobs where nodes have reported them; one that waits follows at the next look."""
        for job in wanted.jobs:
            if job.id not in self.ledger.waiting:
                self.ledger.adopt(job, self._clock())

    def _is_fresh(self, job: PoolJob, wanted: m.PlaceJobs) -> bool:
        """Return whether a job is to be placed; one that a node may have waits for it.

        After a restart of the scheduler, nodes report what they have when they are back;
        a job that no node has reported in time is placed as if it were new.
        """
        if job.id in self.ledger.placed or job.id in self.ledger.waiting:
            return False
        young = self._clock() - self._began < self.settings.replace_s
        return not (young and job.id in wanted.started)

    async def _in_batch(self, request: BatchRequest) -> PoolPlan:
        """Plan together with what arrives within the window, which is short at first."""
        self._requests.append(request)
        if len(self._requests) == 1:
            self._spawn(self._close_window())
        return await request.plan

    async def _close_window(self) -> None:
        window = self.settings.window_s
        left = self._window_closed_at + window - self._clock()
        await asyncio.sleep(max(left, min(FIRST_WINDOW_S, window)))
        self._window_closed_at = self._clock()
        requests, self._requests = self._requests, []
        by_planner: dict[str, list[BatchRequest]] = {}
        for each in requests:
            by_planner.setdefault(each.planner, []).append(each)
        for planner, some in by_planner.items():
            await self._place_together(planner, some)

    async def _place_together(self, planner: str, requests: list[BatchRequest]) -> None:
        try:
            async with self._planning_now:
                await self._plan_and_enter(planner, requests)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for each in requests:
                if not each.plan.done():
                    each.plan.set_exception(_fit_for_clients(error))

    async def _plan_and_enter(self, planner: str, requests: list[BatchRequest]) -> None:
        """Plan the jobs of several clients as one and enter the plan in the ledger."""
        # two clients may send one job: it is placed once
        jobs = {job.id: job for request in requests for job in request.jobs}
        there = self.ledger.placed.keys() | self.ledger.waiting.keys()
        new = {job: each for job, each in jobs.items() if job not in there}
        plan = await self._planned(list(new.values()), planner)
        entries = {entry.job: entry for entry in plan.entries}
        for request in requests:
            mine = [job for job in request.jobs if new.pop(job.id, None) is not None]
            try:
                self._waiting.enter([job for job in mine if job.id not in entries])
            except NotAllowedError as error:  # it concerns no other client
                request.plan.set_exception(error)
                continue
            self._enter(mine, [entries[job.id] for job in mine if job.id in entries])
            request.plan.set_result(plan)
        self._replanner.set_due()

    def _enter(self, jobs: list[PoolJob], entries: list[PlanEntry]) -> None:
        """Enter what one client starts; short jobs of it travel together."""
        grouped = gathered(entries, self.settings.group_s, self.settings.group_size)
        named = [replace(each, errand=some[0].job) for some in grouped for each in some]
        self.ledger.place(jobs, named, self._clock())

    async def _planned(self, jobs: Sequence[PoolJob], planner: str) -> PoolPlan:
        """Plan jobs beside all that is placed already."""
        nodes = list(self.ledger.nodes.values())
        estimates = await self._estimates.of(jobs, nodes)
        held = self.ledger.commitments(self._clock(), [job.id for job in jobs])
        share, order = self.settings.share, self.ledger.order
        if sum(node.present and bool(node.slots) for node in nodes) > WHOLE:
            batch = batch_of(jobs, nodes, estimates, held, share)
            plan = await self._planning.plan_racks(batch, planner, order)
        else:
            placing, _ = placing_of(jobs, nodes, estimates, held, share)
            plan = PoolPlan(planner, ())
            if placing is not None:
                plan = await self._planning.plan(placing, planner, order)
        return plan

    # ------------------------------------------------------------ losses

    async def _replace(self, name: str) -> None:
        """Place the unfinished jobs of a lost node elsewhere."""
        lost = {each.entry.errand: each for each in self.ledger.on(name)}
        if not lost:
            return
        async with self._planning_now:
            jobs = [each.job for each in lost.values()]
            plan = await self._planned(jobs, self.settings.planner)
            if name not in self.ledger.lost_at:
                return  # it came back while the plan was made
            if plan.entries:
                log.warning("%d errands of %s go to others", len(plan.entries), name)
            for entry in plan.entries:
                self._mover.settle(entry, self._clock())

    # ------------------------------------------------------------ nodes

    async def _on_join(self, content: bytes) -> bytes:
        join = decode(m.Join, content)
        there = self.ledger.nodes.get(join.node.name)
        if there is not None and there.present and there.address != join.node.address:
            raise InputError(
                f"node {join.node.name!r} is at {there.address} already: names are unique"
            )
        lost = self.ledger.join(join)
        self._replanner.set_due()
        self._waiting.set_due()
        log.info("node %s joined with %d jobs", join.node.name, len(join.open))
        return encode(
            m.NameList(tuple(f"{each.id}.{each.generation}" for each in lost))
        )

    async def _on_slots(self, content: bytes) -> bytes:
        change = decode(m.ChangeSlots, content)
        self.ledger.set_slots(change.node, change.slots)
        self._replanner.set_due(at_once=True)
        self._waiting.set_due()
        up = ", ".join(dict.fromkeys(slot.resource for slot in change.slots))
        log.warning("node %s has now %s", change.node, up or "nothing")
        return encode(m.NameList((change.node,)))

    async def _on_claim(self, content: bytes) -> bytes:
        claim = decode(m.ClaimJobs, content)
        self.ledger.set_rate(claim.node, claim.rate)
        for job in claim.given_up:
            self.ledger.begin_again(job, claim.node, self._clock())
        for name in claim.ids:
            self.ledger.recall(name, claim.node, self._clock())
            self.ledger.begin(name, claim.node)
        node = self.ledger.nodes.get(claim.node)
        # a measured rate is not a cap: what a cap holds back is never measured
        rate = node.ingress if node is not None else None
        cap = rate * self.settings.share if rate is not None else None
        terms = tuple(self.ledger.terms(job, claim.node, cap) for job in claim.ids)
        return encode(m.Claimed(terms))

    async def _on_nodes(self, content: bytes) -> bytes:
        decode(m.ListNodes, content)
        return encode(m.NodeList(tuple(self.ledger.nodes.values())))

    async def _on_drain(self, content: bytes) -> bytes:
        wanted = decode(m.DrainNode, content)
        node = self._node(wanted.node)
        self.ledger.nodes[node.name] = replace(node, draining=wanted.on)
        self._waiting.set_due()
        with suppress(HetError, OSError):  # it says so again to the next scheduler
            await self._ask(node.name, "drain", wanted, m.NameList)
        if wanted.on:
            self._spawn(self._emptied(node.name))
        return encode(m.NameList((node.name,)))

    async def _emptied(self, name: str) -> None:
        """Move all jobs of a draining node to others, where others can run them."""
        jobs = [each.job for each in self.ledger.on(name)]
        plan = await self._planned(jobs, self.settings.planner)
        moves = [self._mover.move(each.job, each) for each in plan.entries]
        for error in await asyncio.gather(*moves, return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("drain %s: %s", name, error)

    # ------------------------------------------------------------ jobs

    async def _on_jobs(self, content: bytes) -> bytes:
        wanted = decode(m.ListJobs, content)
        placed, ends = self.ledger.placed, self.ledger.ends
        chosen = [each for each in self.ledger.unfinished() if each.job.id not in ends]
        if wanted.ids:
            ids = [job for job in dict.fromkeys(wanted.ids) if job not in ends]
            chosen = [placed[job] for job in ids if job in placed]
        found = {
            each.job.id: JobStatus(each.job.id, each.job.app, "placed", each.node)
            for each in chosen
        }
        by_node: dict[str, list[str]] = {}
        for each in chosen:
            by_node.setdefault(each.node, []).append(each.job.id)
        asked = [self._listed(name, ids) for name, ids in by_node.items()]
        for statuses in await asyncio.gather(*asked):
            found |= {status.id: status for status in statuses}
        orders = {each.job.id: each.entry.order for each in chosen}
        listed = [replace(each, order=orders[job]) for job, each in found.items()]
        waiting = self._waiting.statuses(wanted.ids)
        return encode(m.JobList((*listed, *waiting, *self._ends(wanted))))

    def _ends(self, wanted: m.ListJobs) -> list[JobStatus]:
        """List the ended jobs that no hetd had, of the named ones or the newest of all."""
        ends = self.ledger.ends
        if wanted.ids:
            return [ends[job] for job in dict.fromkeys(wanted.ids) if job in ends]
        return list(islice(reversed(ends.values()), MAX_JOBS if wanted.ended else 0))

    async def _on_ended(self, content: bytes) -> bytes:
        status = decode(m.EndedJob, content).status
        self.ledger.end(status)
        return encode(m.NameList((status.id,)))

    async def _listed(self, node: str, ids: list[str]) -> Iterable[JobStatus]:
        try:
            listed = await self._ask(node, "list", m.ListJobs(tuple(ids)), m.JobList)
        except (HetError, OSError):
            return ()
        for each in listed.jobs:
            self.ledger.learn(each)
        return listed.jobs

    async def _on_cancel(self, content: bytes) -> bytes:
        wanted = decode(m.CancelJobs, content)
        begun: dict[str, list[str]] = {}
        for job in wanted.ids:
            if job in self.ledger.waiting:
                self._waiting.cancel(job, wanted.reason or CANCELLED)
            placed = self.ledger.placed.get(job)
            if placed is not None:
                placed.cancelled = wanted.reason or CANCELLED
                begun.setdefault(placed.node, []).append(job)
        told: set[str] = set()
        for node, ids in begun.items():
            order = m.CancelJobs(tuple(ids), wanted.reason)
            try:
                reply = await self._ask(node, "cancel", order, m.NameList)
            except (HetError, OSError) as error:
                log.warning("cancel on %s: %s", node, error)
            else:
                told |= set(reply.names)
        return encode(m.NameList(tuple(job for job in wanted.ids if job not in told)))

    async def _on_move(self, content: bytes) -> bytes:
        wanted = decode(m.MoveJob, content)
        node = self._node(wanted.node)
        if not node.present or not node.slots:
            raise InputError(f"node {node.name}: not connected, or it runs no jobs")
        waiting = self.ledger.waiting.get(wanted.id)
        if waiting is not None and self._engine.knows(wanted.id):
            entry = PlanEntry(wanted.id, node.name, "", self.ledger.order)
            self._waiting.begin(waiting.job, entry)
            return encode(m.NameList((wanted.id,)))
        placed = self.ledger.placed.get(wanted.id)
        if placed is None or placed.ended:
            raise NotFoundError(f"no unfinished job {wanted.id[:12]}")
        entry = replace(placed.entry, node=node.name, order=self.ledger.order)
        moved = await self._mover.move(wanted.id, entry)
        return encode(m.NameList((wanted.id,) if moved else ()))

    async def _on_receive(self, content: bytes) -> bytes:
        """Find a node on the client's machine that takes its file over."""
        wanted = decode(m.ReceiveFile, content)
        near = [
            node
            for node in self.ledger.nodes.values()
            if node.present and node.machine == wanted.machine
        ]
        reason = "no node or gateway runs there"
        for node in sorted(near, key=lambda each: len(each.slots)):
            try:
                reply = await self._ask(node.name, "receive", wanted, m.NameList)
            except (HetError, OSError) as error:
                reason = str(error)
            else:
                return encode(reply)
        raise InputError(f"machine {wanted.machine}: {reason}; start a gateway")

    # ------------------------------------------------------------ ways out

    def _node(self, name: str) -> Any:
        node = self.ledger.nodes.get(name)
        if node is None:
            known = ", ".join(sorted(self.ledger.nodes)) or "none"
            raise NotFoundError(f"no node {name!r}; there are: {known}")
        return node

    async def _ask(self, node: str, name: str, message: Any, kind: type[Kind]) -> Kind:
        """Send a message to the agent of a node that is present.

        Raises:
            NotFoundError: the node is not connected.

        """
        address = self.ledger.addresses([node]).get(node)
        if address is None:
            raise NotFoundError(f"node {node} is not connected")
        patience = PARK_S if name in ("park", "save") else self.settings.replace_s
        async with asyncio.timeout(patience):
            answer = await self._engine.ask(address, name, encode(message))
        return decode(kind, answer)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("broker: %s", task.exception())


def _fit_for_clients(error: Exception) -> Exception:
    """Return an error that a client can read: planners are not on every machine."""
    if isinstance(error, HetError):
        return error
    return InputError(f"the plan failed: {type(error).__name__}: {error}")
