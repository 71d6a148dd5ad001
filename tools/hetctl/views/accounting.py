"""Accounting: the time and energy of tasks and resources, from task records.

Pure computation for `hetctl history` and `hetctl report`. It counts only what the
records hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hetctl.output import checkpoint_wait
from hetctl.units import readable_joules
from libtask.messages import ENDED, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetctl.documents.parts import EnergyPart, Source
    from libtask.messages import DeviceInfo, Segment, TaskInfo


# ------------------------------------------------------------ energy


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of some stretches.

    Attributes:
        joules: of those for which it is known; None: of none.
        measured: whether meters say so of all that are known; else it is modelled,
            wholly or in part.
        missing: stretches of which it is not known, or not yet.

    """

    joules: float | None
    measured: bool
    missing: int

    @property
    def source(self) -> Source | None:
        if self.joules is None:
            return None
        return "measured" if self.measured else "modelled"


def energy_of(segments: Sequence[Segment]) -> Energy:
    """Add up the energy of stretches, and say how far it is known.

    Failed attempts have none.
    """
    segments = counted(segments)
    known = [each for each in segments if each.joules is not None]
    joules = sum(each.joules or 0.0 for each in known) if known else None
    measured = bool(known) and all(each.measured for each in known)
    return Energy(joules, measured, len(segments) - len(known))


def readable_energy(energy: Energy) -> str:
    """Write an energy and where it is from: `3.1 J (modelled)`; `-`: not known."""
    if energy.joules is None:
        return "-"
    least = "at least " if energy.missing else ""
    return f"{least}{readable_joules(energy.joules)} ({energy.source})"


def energy_document(energy: Energy) -> EnergyPart:
    """Write an energy as keys of a JSON object."""
    return {
        "joules": energy.joules,
        "energy_source": energy.source,
        "energy_missing": energy.missing,
    }


# ------------------------------------------------------------ accounts


@dataclass(frozen=True, slots=True)
class TaskAccount:
    """One task. Seconds.

    Attributes:
        waited: from its submission to its end (or now) on no resource: held, for
            other tasks, in a queue, and between the resources of a move.
        ran: on resources, with set-up and transfers.
        failed: on resources, in attempts that failed before their first strip.

    """

    task: TaskInfo
    waited: float
    ran: float
    failed: float
    energy: Energy

    @property
    def places(self) -> list[tuple[str, bool]]:
        """The resources it was on, in order, each stay once, and if all of it failed."""
        places: list[tuple[str, bool]] = []
        for segment in self.task.segments:
            place = (segment.resource, segment.failed_attempt)
            if places[-1:] != [place]:
                places.append(place)
        return places


@dataclass(frozen=True, slots=True)
class Split:
    """What a resource did in the span. Seconds, added up over its slots.

    Attributes:
        computing: in strips.
        transferring: copying to and from the device; what was staged while another
            task still ran there is counted as well.
        setting_up: from the start of a stretch to its first strip, without transfers:
            starting a worker, opening the device, building programs.
        other: held by a task and none of these: hand-overs, and stretches of which
            the worker has not reported, as those that still run.
        checkpoint_wait: of computing, what passed between an order to stop and the
            checkpoint at which it was followed.
        idle: no selected task on it; None where its number of slots is not known.
        failed: held by a task in attempts that failed before their first strip; this
            is not busy time.
        wasted: of computing, that of tasks which ended without a result: cancelled,
            failed or dropped.

    """

    computing: float
    transferring: float
    setting_up: float
    other: float
    idle: float | None
    checkpoint_wait: float = 0.0
    failed: float = 0.0
    wasted: float = 0.0


@dataclass(frozen=True, slots=True)
class ResourceAccount:
    """One resource.

    Attributes:
        slots: None: the node does not have it (any more).
        busy: share of slots times span that was neither idle nor in failed attempts;
            None: not known.

    """

    name: str
    slots: int | None
    split: Split
    busy: float | None
    energy: Energy


@dataclass(frozen=True, slots=True)
class Account:
    """Tasks and the resources of their node.

    Attributes:
        begin: the first submission, in seconds since the epoch.
        end: the last end; now, where a task has not ended.
        complete: whether all have ended.

    """

    begin: float
    end: float
    complete: bool
    tasks: list[TaskAccount]
    resources: list[ResourceAccount]
    energy: Energy

    @property
    def makespan(self) -> float | None:
        """Seconds from the first submission to the last end; None: not all ended."""
        return self.end - self.begin if self.complete else None


