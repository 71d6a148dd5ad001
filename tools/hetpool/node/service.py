"""A node's process: its agent, its client of hetd and its part of the engine."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hetpool.engine.worker import DaskWorkerEngine
from hetpool.files.node_files import NodeFiles
from hetpool.inquiry import INQUIRE, NodeInquiry, TransferRecord
from hetpool.jobs import PoolNode
from hetpool.node.agent import Agent, machine_name
from hetpool.node.lease import Lease
from hetpool.node.resources import ResourceWatch
from hetpool.node.tasks import NodeTasks, is_of_pool
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from pathlib import Path

    from hetpool.setup.config import NodeSettings
    from hetpool.setup.settings import EngineSettings

PATIENCE = 3
"""Leases for which a node waits for its hetd, before it leaves the pool."""

log = logging.getLogger("hetpool")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of one node.

    Attributes:
        node: its table in `pool.toml`.
        socket: of its hetd; None: the default one.
        folder: for its files; None: in the user's data.
        incoming: where clients of this machine leave files; None: in the user's data.

    """

    node: NodeSettings
    socket: Path | None = None
    folder: Path | None = None
    incoming: Path | None = None


async def serve(
    options: NodeOptions, settings: EngineSettings, lease_s: float, stop: asyncio.Event
) -> None:
    """Run a node until `stop` is set.

    Raises:
        DaemonUnreachableError: its hetd does not answer.

    """
    data = user_folder("data", "hetpool")
    own = options.node
    folder = options.folder or data / "nodes" / own.name
    place = (own.name, own.host, own.port)
    engine = DaskWorkerEngine(settings, *place, folder)
    files = NodeFiles(folder, options.incoming or data / "incoming", engine)
    lease = Lease(lease_s)
    tasks = await _tasks_of(options, folder, lease)
    described = PoolNode(
        own.name,
        engine.address,
        ingress=own.ingress,
        machine=machine_name(),
        gateway=own.gateway,
    )
    agent = Agent(described, engine, tasks, files, lease)
    engine.agent = agent

    def transfers() -> list[TransferRecord]:
        return [*(TransferRecord(*each) for each in engine.received()), *files.pulled]

    inquiry = NodeInquiry(None, is_of_pool, transfers)
    if tasks is not None:
        inquiry = NodeInquiry(tasks.client, is_of_pool, transfers, tasks.folder_of)
    engine.answer(INQUIRE, inquiry.answer)
    watching = asyncio.ensure_future(_watch(agent, tasks, stop))
    try:
        await engine.run(agent.join, agent.parted, stop)
    finally:
        watching.cancel()
        await files.close()
        if tasks is not None:
            tasks.close()


async def _tasks_of(
    options: NodeOptions, folder: Path, lease: Lease
) -> NodeTasks | None:
    """Connect to the node's hetd; a gateway has none."""
    if options.node.gateway:
        return None
    return await asyncio.to_thread(
        NodeTasks,
        options.socket,
        folder / "commands",
        options.node.name,
        lease.of_tasks_s,
        PATIENCE * lease.seconds,
    )


async def _watch(agent: Agent, tasks: NodeTasks | None, stop: asyncio.Event) -> None:
    """Keep the lease and report changes of resources until `stop` is set."""
    if tasks is None:
        return
    look = partial(asyncio.get_running_loop().call_soon_threadsafe, agent.look)
    resources = ResourceWatch(tasks.client, look)
    try:
        await asyncio.gather(agent.keep_lease(stop), agent.report_slots(stop))
    finally:
        resources.close()
