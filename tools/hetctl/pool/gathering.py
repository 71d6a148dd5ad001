"""The nodes and tasks of a pool, gathered from the broker and from every node.

hetd is the record of what ran: each node is asked for its tasks of the pool. The broker
adds those that no hetd has yet, or ever had. Tasks of one job on several nodes are one
task here: it moved, or its node was lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from hetctl.output import now
from hetpool.inquiry import AskNode, AskTasks, NodeFacts, TaskFacts
from hetpool.jobs import ENDED, described_at
from hetpool.node.tasks import MOVED, job_of
from libtask.apps import short_name
from libtask.errors import HetError, InputError, NotFoundError
from libtask.messages import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hetpool.client.pool import Pool
    from hetpool.inquiry import AnyQuestion, TransferRecord
    from hetpool.jobs import JobStatus, PoolNode
    from libtask.messages import DeviceInfo, Note, TaskInfo

AT_ONCE = 16
"""Nodes that are asked at the same time."""
SHORT = 8
"""Digits of a job's id that name it before it has a node."""
LEAST_PREFIX = 4
LONGEST_WAIT_S = 30 * 86_400.0
"""Seconds from the description of a job to its submission on a node, at most. An id says
something else if it was not made by `new_id`, such as those of earlier versions."""
NANO = 1_000_000_000
Kind = TypeVar("Kind")
LEFT = f"cancelled by its owner: {MOVED}"
"""The reason of a task that the pool moved away."""
STATES = {"waiting": "waiting", "placed": "transferring", "moving": "moving"}
"""States of a job that no hetd has."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, with what it says about itself."""

    node: PoolNode
    facts: NodeFacts | None = None
    problem: str = ""


@dataclass(slots=True)
class TaskView:
    """A task of the pool.

    Attributes:
        job: its id in the pool.
        attempts: (node, task there), the earliest first.
        status: from the broker; None: it has forgotten it. With `finished` it is the end of
            a job that no hetd had, or that left one and ended before another had it.
        hidden: nodes that may have it and did not answer, with the reason; empty: none.

    """

    job: str
    attempts: list[tuple[str, TaskInfo]] = field(default_factory=list)
    status: JobStatus | None = None
    hidden: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        if not self.attempts:
            return self.job[:SHORT]
        node, info = self.attempts[-1]
        return f"{node}:{info.id}"

    @property
    def info(self) -> TaskInfo | None:
        """The task in the hetd of its last node; None: none has it yet."""
        return self.attempts[-1][1] if self.attempts else None

    @property
    def has_left(self) -> bool:
        """Whether its last known node has given it up for another one."""
        info = self.info
        return info is not None and info.state == "cancelled" and info.reason == LEFT

    @property
    def node(self) -> str:
        if self.hidden:
            return self.status.node if self.status is not None else ""
        if self.attempts:
            return self.attempts[-1][0]
        return self.status.node if self.status is not None else ""

    @property
    def state(self) -> str:
        status, info = self.status, self.info
        if status is not None and status.finished:
            return status.state
        if self.hidden or self.has_left:
            return "unreachable" if self.hidden else "moving"
        if status is not None and status.state in ("moving", "waiting", "placed"):
            return STATES[status.state]
        if info is not None:
            return info.state
        return status.state if status is not None else "waiting"

    @property
    def app(self) -> str:
        if self.info is not None:
            return _label_of(self.info)
        return short_name(self.status.app) if self.status is not None else ""

    @property
    def moves(self) -> int:
        """Number of times that it began on another node."""
        return max(0, len(self.attempts) - 1)

    @property
    def ended(self) -> bool:
        return self.state in ENDED or self.state == "dropped"

    @property
    def submitted(self) -> float | None:
        return self.attempts[0][1].submitted if self.attempts else None

    @property
    def finished(self) -> float | None:
        """When it ended, seconds since the epoch; None: it has not, or is out of reach."""
        if self.hidden:
            return None
        if self.status is not None and self.status.finished:
            return self.status.finished
        return self.info.finished if self.info is not None else None


def _label_of(info: TaskInfo) -> str:
    """Return the name of an application; of a program, its own."""
    if info.app == COMMAND:
        return info.type.partition("/")[2] or info.app
    return short_name(info.app)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The tasks of a pool, the newest first."""

    tasks: list[TaskView]
    devices: dict[str, list[DeviceInfo]]
    """Node -> its devices."""
    notes: dict[str, list[Note]]
    transfers: dict[str, list[TransferRecord]]
    """Node -> the files that it received lately."""
    unanswered: dict[str, str]
    """Node -> why it did not answer; its tasks may be missing."""

    def emulated(self, node: str) -> frozenset[str]:
        """Return the names of a node's emulated devices."""
        found = self.devices.get(node, [])
        return frozenset(each.spec.name for each in found if each.spec.emulated)


def nodes_of(pool: Pool) -> list[NodeView]:
    """Ask all nodes about themselves."""
    nodes = sorted(pool.nodes(), key=lambda node: node.name)
    answers = _ask_all(
        pool, [node for node in nodes if node.present], AskNode(), NodeFacts
    )
    views = []
    for node in nodes:
        answer = answers.get(node.name)
        if isinstance(answer, NodeFacts):
            views.append(NodeView(node, answer))
        else:
            views.append(NodeView(node, problem=str(answer or "not connected")))
    return views


