"""Assembly: makes the parts of the daemon, and gives each the others that it uses.

Nothing else knows all of them. The process calls this at its start, and so do tests and
benchmarks, with parts of their own in place of sockets and processes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetd.clock import SYSTEM_CLOCK, Clock
from hetd.config import MIB, ActiveConfig, Config, Origins, quotas
from hetd.daemon import ShutdownDrain
from hetd.devices.circuits import Circuits
from hetd.devices.counters import CounterReader, find_sources
from hetd.devices.health import Health
from hetd.devices.measured_loads import MeasuredLoads
from hetd.devices.metering import Metering
from hetd.devices.meters import Finder
from hetd.devices.sharing import make_model
from hetd.lifecycle import Lifecycle
from hetd.loop import Loop
from hetd.reports.calibration import Calibration
from hetd.reports.kept_snapshots import KeptSnapshots
from hetd.reports.snapshots import SnapshotReports
from hetd.reports.worker_reports import WorkerReports
from hetd.requests import Service
from hetd.requests.ended_tasks import EndedTaskRequests
from hetd.requests.explain import EstimateRequests, ExplainRequests, ProspectMessages
from hetd.requests.idempotency import IdempotencyKeys
from hetd.requests.listing import ListRequests
from hetd.requests.models import ModelRequests
from hetd.requests.notes import NoteRequests
from hetd.requests.out_of_space import OutOfSpace
from hetd.requests.permissions import Permissions
from hetd.requests.policies import PolicyRequests
from hetd.requests.resources import ResourceRequests
from hetd.requests.status import StatusRequests
from hetd.requests.storage_quota import StorageQuota
from hetd.requests.submit import SubmitRequests
from hetd.requests.subscriptions import Subscriptions
from hetd.requests.tasks import TaskRequests
from hetd.requests.usage import UsageRequests
from hetd.runtime import FALLBACK, Runtime
from hetd.tasks.operator_settings import OperatorSettings
from hetd.tasks.recovery import resource
from hetd.timers import Timers
from hetd.workers.commands import Commands
from hetd.workers.watchdog import MEMORY, Watchdog, kill_group
from hetsched.limits import Capacity, Limits
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND
from libtask.processes import started_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from hetd.transport.poller import Poller
    from hetd.transport.router import Router
    from hetd.workers.pool import WorkerPool
    from hetsched.estimates.table import EstimateTable
    from hetsched.policy import Policy
    from libtask import messages as m

AT_ONCE = 250
"""Tasks that one decision handles in addition to those of its event: some 5 ms."""
TRAIN = 16
"""Short tasks that a worker is given at once, at most: they share messages and wake-ups."""
EPOCHS = 1 << 32
"""Epochs that one run of the daemon can give out; the next run's are all larger."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that the loop, the requests and the reports are made of."""

    clock: Clock
    config: ActiveConfig
    lifecycle: Lifecycle
    timers: Timers
    devices: dict[str, m.DeviceInfo]
    estimates: EstimateTable
    journal: Journal
    pool: WorkerPool
    scheduler: Scheduler
    metering: Metering
    settings: OperatorSettings
    health: Health
    watchdog: Watchdog
    circuits: Circuits
    loads: MeasuredLoads
    commands: Commands
    runtime: Runtime


def assemble(  # noqa: PLR0913, PLR0917  the parts of the daemon meet here
    devices: Sequence[m.DeviceInfo],
    config: Config,
    policy: Policy,
    estimates: EstimateTable,
    journal: Journal,
    pool: WorkerPool,
    *,
    first_epoch: int,
    clock: Clock = SYSTEM_CLOCK,
    kill: Callable[[int], None] = kill_group,
    started_at: Callable[[int], int] = started_at,
    origins: Origins | None = None,
) -> Parts:
    """Make the parts that carry out what the scheduler decides.

    Args:
        devices: the resources.
        config: the configuration; `origins`: where it comes from.
        policy: decides which task runs where.
        estimates: expected execution times.
        journal: the tasks.
        pool: the workers.
        first_epoch: larger than every epoch given out before.
        clock: source of time.
        kill: kills a worker of our own user and its descendants, by its pid.
        started_at: returns when the process of a pid started; 0: there is none.

    """
    active = ActiveConfig(config, origins)
    named = {device.spec.name: device for device in devices}
    timers = Timers()
    contention = make_model(config.contention, devices, os.cpu_count() or 1)
    scheduler = Scheduler(
        [resource(device, config.queue_limit) for device in devices],
        estimates,
        policy,
        limits=_limits(config),
        first_epoch=first_epoch,
        contention=contention,
    )
    scheduler.fallback = make_policy(FALLBACK, {})
    system = scheduler.system
    meters = Finder().find(devices) if config.meters else {}
    metering = Metering(list(system.resources.values()), meters, timers, clock.now())
    _read_counters(scheduler, timers, config.contention.every_s, clock.now())
    specs = {name: device.spec for name, device in named.items()}
    health = Health(specs, config.device_errors, timers)
    watchdog = Watchdog(
        config=active,
        clock=clock,
        timers=timers,
        devices=named,
        system=system,
        journal=journal,
        pool=pool,
        health=health,
        kill=kill,
        started_at=started_at,
    )
    settings = OperatorSettings(journal)
    circuits = Circuits(system.breaker, journal, health, clock)
    commands = Commands(named, system, journal, pool, watchdog)
    runtime = Runtime(
        clock=clock,
        config=active,
        timers=timers,
        devices=named,
        scheduler=scheduler,
        journal=journal,
        pool=pool,
        metering=metering,
        settings=settings,
        watchdog=watchdog,
        circuits=circuits,
        commands=commands,
    )
    return Parts(
        clock=clock,
        config=active,
        lifecycle=Lifecycle(),
        timers=timers,
        devices=named,
        estimates=estimates,
        journal=journal,
        pool=pool,
        scheduler=scheduler,
        metering=metering,
        settings=settings,
        health=health,
        watchdog=watchdog,
        circuits=circuits,
        loads=MeasuredLoads(config.contention, contention, journal),
        commands=commands,
        runtime=runtime,
    )


