"""The Chrome trace of a real run: read as Perfetto reads it, it tells the daemon's history.

Two readers: Perfetto's own trace processor, where its program is on this machine (the
package fetches it on first use; `PERFETTO_BINARY` names one), and the few rules of the
format that matter here, which `Reader` follows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from system.private_daemon import eventually
from system.terminal import Terminal

if TYPE_CHECKING:
    from libtask.messages import TaskInfo
    from system.private_daemon import PrivateDaemon

FETCHED = Path.home() / ".local" / "share" / "perfetto" / "prebuilts"
Span = tuple[str, int, int, int]
"""A stretch: resource, task, start and end in microseconds since the first submission."""


class Reader:
    """Reads a trace by the rules of the format.

    Slices of a thread nest; an arrow's end belongs to the innermost slice open there.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.events: list[dict[str, Any]] = document["traceEvents"]
        self.slices = sorted(
            (each for each in self.events if each["ph"] == "X"),
            key=lambda each: (each["tid"], each["ts"], -each["dur"]),
        )

    def check_nesting(self) -> None:
        """Every slice lies within those that are open when it begins."""
        open_ends: list[float] = []
        thread = None
        for each in self.slices:
            if each["tid"] != thread:
                thread, open_ends = each["tid"], []
            while open_ends and open_ends[-1] <= each["ts"] + 1e-3:
                open_ends.pop()
            end = each["ts"] + each["dur"]
            assert all(end <= outer + 1e-3 for outer in open_ends), each
            open_ends.append(end)

    def tasks(self) -> set[Span]:
        return {
            (
                each["args"]["resource"],
                each["args"]["task"],
                round(each["ts"]),
                round(each["ts"] + each["dur"]),
            )
            for each in self.slices
            if each["cat"] == "task"
        }

    def arrows(self) -> list[tuple[int, int]]:
        """Return the tasks at both ends of each arrow."""
        begins = {e["id"]: e for e in self.events if e["ph"] == "s"}
        ends = {e["id"]: e for e in self.events if e["ph"] == "f"}
        assert begins.keys() == ends.keys()
        return [(self._at(begins[n]), self._at(ends[n])) for n in sorted(begins)]

    def counter(self, name: str) -> list[int]:
        return [
            e["args"]["tasks"]
            for e in self.events
            if (e["ph"], e["name"]) == ("C", name)
        ]

    def _at(self, arrow: dict[str, Any]) -> int:
        found = [
            each
            for each in self.slices
            if (each["tid"], each["cat"]) == (arrow["tid"], "task")
            and each["ts"] - 1e-3 <= arrow["ts"] < each["ts"] + each["dur"]
        ]
        assert len(found) == 1, arrow
        task: int = found[0]["args"]["task"]
        return task


def history(tasks: list[TaskInfo]) -> set[Span]:
    """What the daemon knows, in the form of `Reader.tasks`."""
    origin = min(info.submitted for info in tasks)

    def since(at: float) -> int:
        return round(1e6 * (at - origin))

    return {
        (segment.resource, info.id, since(segment.start), since(segment.finish or 0.0))
        for info in tasks
        for segment in info.segments
    }


def run_some(daemon: PrivateDaemon) -> list[TaskInfo]:
    """Run tasks of which two move, on slots that others wait for."""
    seconds = {"cpu": 3.0, "gpu0": 0.3}  # long enough for the request to move it
    submit = daemon.client.submit
    moved = [
        submit("synthetic", {"seconds": seconds, "strips": 60}, resources=["cpu"])
        for _ in range(2)
    ]
    others = [submit("synthetic", {"seconds": {"cpu": 0.02}}) for _ in range(3)]
    daemon.client.policy("work-conserving")
    for handle in moved:
        daemon.await_state(handle.id, "running")
        daemon.client.migrate(handle.id, "gpu0")
    for handle in [*moved, *others]:
        handle.result(60)
    return [daemon.info(handle.id) for handle in [*moved, *others]]


def exported(daemon: PrivateDaemon, tasks: list[TaskInfo]) -> dict[str, Any]:
    ids = ",".join(str(info.id) for info in tasks)
    trace: dict[str, Any] = Terminal(daemon).json("trace", ids, "--format", "chrome")
    return trace