def account(
    tasks: Sequence[TaskInfo], devices: Iterable[DeviceInfo], now: float
) -> Account:
    """Add up what at least one task, in full records, did on the resources."""
    begin = min(info.submitted for info in tasks)
    complete = all(info.state in ENDED for info in tasks)
    end = max(_end_of(info, now) for info in tasks)
    segments = [segment for info in tasks for segment in info.segments]
    lost = [
        segment
        for info in tasks
        if info.state in ENDED and info.state != "completed"
        for segment in info.segments
    ]
    slots = {device.spec.name: device.slots for device in devices}
    names = dict.fromkeys([*slots, *(segment.resource for segment in segments)])
    resources = [
        _resource(name, slots.get(name), segments, (begin, end)) for name in names
    ]
    resources = [_with_waste(each, lost) for each in resources]
    accounts = [task_account(info, now) for info in tasks]
    return Account(begin, end, complete, accounts, resources, energy_of(segments))


def task_account(info: TaskInfo, now: float) -> TaskAccount:
    """Add up one task, in a full record; where it has not ended, until `now`."""
    end = _end_of(info, now)
    kept = counted(info.segments)
    ran = sum(_length(segment, end) for segment in kept)
    failed = sum(_length(segment, end) for segment in info.segments) - ran
    waited = max(0.0, end - info.submitted - ran - failed)
    return TaskAccount(info, waited, ran, max(0.0, failed), energy_of(info.segments))


def _resource(
    name: str, slots: int | None, every: list[Segment], span: tuple[float, float]
) -> ResourceAccount:
    segments = [segment for segment in every if segment.resource == name]
    idle = None if slots is None else _idle(segments, slots, span)
    split = _split(segments, idle, span[1])
    busy = None
    if slots is not None and idle is not None and span[1] > span[0]:
        busy = 1 - (idle + split.failed) / (slots * (span[1] - span[0]))
        busy = max(0.0, busy)
    return ResourceAccount(name, slots, split, busy, energy_of(segments))


def _with_waste(account: ResourceAccount, lost: list[Segment]) -> ResourceAccount:
    """Say how much of a resource's computing was of tasks that gave no result."""
    own = counted([each for each in lost if each.resource == account.name])
    wasted = sum((each.seconds for each in own), 0.0)
    return replace(account, split=replace(account.split, wasted=wasted))


def _split(every: list[Segment], idle: float | None, end: float) -> Split:
    segments = counted(every)
    failed = sum((_length(each, end) for each in every if each.failed_attempt), 0.0)
    computing = sum(each.seconds for each in segments)
    transferring = sum(each.transfer_in + each.transfer_out for each in segments)
    setting_up = sum(_set_up(each) for each in segments)
    other = sum(_unexplained(each, end) for each in segments)
    waiting = sum(checkpoint_wait(each) or 0.0 for each in segments)
    return Split(computing, transferring, setting_up, other, idle, waiting, failed)


def _set_up(segment: Segment) -> float:
    """Return the seconds before the first strip; the worker knows not those before it."""
    if segment.computing is None:
        return segment.set_up
    return max(0.0, segment.computing - segment.start - segment.transfer_in)


def _unexplained(segment: Segment, end: float) -> float:
    """Return the rest of a stretch; what was staged before it began is not its own."""
    explained = segment.seconds + segment.transfer_in + segment.transfer_out
    return max(0.0, _length(segment, end) - explained - _set_up(segment))


def _idle(segments: list[Segment], slots: int, span: tuple[float, float]) -> float:
    """Add up the seconds of free slots.

    A hand-over may overlap a little, with more tasks than slots for a moment; that
    must not count against idle time elsewhere, so it goes from change to change.
    """
    begin, end = span
    changes = [(segment.start, 1) for segment in segments]
    changes += [(segment.start + _length(segment, end), -1) for segment in segments]
    idle, running, since = 0.0, 0, begin
    for at, change in [*sorted(changes), (end, 0)]:
        idle += max(0, slots - running) * max(0.0, at - since)
        running += change
        since = max(since, at)
    return idle


def _length(segment: Segment, end: float) -> float:
    finish = end if segment.finish is None else segment.finish
    return max(0.0, finish - segment.start)


def _end_of(info: TaskInfo, now: float) -> float:
    if info.state not in ENDED:
        return max(now, info.submitted)
    return info.submitted if info.finished is None else info.finished
