"""Assembly: makes the parts of the daemon, and gives each the others that it uses.

Nothing else knows all of them. The process calls this at its start, and so do tests and
benchmarks, with parts of their own in place of sockets and processes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.clock import SYSTEM_CLOCK
from hetd.config import quotas
from hetd.daemon import ShutdownDrain
from hetd.devices.circuits import Circuits
from hetd.devices.counters.find import find_counters
from hetd.devices.counters.reader import CounterReader
from hetd.devices.health import Health
from hetd.devices.measured_loads import MeasuredLoads
from hetd.devices.metering import Metering
from hetd.devices.meters import Finder
from hetd.devices.node_devices import NodeDevices
from hetd.devices.sharing import make_model
from hetd.foreign_policy import FALLBACK
from hetd.loop import Loop, Registration
from hetd.reports.calibration import Calibration
from hetd.reports.kept_snapshots import KeptSnapshots
from hetd.reports.snapshots import SnapshotReports
from hetd.reports.worker_reports import WorkerReports
from hetd.requests import Service
from hetd.requests.budget import RequestBudget
from hetd.requests.ended_tasks import EndedTaskRequests
from hetd.requests.explain import EstimateRequests, ExplainRequests, ProspectMessages
from hetd.requests.idempotency import IdempotencyKeys
from hetd.requests.listing import ListRequests
from hetd.requests.models import ModelRequests
from hetd.requests.notes import NoteRequests
from hetd.requests.permissions import Permissions
from hetd.requests.policies import PolicyRequests
from hetd.requests.publication import Publication
from hetd.requests.resources import ResourceRequests
from hetd.requests.status import StatusRequests
from hetd.requests.storage_quota import StorageQuota
from hetd.requests.submit import SubmitRequests
from hetd.requests.subscriptions import Subscriptions
from hetd.requests.tasks import TaskRequests
from hetd.requests.turns import RequestTurns
from hetd.requests.usage import UsageRequests
from hetd.runtime import Runtime
from hetd.tasks.recovery import resource
from hetd.timers import Timers
from hetd.workers.commands import Commands, NodeWorkers
from hetd.workers.watchdog import MEMORY, Watchdog
from hetsched.limits import Capacity, Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND
from libtask import messages as m
from libtask.whole_files import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetd.clock import Clock
    from hetd.config import ActiveConfig, Config, ContentionTable
    from hetd.requests import Handler
    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from hetd.transport.poller import Poller
    from hetd.transport.router import Router
    from hetd.workers.pool import WorkerPool
    from hetsched.estimates.table import EstimateTable
    from hetsched.policy import Policy

AT_ONCE = 250
"""Tasks that one decision handles in addition to those of its event: some 5 ms."""
TRAIN = 16
"""Short tasks that a worker is given at once, at most: they share messages and wake-ups."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that the loop, the requests and the reports are made of."""

    config: ActiveConfig
    timers: Timers
    devices: NodeDevices
    estimates: EstimateTable
    workers: NodeWorkers
    runtime: Runtime


def assemble(  # noqa: PLR0913, PLR0917  the parts of the daemon meet here
    config: ActiveConfig,
    devices: Sequence[m.DeviceInfo],
    policy: Policy,
    estimates: EstimateTable,
    journal: Journal,
    pool: WorkerPool,
    clock: Clock = SYSTEM_CLOCK,
) -> Parts:
    """Make the parts that carry out what the scheduler decides.

    Args:
        config: the configuration.
        devices: the resources.
        policy: decides which task runs where.
        estimates: expected execution times.
        journal: the tasks.
        pool: the workers.
        clock: source of time.

    """
    value, timers = config.value, Timers(clock)
    scheduler = _scheduler(value, devices, policy, estimates, journal.first_epoch)
    system = scheduler.system
    known = _devices(value, devices, scheduler, journal, timers)
    watchdog = Watchdog(config, timers, known, system, journal, pool)
    commands = Commands(known.infos, system, journal, pool, watchdog)
    workers = NodeWorkers(pool, watchdog, commands)
    runtime = Runtime(config, timers, scheduler, journal, known, workers)
    return Parts(config, timers, known, estimates, workers, runtime)


def _scheduler(
    config: Config,
    devices: Sequence[m.DeviceInfo],
    policy: Policy,
    estimates: EstimateTable,
    first_epoch: int,
) -> Scheduler:
    """Make the scheduler; finish-time takes over where another package's policy fails."""
    scheduler = Scheduler(
        [resource(device, config.queue_limit) for device in devices],
        estimates,
        policy,
        limits=_limits(config),
        first_epoch=first_epoch,
        contention=make_model(config.contention, devices, os.cpu_count() or 1),
    )
    scheduler.fallback = make_policy(FALLBACK, {})
    return scheduler


def _devices(
    config: Config,
    devices: Sequence[m.DeviceInfo],
    scheduler: Scheduler,
    journal: Journal,
    timers: Timers,
) -> NodeDevices:
    """Make what the daemon knows of its devices."""
    system = scheduler.system
    infos = {device.spec.name: device for device in devices}
    specs = {name: device.spec for name, device in infos.items()}
    health = Health(specs, config.device_errors, timers)
    meters = Finder().find(devices) if config.meters else {}
    crowding = system.crowding
    return NodeDevices(
        infos,
        health,
        Metering(list(system.resources.values()), meters, timers),
        Circuits(system, journal, health, timers.clock),
        MeasuredLoads(config.contention, crowding.model if crowding else None, journal),
        _counters(config.contention, devices, scheduler, timers),
    )