def test_the_trace_tells_the_daemons_history(daemon: PrivateDaemon) -> None:
    tasks = run_some(daemon)
    moved = [info.id for info in tasks if info.migrations]
    document = exported(daemon, tasks)
    reader = Reader(document)

    reader.check_nesting()
    assert len(moved) == 2
    assert near(reader.tasks(), history(tasks))
    assert sorted(reader.arrows()) == sorted((task, task) for task in moved)
    for name in ("running on cpu", "running on gpu0", "waiting for cpu"):
        counts = reader.counter(name)
        assert min(counts) == counts[-1] == 0, name
        assert max(counts) > 0, name
    told = [each["name"] for each in reader.events if each["ph"] == "i"]
    orders = [text for text in told if "is to stop: its owner moves it" in text]
    assert len(orders) == 2
    assert len(told) == len(history(tasks)) + 2 + 1
    assert any(text.startswith("policy work-conserving, by uid") for text in told)

    program = os.environ.get("PERFETTO_BINARY") or next(
        FETCHED.glob("trace_proc*"), None
    )
    if program is not None:
        read_by_perfetto(document, str(program), tasks)


def test_the_report_tells_of_stops_and_of_the_least_makespan(
    daemon: PrivateDaemon,
) -> None:
    tasks = run_some(daemon)
    ids = ",".join(str(info.id) for info in tasks)

    report = Terminal(daemon).json("report", ids)

    stops = [s for info in tasks for s in info.segments if s.stop_ordered is not None]
    waited = sum((s.computed or 0.0) - (s.stop_ordered or 0.0) for s in stops)
    told = sum(each["checkpoint_wait_s"] for each in report["resources"])
    assert len(stops) == 2
    assert {s.stop_rule for s in stops} == {"its owner moves it"}
    assert all(s.rule for info in tasks for s in info.segments)
    assert abs(told - max(waited, 0.0)) < 0.01
    # not told where load made the expected times too long for what happened
    assert 0 < (report["lower_bound_s"] or 1e-9) <= report["makespan_s"]
    assert Terminal(daemon).json("report", ids, "--no-bound")["lower_bound_s"] is None


def near(some: set[Span], others: set[Span]) -> bool:
    """Whether the spans are equal but for a microsecond of rounding."""
    pairs = zip(sorted(some), sorted(others), strict=True)
    return all(
        one[:2] == other[:2]
        and abs(one[2] - other[2]) <= 1
        and abs(one[3] - other[3]) <= 1
        for one, other in pairs
    )


def read_by_perfetto(
    document: dict[str, Any], program: str, tasks: list[TaskInfo]
) -> None:
    """Load the trace into Perfetto's trace processor and ask it the same."""
    perfetto = pytest.importorskip("perfetto.trace_processor")
    config = perfetto.TraceProcessorConfig(bin_path=program)
    blob = iter([json.dumps(document).encode()])
    with perfetto.TraceProcessor(trace=blob, config=config) as processor:
        rows = processor.query(
            "select extract_arg(arg_set_id, 'args.resource') as resource,"
            " extract_arg(arg_set_id, 'args.task') as task, ts, ts + dur as end"
            " from slice where category = 'task'"
        )
        found = {(r.resource, int(r.task), r.ts // 1000, r.end // 1000) for r in rows}
        assert near(found, history(tasks))
        flows = list(processor.query("select count(*) as n from flow"))
        assert flows[0].n == sum(info.migrations for info in tasks)
        counters = processor.query("select distinct name from counter_track")
        assert {"running on cpu", "waiting for cpu"} <= {r.name for r in counters}


def test_a_broken_nesting_is_noticed() -> None:
    head = {"ph": "X", "tid": 1, "cat": "task", "args": {"task": 1}}
    slices = [{**head, "ts": 0.0, "dur": 5.0}, {**head, "ts": 3.0, "dur": 5.0}]

    with pytest.raises(AssertionError):
        Reader({"traceEvents": slices}).check_nesting()


def test_a_running_task_is_drawn_until_now(daemon: PrivateDaemon) -> None:
    task = daemon.client.submit("synthetic", {"seconds": {"cpu": 60}, "strips": 600})
    info = daemon.await_state(task.id, "running")
    eventually(lambda: daemon.info(task.id).progress > 0, "progress")

    reader = Reader(exported(daemon, [info]))

    reader.check_nesting()
    (whole,) = reader.tasks()
    assert whole[:2] == ("cpu", task.id)
    assert reader.counter("running on cpu") == [1, 0]
