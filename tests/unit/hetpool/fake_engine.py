"""A pool without processes: the broker with an engine that records, and scripted nodes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetpool import messages as m
from hetpool.broker.broker import Broker
from hetpool.broker.racks import planned_by_racks
from hetpool.jobs import JobStatus, NodeSlot, PoolJob, PoolNode, PoolPlan
from hetpool.messages import decode, encode
from hetpool.placing import planned
from hetpool.setup.settings import BrokerSettings
from libtask.errors import HetError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from hetpool.broker.racks import Batch
    from hetpool.placing import Placing
    from hetpool.seam import Answer

SETTINGS = BrokerSettings(window_s=0.0, group_s=0.0)


def a_job(number: int = 1, cpu: float = 10.0, **fields: Any) -> PoolJob:
    fields.setdefault("seconds", {"cpu": cpu})
    return PoolJob(id=f"{number:032x}", app="synthetic", **fields)


def a_node(name: str, cpus: int = 1, **fields: Any) -> PoolNode:
    slots = (NodeSlot("cpu", "cpu"),) * cpus
    return PoolNode(name, f"tls://{name}:9000", slots, **fields)


class DirectPlanning:
    """Plans in the test's own process."""

    async def plan(self, placing: Placing, planner: str, order: int) -> PoolPlan:
        return planned(placing, planner, order)

    async def plan_racks(self, batch: Batch, planner: str, order: int) -> PoolPlan:
        return planned_by_racks(batch, planner, order)

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class FakeNode:
    """The agent of a node as the broker meets it: answers from a script.

    Jobs of `states` are listed, on the resources of `resources`.
    """

    name: str
    states: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    parked: m.ParkedJob = field(default_factory=m.ParkedJob)
    silent: bool = False
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def answer(self, name: str, content: bytes) -> Any:
        if self.silent:
            raise HetError(f"{self.name} does not answer")
        kinds: dict[str, Any] = {
            "park": m.ParkJob,
            "leave": m.LeaveJob,
            "cancel": m.CancelJobs,
            "list": m.ListJobs,
            "estimate": m.EstimateJobs,
            "save": m.SaveJob,
            "keep": m.KeepSnapshot,
            "drain": m.DrainNode,
        }
        message = decode(kinds[name], content)
        self.asked.append((name, message))
        return getattr(self, f"on_{name}")(message)

    def on_park(self, message: m.ParkJob) -> Any:
        return self.parked

    def on_leave(self, message: m.LeaveJob) -> Any:
        return m.NameList((message.id,))

    def on_cancel(self, message: m.CancelJobs) -> Any:
        return m.NameList(tuple(job for job in message.ids if job in self.states))

    def on_list(self, message: m.ListJobs) -> Any:
        return m.JobList(
            tuple(
                JobStatus(
                    job,
                    "synthetic",
                    self.states[job],  # type: ignore[arg-type]  # scripted states are valid
                    self.name,
                    resource=self.resources.get(job, ""),
                )
                for job in message.ids
                if job in self.states
            )
        )

    def on_estimate(self, message: m.EstimateJobs) -> Any:
        guess = {"cpu": m.NodeEstimate(1.0, 0.5)}
        return m.JobEstimates((guess,) * len(message.jobs))

    def on_drain(self, message: m.DrainNode) -> Any:
        return m.NameList((self.name,))

    def on_save(self, message: m.SaveJob) -> Any:
        return m.Saved(m.SnapshotFile("ab" * 32, 100, self.name))

    def on_keep(self, message: m.KeepSnapshot) -> Any:
        kept = message.snapshot
        return m.Saved(m.SnapshotFile(kept.content, kept.size, self.name))


class FakeEngine:
    """Records what the broker asks of the engine."""

    def __init__(self) -> None:
        self.handlers: dict[str, Answer] = {}
        self.nodes: dict[str, FakeNode] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.known: set[str] = set()

    def answer(self, name: str, handler: Answer) -> None:
        self.handlers[name] = handler

    async def ask(self, node: str, name: str, message: bytes) -> bytes:
        await asyncio.sleep(0)
        return encode(self.nodes[node].answer(name, message))

    def pin(self, key: str, node: str) -> None:
        self.calls.append(("pin", key, node))

    def take_back(self, key: str) -> None:
        self.calls.append(("take_back", key, ""))

    def cancel(self, key: str, reason: str) -> None:
        self.calls.append(("cancel", key, reason))

    def give_back(self, key: str) -> None:
        self.calls.append(("give_back", key, ""))

    def knows(self, key: str) -> bool:
        return key in self.known


class FakePool:
    """A broker, its engine, its nodes and its clock."""

    def __init__(self, settings: BrokerSettings = SETTINGS) -> None:
        self.now = 100.0
        self.engine = FakeEngine()
        planning: Any = DirectPlanning()
        self.broker = Broker(self.engine, settings, planning, lambda: self.now)

    async def ask(self, name: str, message: Any, kind: Any = m.NameList) -> Any:
        return decode(kind, await self.engine.handlers[name](encode(message)))

    async def join(self, node: PoolNode, *jobs: m.OpenJob) -> tuple[str, ...]:
        self.engine.nodes.setdefault(node.address, FakeNode(node.name))
        answer = await self.ask("join", m.Join(node, jobs))
        names: tuple[str, ...] = answer.names
        return names

    def node(self, name: str) -> FakeNode:
        return self.engine.nodes[f"tls://{name}:9000"]

    async def place(self, *jobs: PoolJob, **fields: Any) -> dict[str, str]:
        """Place jobs; return their nodes."""
        plan = await self.ask("place", m.PlaceJobs(jobs, **fields), PoolPlan)
        self.engine.known |= {entry.errand for entry in plan.entries}
        self.engine.known |= plan.waiting.keys()
        return {entry.job: entry.node for entry in plan.entries}

    async def claim(
        self,
        node: str,
        job: PoolJob,
        rate: float | None = None,
        given_up: tuple[m.OpenJob, ...] = (),
    ) -> m.JobTerms:
        claim = m.ClaimJobs(node, (job.id,), rate, given_up)
        claimed = await self.ask("claim", claim, m.Claimed)
        terms: m.JobTerms = claimed.terms[0]
        return terms

    def lose(self, name: str) -> None:
        self.broker.node_went(name, f"tls://{name}:9000")

    async def look(self, after: float = 0.0) -> None:
        self.now += after
        await self.broker.look()
        for _ in range(20):  # what it started goes on
            await asyncio.sleep(0)


async def a_pool(*names: str, **settings: Any) -> FakePool:
    made = FakePool(BrokerSettings(**{"window_s": 0.0, "group_s": 0.0} | settings))
    for name in names or ("n1", "n2"):
        await made.join(a_node(name))
    return made


def orders(pool: FakePool, node: str) -> list[str]:
    """Return what a node was asked to do."""
    return [name for name, _ in pool.node(node).asked if name != "list"]


async def listed(pool: FakePool, *ids: str) -> list[tuple[str, str]]:
    """Return the states of jobs as the broker lists them."""
    found = await pool.ask("jobs", m.ListJobs(ids), m.JobList)
    return [(each.id, each.state) for each in found.jobs]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)