def _counters(
    table: ContentionTable,
    devices: Sequence[m.DeviceInfo],
    scheduler: Scheduler,
    timers: Timers,
) -> CounterReader | None:
    """Read the counters of what resources share, where that is modelled."""
    crowding = scheduler.system.crowding
    if crowding is None:
        return None
    cores, every_s = os.cpu_count() or 1, table.every_s
    found = find_counters(crowding.model, devices, cores, every_s)
    return CounterReader(found, scheduler, timers, every_s, timers.clock.now())


def make_loop(parts: Parts, router: Router, store: Store, poller: Poller) -> Loop:
    """Make the loop, with all that it calls."""
    runtime, config = parts.runtime, parts.config
    subscriptions, budget = Subscriptions(), RequestBudget()
    service = make_service(parts, store, subscriptions)
    reports = make_reports(parts)
    publication = Publication(router, store, runtime, subscriptions, service, budget)
    requests = RequestTurns(router, runtime, service, publication, budget)
    registration = Registration(router, poller, config, runtime.pool, reports)
    return Loop(router, runtime, registration, requests, reports, publication)


def make_reports(parts: Parts) -> WorkerReports:
    """Make what takes the messages of launchers and workers."""
    runtime, clock = parts.runtime, parts.timers.clock
    learner = Calibration(clock, runtime.scheduler, parts.estimates, runtime.journal)
    kept = KeptSnapshots(clock, parts.config, runtime.journal)
    snapshots = SnapshotReports(runtime, learner, kept)
    return WorkerReports(
        runtime, parts.timers, parts.devices, parts.workers, learner, snapshots
    )


def make_service(parts: Parts, store: Store, subscriptions: Subscriptions) -> Service:
    """Make what answers users' requests."""
    runtime, config = parts.runtime, parts.config
    journal, pool, clock = runtime.journal, runtime.pool, runtime.clock
    rights = Permissions(config, journal, clock)
    quota = StorageQuota(config, journal, store)
    keys = IdempotencyKeys(journal, pool, store, clock)
    submission = SubmitRequests(runtime, config, parts.devices.infos, rights, quota)
    tasks = TaskRequests(
        runtime, config, parts.devices.infos, parts.workers.commands, rights
    )
    notes = NoteRequests(clock, journal, store)
    resources = ResourceRequests(runtime, parts.devices, notes, rights)
    status = StatusRequests(runtime, config, store, subscriptions, rights)
    handlers = {
        **_handlers_of_tasks(parts, rights, submission, tasks),
        **_handlers_of_node(parts, rights, notes, resources, status),
    }
    lifecycle, parking = runtime.lifecycle, tasks.parking
    return Service(lifecycle, store, rights, quota, keys, parking, resources, handlers)


def _handlers_of_tasks(
    parts: Parts,
    rights: Permissions,
    submission: SubmitRequests,
    tasks: TaskRequests,
) -> dict[type, Handler]:
    """Make what handles requests about tasks."""
    runtime, config, estimates = parts.runtime, parts.config, parts.estimates
    scheduler, journal, pool = runtime.scheduler, runtime.journal, runtime.pool
    past = EndedTaskRequests(journal, pool, rights, submission)
    prospects = ProspectMessages(scheduler.system, estimates, parts.devices.health)
    explanation = ExplainRequests(scheduler, prospects, pool, rights)
    estimation = EstimateRequests(scheduler, prospects, submission)
    system, leases = scheduler.system, runtime.leases
    listing = ListRequests(journal, rights, estimates, system, leases)
    return {
        m.Submit: submission.submit,
        m.Requeue: past.requeue,
        m.DeleteTasks: past.forget,
        m.ListTasks: listing.list_tasks,
        m.Explain: explanation.explain,
        m.Estimate: estimation.estimate,
        m.Control: tasks.control,
        m.Amend: tasks.amend,
        m.Migrate: tasks.migrate,
        m.Renew: tasks.renew,
        m.Usage: UsageRequests(config, journal, rights).usage,
    }


def _handlers_of_node(
    parts: Parts,
    rights: Permissions,
    notes: NoteRequests,
    resources: ResourceRequests,
    status: StatusRequests,
) -> dict[type, Handler]:
    """Make what handles requests about the node and its daemon."""
    runtime, config, devices = parts.runtime, parts.config, parts.devices
    models = ModelRequests(runtime, devices, parts.estimates, rights)
    policies = PolicyRequests(runtime, config, notes, rights)
    return {
        m.Devices: resources.devices,
        m.Drain: resources.drain,
        m.TestDevices: resources.test,
        m.AddSamples: models.learn,
        m.Models: models.models,
        m.DeleteSamples: models.forget,
        m.Policies: policies.policies,
        m.Notes: notes.notes,
        m.Status: status.status,
        m.ShowConfig: status.config,
    }


def make_drain(parts: Parts) -> ShutdownDrain:
    """Make what brings running tasks to disk when the daemon stops."""
    return ShutdownDrain(parts.runtime, parts.workers.commands)


def _limits(config: Config) -> Limits:
    """Return the parameters of the scheduler's mechanism under a configuration."""
    return Limits(
        config.attempts,
        config.stage,
        quotas=quotas(config.limits),
        avoid_ns=int(config.avoid_s * SECOND),
        at_once=AT_ONCE,
        train=TRAIN,
        capacity=_capacity(config),
    )


def _capacity(config: Config) -> Capacity:
    """Return what tasks may need together: as configured, or what the machine has."""
    cores = config.cores or len(os.sched_getaffinity(0))
    return Capacity(cores, config.task_memory_mb * MIB or MEMORY)