def gathered(
    pool: Pool, *, since: float | None = None, limit: int = 10_000
) -> Gathered:
    """Gather the tasks of the pool.

    Args:
        pool: the connection.
        since: only tasks that have not ended, or ended after it.
        limit: most tasks of a node.

    """
    nodes = pool.nodes()
    statuses = [
        each
        for each in pool.tasks(ended=True)
        if not each.finished or each.finished >= (since or 0.0)
    ]
    working = [node for node in nodes if node.present and not node.gateway]
    question = AskTasks(limit=limit, since=since)
    answers = _ask_all(pool, working, question, TaskFacts)
    known = {
        name: each for name, each in answers.items() if isinstance(each, TaskFacts)
    }
    failed = {
        n: str(each) for n, each in answers.items() if not isinstance(each, TaskFacts)
    }
    failed |= {
        node.name: "not connected"
        for node in nodes
        if not node.present and not node.gateway
    }
    return Gathered(
        _views(known, statuses, failed),
        {name: each.devices for name, each in known.items()},
        {name: each.notes for name, each in known.items()},
        {name: each.transfers for name, each in known.items()},
        failed,
    )


def _views(
    known: dict[str, TaskFacts],
    statuses: Iterable[JobStatus],
    unanswered: dict[str, str],
) -> list[TaskView]:
    found: dict[str, TaskView] = {}
    pieces = []
    for node, facts in known.items():
        for info in facts.tasks:
            job = job_of(info.name)
            if job is not None:
                pieces.append((job.generation, info.submitted, node, info, job.id))
    for _, _, node, info, job_id in sorted(pieces, key=lambda piece: piece[:3]):
        view = found.setdefault(job_id, TaskView(job_id))
        view.attempts.append((node, info))
    for status in statuses:
        found.setdefault(status.id, TaskView(status.id)).status = status
    for view in found.values():
        view.hidden = _hidden(view, unanswered)
    return sorted(found.values(), key=_age, reverse=True)


def _hidden(view: TaskView, unanswered: dict[str, str]) -> dict[str, str]:
    """Return the nodes without an answer on which a task may be, with the reasons.

    The broker knows the node of an unfinished job. One that it has forgotten has ended, on
    any node to which it may have moved.
    """
    status = view.status
    if status is None:
        return unanswered if view.has_left else {}
    if status.state != "placed" or status.node not in unanswered:
        return {}
    return {status.node: unanswered[status.node]}


def _age(view: TaskView) -> tuple[float, int, str]:
    """Order by submission, as `last` does on a node: the last task of an array is its newest.

    Nodes get the tasks of a batch in the order of its plan, and count in clocks of their own.
    What is known from them orders only jobs whose ids do not say when their client described
    them; of these, jobs that no hetd has are the newest, until they have ended.
    """
    known = view.submitted if view.submitted is not None else view.finished
    described = described_at(view.job)
    if abs((now() if known is None else known) - described / NANO) < LONGEST_WAIT_S:
        return (described, 0, view.job)
    submitted = float("inf") if known is None else known * NANO
    return (submitted, view.status.order if view.status is not None else 0, view.job)


def _ask_all(
    pool: Pool, nodes: Sequence[PoolNode], question: AnyQuestion, kind: type[Kind]
) -> dict[str, Kind | HetError]:
    def ask(node: PoolNode) -> Kind | HetError:
        try:
            return pool.inquire(node.name, question, kind)
        except HetError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip((n.name for n in nodes), threads.map(ask, nodes), strict=True))


# ------------------------------------------------------------ selectors


def chosen(found: Gathered, selectors: Sequence[str]) -> list[TaskView]:
    """Return the tasks that selectors name, each once.

    A selector is NODE:NUMBER, the beginning of a job's id, `last`, `all`, or a comma list.

    Raises:
        InputError: a word is not a selector, or names several jobs.
        NotFoundError: no task has that name.

    """
    words = [word.strip() for text in selectors for word in text.split(",")]
    views = {view.job: view for word in words for view in _named(found, word)}
    return list(views.values())


def _named(found: Gathered, word: str) -> list[TaskView]:
    if word == "all":
        return found.tasks
    if word == "last":
        if not found.tasks:
            raise NotFoundError("the pool has no tasks")
        return found.tasks[:1]
    if ":" in word:
        return [_at(found, word)]
    return [_of_job(found, word)]


def _at(found: Gathered, word: str) -> TaskView:
    node, _, number = word.rpartition(":")
    if not number.isdigit():
        raise InputError(f"selector {word[:80]!r}: expected NODE:NUMBER")
    for view in found.tasks:
        if any(n == node and str(info.id) == number for n, info in view.attempts):
            return view
    reason = found.unanswered.get(node)
    raise NotFoundError(
        f"no task {word[:80]}" + (f": {node}: {reason}" if reason else "")
    )


def _of_job(found: Gathered, word: str) -> TaskView:
    if len(word) < LEAST_PREFIX or not all(each in "0123456789abcdef" for each in word):
        raise InputError(
            f"selector {word[:80]!r}: expected NODE:NUMBER, the first digits of a job "
            f"({LEAST_PREFIX} at least), last or all"
        )
    views = [view for view in found.tasks if view.job.startswith(word)]
    if not views:
        raise NotFoundError(f"no task of a job {word}")
    if len(views) > 1:
        raise InputError(
            f"selector {word!r}: {len(views)} jobs begin so; give more digits"
        )
    return views[0]