def _read_counters(
    scheduler: Scheduler, timers: Timers, every_s: float, now: int
) -> None:
    """Read the counters of what resources share, where that is modelled."""
    crowding = scheduler.system.crowding
    if crowding is not None:
        sources = find_sources(crowding.model, os.cpu_count() or 1)
        CounterReader(sources, scheduler, timers, every_s, now)


def make_service(parts: Parts, store: Store, subscriptions: Subscriptions) -> Service:
    """Make what answers users' requests."""
    journal, clock, config = parts.journal, parts.clock, parts.config
    rights = Permissions(config, journal, clock)
    quota = StorageQuota(config, journal, store)
    notes = NoteRequests(clock, journal, store)
    submission = SubmitRequests(
        runtime=parts.runtime,
        clock=clock,
        config=config,
        devices=parts.devices,
        journal=journal,
        pool=parts.pool,
        rights=rights,
        quota=quota,
    )
    system = parts.scheduler.system
    prospects = ProspectMessages(system, parts.estimates, parts.health)
    return Service(
        lifecycle=parts.lifecycle,
        store=store,
        rights=rights,
        storage_quota=quota,
        idempotency=IdempotencyKeys(journal, parts.pool, store, clock),
        submission=submission,
        past=EndedTaskRequests(journal, parts.pool, rights, submission),
        tasks=_task_requests(parts, rights),
        explanation=ExplainRequests(parts.scheduler, prospects, parts.pool, rights),
        estimates=EstimateRequests(parts.scheduler, prospects, submission),
        listing=ListRequests(journal, rights, parts.estimates, system),
        status=_status_requests(parts, store, subscriptions, rights),
        models=_model_requests(parts, rights),
        resources=_resource_requests(parts, notes, rights),
        policies=PolicyRequests(
            runtime=parts.runtime,
            clock=clock,
            config=config,
            settings=parts.settings,
            notes=notes,
            rights=rights,
        ),
        notes=notes,
        usage=UsageRequests(config, journal, rights),
    )


def make_reports(parts: Parts) -> WorkerReports:
    """Make what takes the messages of launchers and workers."""
    clock, journal = parts.clock, parts.journal
    learner = Calibration(clock, parts.scheduler, parts.estimates, journal)
    return WorkerReports(
        runtime=parts.runtime,
        clock=clock,
        timers=parts.timers,
        devices=parts.devices,
        scheduler=parts.scheduler,
        journal=journal,
        pool=parts.pool,
        commands=parts.commands,
        watchdog=parts.watchdog,
        metering=parts.metering,
        settings=parts.settings,
        learner=learner,
        snapshots=SnapshotReports(
            runtime=parts.runtime,
            learner=learner,
            clock=clock,
            journal=journal,
            pool=parts.pool,
            kept=KeptSnapshots(clock, parts.config, journal),
        ),
    )


def make_loop(parts: Parts, router: Router, store: Store, poller: Poller) -> Loop:
    """Make the loop, with all that it calls."""
    subscriptions = Subscriptions()
    service = make_service(parts, store, subscriptions)
    return Loop(
        router=router,
        store=store,
        poller=poller,
        clock=parts.clock,
        config=parts.config,
        lifecycle=parts.lifecycle,
        scheduler=parts.scheduler,
        journal=parts.journal,
        pool=parts.pool,
        runtime=parts.runtime,
        subscriptions=subscriptions,
        service=service,
        reports=make_reports(parts),
        out_of_space=OutOfSpace(parts.runtime, parts.journal, store, service),
    )


def make_drain(parts: Parts) -> ShutdownDrain:
    """Make what brings running tasks to disk when the daemon stops."""
    system = parts.scheduler.system
    return ShutdownDrain(
        parts.runtime, parts.lifecycle, system, parts.journal, parts.commands
    )


def _task_requests(parts: Parts, rights: Permissions) -> TaskRequests:
    return TaskRequests(
        runtime=parts.runtime,
        clock=parts.clock,
        config=parts.config,
        devices=parts.devices,
        journal=parts.journal,
        commands=parts.commands,
        rights=rights,
    )


def _status_requests(
    parts: Parts, store: Store, subscriptions: Subscriptions, rights: Permissions
) -> StatusRequests:
    return StatusRequests(
        clock=parts.clock,
        config=parts.config,
        counters=parts.runtime.counters,
        scheduler=parts.scheduler,
        journal=parts.journal,
        settings=parts.settings,
        pool=parts.pool,
        store=store,
        subscriptions=subscriptions,
        rights=rights,
    )


def _model_requests(parts: Parts, rights: Permissions) -> ModelRequests:
    return ModelRequests(
        runtime=parts.runtime,
        journal=parts.journal,
        devices=parts.devices,
        estimates=parts.estimates,
        circuits=parts.circuits,
        loads=parts.loads,
        rights=rights,
    )


def _resource_requests(
    parts: Parts, notes: NoteRequests, rights: Permissions
) -> ResourceRequests:
    return ResourceRequests(
        runtime=parts.runtime,
        clock=parts.clock,
        devices=parts.devices,
        scheduler=parts.scheduler,
        settings=parts.settings,
        metering=parts.metering,
        circuits=parts.circuits,
        health=parts.health,
        notes=notes,
        rights=rights,
    )


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
