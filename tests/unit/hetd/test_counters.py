"""Counters of what resources share: found, read at a bounded rate, and given up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from hetd.clock import Clock
from hetd.config import ContentionTable, read_config
from hetd.devices.counters.cores import RunnableThreads, WaitingForCores
from hetd.devices.counters.find import SAMPLES, FoundCounters
from hetd.devices.counters.reader import CounterReader
from hetd.devices.counters.source import CounterError, CounterName, MissingCounter
from hetd.devices.sharing import make_model
from hetd.timers import Timers
from hetsched import events as e
from hetsched.contention import Load
from hetsched.estimates.point import Figures
from hetsched.estimates.table import EstimateTable
from hetsched.ids import TaskId
from hetsched.policies import make_policy
from hetsched.scheduler import Scheduler
from hetsched.system import SECOND
from libtask import messages as m
from libtask.errors import InputError
from unit.daemon_shell import Shell, a_spec

if TYPE_CHECKING:
    from hetsched.events import Event

CPU = m.DeviceInfo(m.DeviceSpec("cpu", "cpu", threads=1), slots=4)
CARD = m.DeviceInfo(m.DeviceSpec("gpu0", "gpu", "opencl"), link_bytes_per_s=1e10)
EMULATED = m.DeviceInfo(m.DeviceSpec("gpu1", "gpu", "opencl", emulated=True))
FOUND = ContentionTable(discover=True)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ---------------------------------------------------------------- the model


def test_nothing_is_modelled_without_a_table() -> None:
    assert make_model(ContentionTable(), [CPU, CARD], 4) is None


def test_cores_memory_links_and_slices_are_found() -> None:
    model = make_model(FOUND, [CPU, CARD, EMULATED], 4)

    assert model is not None
    assert {each.name: each.kind for each in model.shared.values()} == {
        "cores": "cores",
        "memory": "memory",
        "link-gpu0": "link",
        "slices-gpu0": "slices",
    }
    assert model.shared["link-gpu0"].bytes_per_s == 1e10
    assert model.uses["gpu1"] == {"cores": "cores", "memory": "memory"}
    # a task takes one of four cores on the CPU, and all of them on an emulation
    assert model.loads_of("heat/64", "cpu")[0] == Load("cores", 0.25, 1.0)
    assert model.loads_of("heat/64", "gpu1")[0] == Load("cores", 1.0, 1.0)


def test_a_table_says_more_than_what_is_found(tmp_path: Path) -> None:
    text = """
        [contention]
        discover = true
        shared = [{ name = "bank0", kind = "memory" }]
        uses = { cpu = { memory = "bank0" } }

        [[contention.load]]
        app = "heat"
        resource = "cpu"
        shared = "bank0"
        demand = 0.8
        bound = 0.5
    """
    config = read_config(written(tmp_path, "hetd.toml", text))

    model = make_model(config.contention, [CPU], 4)

    assert model is not None
    assert model.uses["cpu"] == {"cores": "cores", "memory": "bank0"}
    assert list(model.shared) == ["bank0", "cores"]
    # what the table leaves out is as usual
    cores = Load("cores", 0.25, 1.0)
    assert model.loads_of("heat/64", "cpu") == (cores, Load("bank0", 0.8, 0.5))
    assert model.loads_of("markov/64", "cpu") == (cores, Load("bank0", 0.3, 0.3))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("every_s = 0.01", "contention.every_s: expected at least 0.1"),
        (
            "shared = [{ name = 'a', kind = 'disk' }]",
            'kind: expected "cores", .* or "network", got "disk"',
        ),
        (
            "shared = [{ name = 'a', kind = 'link' }, { name = 'a', kind = 'bus' }]",
            r"contention.shared\[1\].name: 'a' is taken",
        ),
        (
            "load = [{ app='x', resource='cpu', shared='m', demand=1, bound=2.0 }]",
            r"contention.load\[0\].bound: expected a share from 0 to 1",
        ),
        (
            "discovers = true",
            r"contention.discovers: unknown key \(did you mean discover\?\)",
        ),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read_config(written(tmp_path, "hetd.toml", f"[contention]\n{text}\n"))


def test_names_that_are_not_there_are_refused() -> None:
    uses = {"cpu": {"memory": "none"}}
    table = msgspec.structs.replace(FOUND, uses=uses)

    with pytest.raises(InputError, match=r"contention.uses.cpu.memory: no 'none'"):
        make_model(table, [CPU], 4)


# ---------------------------------------------------------------- the sources


def test_threads_that_are_ready_are_the_offered_load(tmp_path: Path) -> None:
    file = written(tmp_path, "stat", "cpu 1 2 3\nprocs_running 7\nprocs_blocked 0\n")

    # the reader itself does not count
    assert RunnableThreads("cores", 4, file).sample(0) == 1.5


def test_waiting_is_the_growth_of_the_pressure_total(tmp_path: Path) -> None:
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull total=0\n"
    file = written(tmp_path, "cpu", line.format(1000))
    source = WaitingForCores("cores", file)

    first = source.sample(SECOND)
    file.write_text(line.format(251_000))

    assert (first, source.sample(2 * SECOND)) == (None, 0.25)


@pytest.mark.parametrize("text", ["", "procs_running many\n", "some total=x\n"])
def test_an_unknown_form_is_no_counter(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, "file", text)
    for source in (RunnableThreads("cores", 2, file), WaitingForCores("cores", file)):
        with pytest.raises(CounterError):
            source.sample(0)
    with pytest.raises(CounterError, match="No such file"):
        WaitingForCores("cores", tmp_path / "absent").sample(0)


# ---------------------------------------------------------------- the rate


ABSENT = MissingCounter(CounterName("card", "", "bandwidth"), "no card")
A_SOURCE = ("file", "cores", "offered")


class Source:
    """Shows a value, until it breaks."""

    def __init__(self) -> None:
        self.name = CounterName("file", "cores", "offered")
        self.samples = self.rests = 0
        self.value: float | None = 1.5

    def sample(self, now: int) -> float | None:
        self.samples += 1
        if self.value is None:
            raise CounterError("gone")
        return self.value

    def rest(self) -> None:
        self.rests += 1


class Node:
    """A scheduler with counters, and its timers."""

    def __init__(self, policy: str) -> None:
        model = make_model(FOUND, [CPU], 4)
        resources: list[Any] = []
        policies = make_policy(policy, {})
        self.scheduler = Scheduler(
            resources, EstimateTable(), policies, contention=model
        )
        self.timers = Timers()
        self.source = Source()
        self.reader = CounterReader(
            FoundCounters([self.source], [ABSENT]), self.scheduler, self.timers, 2.0, 0
        )

    def until(self, seconds: int) -> list[Event]:
        found: list[Event] = []
        while (now := self.timers.next() or 10**18) <= seconds * SECOND:
            found += [event for act in self.timers.due(now) for event in act(now)]
        return found


def test_samples_become_an_event_every_interval() -> None:
    node = Node("contention-aware")

    found = node.until(20)

    # the first interval passes before the first sample
    assert node.source.samples == 9 * SAMPLES + 1
    assert len(found) == 9
    assert found[0] == e.CountersRead(
        (e.CounterReading("cores", "offered", 1.5, 0.15, 2),)
    )


def test_no_counter_is_read_for_a_policy_without_belief() -> None:
    node = Node("affinity")

    assert node.until(20) == []
    assert node.source.samples == 0
    assert node.reader.describe()[0] == m.CounterState(*A_SOURCE, "unused")


def test_a_counter_that_breaks_is_not_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node("contention-aware")
    node.until(3)
    node.source.value = None
    before = node.source.samples

    assert node.until(20) == []
    assert node.source.samples == before + 1
    assert "lost the counter offered from file: gone" in caplog.text
    assert node.reader.describe()[-1] == m.CounterState(*A_SOURCE, "missing", "gone")


def test_what_is_read_is_described_with_the_reasons_for_the_rest() -> None:
    node = Node("contention-aware")
    absent = m.CounterState("card", "", "bandwidth", "missing", "no card")

    assert node.reader.describe() == [m.CounterState(*A_SOURCE, "starting"), absent]
    node.until(3)
    assert node.reader.describe() == [m.CounterState(*A_SOURCE, "read"), absent]


def test_a_source_rests_while_the_policy_does_not_ask() -> None:
    node = Node("contention-aware")
    node.until(5)

    node.scheduler.policy = make_policy("affinity", {})
    node.until(9)

    assert node.source.rests
    assert node.reader.describe()[0].state == "unused"


def test_a_source_with_few_values_is_reported_when_there_are_two() -> None:
    node = Node("contention-aware")
    values = iter([1.0, *[None] * (2 * SAMPLES - 2), 2.0, *[None] * SAMPLES])
    node.source.sample = lambda now: next(values)  # type: ignore[method-assign]

    (found,) = node.until(7)

    assert isinstance(found, e.CountersRead)
    assert found.readings[0].mean == 1.5


# ---------------------------------------------------------------- in the daemon


class Time:
    now = 0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now / SECOND)


def a_shell(folder: Path, time: Time, policy: str) -> Shell:
    devices = [
        m.DeviceInfo(m.DeviceSpec("cpu", "cpu", "null")),
        m.DeviceInfo(m.DeviceSpec("gpu0", "gpu", "null")),
    ]
    table = ContentionTable(discover=True, every_s=3600.0)
    shell = Shell(folder, time.clock(), devices, contention=table)
    shell.runtime.change_policy(make_policy(policy, {}))
    return shell


def loads(shell: Shell) -> m.DeviceList:
    answer: m.DeviceList = shell.ask(m.Devices(1))
    return answer


def test_the_belief_is_shown_with_what_it_rests_on(tmp_path: Path) -> None:
    time = Time()
    shell = a_shell(tmp_path, time, "contention-aware")

    before = loads(shell)
    reading = e.CounterReading("cores", "offered", 1.5, 0.15, 2)
    for _ in range(5):
        shell.runtime.dispatch(e.CountersRead((reading,)))
    time.now = 2 * SECOND
    cores = loads(shell).shared[0]

    assert before.believed
    assert before.shared[0].evidence == []
    assert before.shared[0].probabilities == pytest.approx([0.35, 0.2, 0.2, 0.15, 0.1])
    assert cores.levels[-1] == 1.5
    assert cores.probabilities[-1] > 0.9
    assert cores.evidence == [m.LoadEvidence("offered", 1.5, 5, 2.0)]
    shell.close()


def test_without_a_table_nothing_is_shown(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    assert loads(shell).shared == []
    assert not loads(shell).believed
    shell.close()


def test_a_task_goes_where_other_programs_do_not_compute(tmp_path: Path) -> None:
    """The same times alone: with busy cores the card is better, and else the CPU."""
    where = {}
    for offered in (0.0, 1.5):
        time = Time()
        folder = tmp_path / str(offered)
        folder.mkdir()
        shell = a_shell(folder, time, "contention-aware")
        crowding = shell.runtime.scheduler.system.crowding
        assert crowding is not None
        crowding.model.loads["app", "gpu0"] = ()
        for name, seconds in (("cpu", 10.0), ("gpu0", 12.0)):
            shell.parts.estimates.enter(Figures("app", name, seconds, 1.0))
        reading = e.CounterReading("cores", "offered", offered, 0.15, 2)
        for _ in range(5):
            shell.runtime.dispatch(e.CountersRead((reading,)))
        (task,) = shell.submit(a_spec(work=1.0))
        where[offered] = shell.runtime.scheduler.system.tasks[TaskId(task)].resource
        shell.close()

    assert where == {0.0: "cpu", 1.5: "gpu0"}
