"""Outcomes: how a job ended, on the way from its node to its client.

The value is pickled apart from the rest, so that a value that a client cannot read is an
error of one job.
"""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle

from hetpool.jobs import LONGEST_REASON, JobStatus
from libtask.errors import HetError, InputError, RemoteTraceback, TaskFailedError

if TYPE_CHECKING:
    from hetpool.jobs import JobState, PoolJob
    from libtask.messages import TaskChanged


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a job.

    Attributes:
        state: how it ended.
        node: where.
        task: id of its task in the node's hetd; 0: hetd refused it.
        value: its pickled result.
        text: of its error, in one line.
        lines: of its last output, if it failed.
        trace: traceback in its worker, if it failed.

    """

    state: Literal["completed", "failed", "cancelled", "refused"]
    node: str = ""
    task: int = 0
    value: bytes = b""
    text: str = ""
    lines: tuple[str, ...] = ()
    trace: str = ""


def completed(node: str, task: int, value: Any) -> JobOutcome:
    """Return the outcome of a job with a result."""
    try:
        return JobOutcome("completed", node, task, cloudpickle.dumps(value))
    except Exception as error:  # noqa: BLE001  whatever a user's object raises
        text = f"its result cannot be sent: {type(error).__name__}: {error}"
        return JobOutcome("failed", node, task, text=text)


def ended(node: str, change: TaskChanged) -> JobOutcome:
    """Return the outcome of a task that ended without a result."""
    reason = change.reason or "no reason given"
    if change.state == "cancelled":
        return JobOutcome("cancelled", node, change.id, text=reason)
    last = change.last_output
    return JobOutcome(
        "failed",
        node,
        change.id,
        text=reason,
        lines=tuple(last.lines) if last is not None else (),
        trace=change.trace,
    )


def status_after(outcome: JobOutcome, job: PoolJob) -> JobStatus:
    """Return the last status of a job."""
    state: JobState = "failed" if outcome.state == "refused" else outcome.state
    return JobStatus(
        job.id,
        job.app,
        state,
        node=outcome.node,
        task=outcome.task,
        progress=float(state == "completed"),
        reason=outcome.text[:LONGEST_REASON],
    )


def refused(node: str, error: BaseException) -> JobOutcome:
    """Return the outcome of a job that could not be submitted on its node."""
    text = str(error) or type(error).__name__
    return JobOutcome("refused", node, text=text)


def result_of(outcome: JobOutcome, job: str) -> Any:
    """Return the result of a job, or raise its error.

    Raises:
        TaskFailedError: it failed.
        CancelledError: it was cancelled.
        InputError: its node refused it, or the result cannot be read here.

    """
    place = f"task {outcome.node}:{outcome.task}"
    if outcome.state == "completed":
        return _read(outcome, place)
    if outcome.state == "cancelled":
        where = place if outcome.task else f"job {job[:8]}"
        raise CancelledError(f"{where} was cancelled: {outcome.text}")
    if outcome.state == "refused":
        raise InputError(f"job {job[:8]} on {outcome.node}: {outcome.text}")
    failed = TaskFailedError(f"{place} failed: {outcome.text}", outcome.lines)
    if outcome.trace:
        raise failed from RemoteTraceback(outcome.trace)
    raise failed


def _read(outcome: JobOutcome, place: str) -> Any:
    try:
        # from a node of the pool: the same user's own process
        return pickle.loads(outcome.value)  # noqa: S301
    except HetError:
        raise
    except Exception as error:
        text = (
            f"{place}: its result cannot be read here: {type(error).__name__}: {error}"
        )
        raise InputError(text) from error
