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
    """The energy of some segments.

    Attributes:
        joules: the sum over segments with a known energy; None: none is known.
        measured: whether all known figures come from meters; else some are modelled.
        missing: number of segments without a figure.

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
    """Sum up the energy of segments; failed attempts have none."""
    segments = counted(segments)
    known = [each for each in segments if each.joules is not None]
    joules = sum(each.joules or 0.0 for each in known) if known else None
    measured = bool(known) and all(each.measured for each in known)
    return Energy(joules, measured, len(segments) - len(known))


def readable_energy(energy: Energy) -> str:
    """Format an energy with its source: `3.1 J (modelled)`; `-` if not known."""
    if energy.joules is None:
        return "-"
    least = "at least " if energy.missing else ""
    return f"{least}{readable_joules(energy.joules)} ({energy.source})"


def energy_document(energy: Energy) -> EnergyPart:
    """Return an energy as keys of a JSON object."""
    return {
        "joules": energy.joules,
        "energy_source": energy.source,
        "energy_missing": energy.missing,
    }


# ------------------------------------------------------------ accounts


@dataclass(frozen=True, slots=True)
class TaskAccount:
    """The times of one task, in seconds.

    Attributes:
        waited: time from submission to end (or now) on no resource: held, for other
            tasks, in a queue, and between the resources of a move.
        ran: time on resources, with set-up and transfers.
        failed: time on resources in attempts that failed before their first strip.

    """

    task: TaskInfo
    waited: float
    ran: float
    failed: float
    energy: Energy

    @property
    def places(self) -> list[tuple[str, bool]]:
        """The resources of the task in order, each stay once, and whether it failed."""
        places: list[tuple[str, bool]] = []
        for segment in self.task.segments:
            place = (segment.resource, segment.failed_attempt)
            if places[-1:] != [place]:
                places.append(place)
        return places


@dataclass(frozen=True, slots=True)
class Split:
    """The use of a resource in the span, in seconds summed over its slots.

    Attributes:
        computing: time in strips.
        transferring: time of copies to and from the device, including staging while
            another task ran there.
        setting_up: time from the start of a segment to its first strip, without
            transfers: starting a worker, opening the device, building programs.
        other: other time on the resource: hand-overs, and segments without a report of
            the worker, such as running ones.
        checkpoint_wait: the part of computing between an order to stop and the
            checkpoint where the task stopped.
        idle: time without a selected task; None: the number of slots is not known.
        failed: time of attempts that failed before their first strip; not busy time.
        wasted: the part of computing by tasks that ended without a result (cancelled,
            failed or dropped).

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
    """The account of one resource.

    Attributes:
        slots: number of slots; None: the node does not have the resource now.
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
        end: the last end, or the present time if a task has not ended.
        complete: whether all tasks have ended.

    """

    begin: float
    end: float
    complete: bool
    tasks: list[TaskAccount]
    resources: list[ResourceAccount]
    energy: Energy

    @property
    def makespan(self) -> float | None:
        """Seconds from the first submission to the last end; None: some have not ended."""
        return self.end - self.begin if self.complete else None


def account(
    tasks: Sequence[TaskInfo], devices: Iterable[DeviceInfo], now: float
) -> Account:
    """Return the account of tasks (at least one, in full records) and resources."""
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
    """Return the account of one task in a full record, until its end or `now`."""
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
    """Set the part of a resource's computing by tasks that gave no result."""
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
    """Return the seconds before the first strip; without them, the worker's own figure."""
    if segment.computing is None:
        return segment.set_up
    return max(0.0, segment.computing - segment.start - segment.transfer_in)


def _unexplained(segment: Segment, end: float) -> float:
    """Return the unexplained part of a segment; staging before its start may exceed it."""
    explained = segment.seconds + segment.transfer_in + segment.transfer_out
    return max(0.0, _length(segment, end) - explained - _set_up(segment))


def _idle(segments: list[Segment], slots: int, span: tuple[float, float]) -> float:
    """Sum up the seconds of free slots.

    Hand-overs may overlap, with more tasks than slots for a moment. That must not reduce
    idle time elsewhere, so the sum goes from change to change.
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
