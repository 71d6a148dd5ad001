"""The machines: the paper's rack and one of its nodes, and the scenarios of jobs on them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetpapers.banerjee.workload import (
    KERNELS,
    SIZE_OF_JOB,
    SIZE_OF_TASK,
    TEMPLATES,
    draw_graph,
    draw_random_graph,
)
from hetsim.scenario import check_scenario

if TYPE_CHECKING:
    from hetpapers.banerjee.workload import DrawnGraph, GraphKernel
    from hetsim.scenario import Scenario

BYTES_PER_S = 1e9
"""Rate of a link; a result of x seconds has x times as many bytes."""
CORES = (0.5, 0.5)
"""Load of a kernel on the cores of its socket; share of the time not bound to memory that
is bound to them."""
SLICES = (0.5, 0.5)
"""The same of a GPU's time slices, and of the time not bound to its link."""
TRUE_TIME = 0.1
"""Standard deviation of the logarithm of a true time over the expected one."""
HORIZON_S = 1200.0
CHANGES_S = 60.0
LEVELS_TOGETHER = (0.0, 0.0, 0.2, 0.45, 0.8, 1.3)
"""Loads of tenants that come and go together: until when, how often, and which."""
STRIPS = 10
MOVE_S = 0.5
WATTS = {"cpu": 190.0, "k40": 235.0, "k80": 300.0, "fpga": 25.0}
KINDS = {"cpu": "cpu", "k40": "gpu", "k80": "gpu", "fpga": "fpga"}
RECONFIGURE_S = 3.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine, the jobs on it, and what the scheduler sees.

    Attributes:
        machine: `rack`, `half-rack` (three of its nodes) or `node`.
        jobs: number of jobs; `every_s`: mean time between arrivals, 0: all at once.
        counters: `usual`, `poor` (three times the noise, half missing), `none`, or `true`:
            the load itself, every quarter of a second; `poor, last`: the last ones count
            without a filter, small stalls as noise; `poor, raw`: as they are.
        law: that holds; schedulers assume `max`.
        weights: of the levels of other programs' loads.
        mean_s: mean time at a level.
        graphs: `templates`, or `random`: graphs of the same kernels.
        tenants: `independent`, or `together`: the load of all that a node shares changes
            at once, to levels that schedulers do not assume.
        wrong: share by which expected times are wrong at most.

    """

    machine: str = "rack"
    jobs: int = 1
    every_s: float = 0.0
    counters: str = "usual"
    law: str = "max"
    weights: tuple[float, ...] = (0.35, 0.2, 0.2, 0.15, 0.1)
    mean_s: float = 60.0
    graphs: str = "templates"
    tenants: str = "independent"
    wrong: float = 0.0


COUNTERS: dict[str, dict[str, Any] | None] = {
    "usual": {"samples": 8, "missing": 0.1, "every_s": 2.0},
    "poor": {
        "samples": 8,
        "noise": {"bandwidth": 0.45, "stall": 0.3},
        "missing": 0.5,
        "every_s": 2.0,
    },
    "poor, last": {
        "samples": 8,
        "noise": {"bandwidth": 0.45, "stall": 0.3},
        "missing": 0.5,
        "every_s": 2.0,
        "belief": "last",
    },
    "poor, raw": {
        "samples": 8,
        "noise": {"bandwidth": 0.45, "stall": 0.3},
        "missing": 0.5,
        "every_s": 2.0,
        "belief": "raw",
    },
    "none": None,
    "true": {"samples": 8, "noise": {"offered": 1e-3}, "missing": 0.0, "every_s": 0.25},
}


class Testbed:
    """Processors and what they share, as parts of a scenario.

    Attributes:
        processors: name -> model.

    """

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self.shared: list[dict[str, Any]] = []
        self.processors: dict[str, str] = {}

    def add_node(
        self, number: int, accelerators: dict[str, int], *, alone: bool
    ) -> None:
        """Add a node with two sockets.

        Args:
            number: of the node.
            accelerators: model -> socket that it is attached to.
            alone: whether it has no network.

        """
        self._share(f"xbus{number}", "bus", 2.0 * BYTES_PER_S)
        common = {"bus": f"xbus{number}"}
        if not alone:
            self._share(f"nic{number}", "network", BYTES_PER_S)
            common["network"] = f"nic{number}"
        for socket in range(2):
            side = f"{number}{'ab'[socket]}"
            self._share(f"cores{side}", "cores")
            self._share(f"mem{side}", "memory")
            self._share(f"pcie{side}", "link", BYTES_PER_S)
            uses = {"memory": f"mem{side}", **common}
            self._add(f"cpu{side}", "cpu", 2, {**uses, "cores": f"cores{side}"})
            for model, where in accelerators.items():
                if where == socket:
                    self._attach(f"{model}-{number}", model, side, uses)

    def loads_of(self, kernel: GraphKernel) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return loads and bound shares of a kernel on each processor that can run it."""
        load: dict[str, Any] = {}
        bound: dict[str, Any] = {}
        for each in self.resources:
            name, uses = each["name"], each["uses"]
            if self.processors[name] not in kernel.seconds:
                continue
            cpu = self.processors[name] == "cpu"
            kind, own = ("memory", kernel.memory) if cpu else ("link", kernel.link)
            load[name], bound[name] = {uses[kind]: own[0]}, {uses[kind]: own[1]}
            for part, (demand, share) in (("cores", CORES), ("slices", SLICES)):
                if part in uses:
                    load[name][uses[part]] = demand
                    bound[name][uses[part]] = share * (1.0 - own[1])
        return load, bound

    def _share(self, name: str, kind: str, rate: float | None = None) -> None:
        self.shared.append({"name": name, "kind": kind, "bytes_per_s": rate})

    def _attach(self, name: str, model: str, side: str, uses: dict[str, str]) -> None:
        uses = {**uses, "link": f"pcie{side}"}
        if KINDS[model] == "gpu":
            self._share(f"slices-{name}", "slices")
            uses["slices"] = f"slices-{name}"
        self._add(name, model, 1, uses)

    def _add(self, name: str, model: str, slots: int, uses: dict[str, str]) -> None:
        self.processors[name] = model
        self.resources.append(
            {
                "name": name,
                "kind": KINDS[model],
                "slots": slots,
                "busy_watts": WATTS[model],
                "reconfigure_s": RECONFIGURE_S if model == "fpga" else 0.0,
                "uses": uses,
            }
        )


def make_machine(name: str) -> Testbed:
    """Make the rack of the paper (section 5), half of it, or a node with each accelerator."""
    machine = Testbed()
    if name == "node":
        machine.add_node(0, {"k40": 0, "k80": 1, "fpga": 0}, alone=True)
        return machine
    for number in range(3 if name == "half-rack" else 6):
        accelerators = {"k80": number % 2}
        if number in (0, 3):
            accelerators["k40"] = 1 - number % 2
        if number in (1, 4):
            accelerators["fpga"] = 1 - number % 2
        machine.add_node(number, accelerators, alone=False)
    return machine


def make_scenario(setting: Setting, seed: int) -> Scenario:
    """Draw the jobs of a setting; other programs' loads are drawn from the run's own seed."""
    generator = random.Random(f"banerjee {setting.machine} {setting.jobs} {seed}")
    machine = make_machine(setting.machine)
    document = _base(setting, machine)
    document |= {"format": "hetsim/scenario-1", "tasks": []}
    draw = draw_random_graph if setting.graphs == "random" else draw_graph
    arrival = 0.0
    for number in range(setting.jobs):
        _add_job(document, machine, draw(generator), (number, arrival), generator)
        if setting.every_s:
            arrival += generator.expovariate(1.0 / setting.every_s)
    if setting.tenants == "together":
        document["background"] = _loads_together(machine, seed)
    return check_scenario(document)


def make_family(setting: Setting) -> dict[str, Any]:
    """Return the document of a family: the templates on a machine, drawn for each episode."""
    document = _base(setting, make_machine(setting.machine))
    templates = [
        {
            "name": f"{template.__name__.strip('_')}-{width}",
            "weight": 1.0 / (most - least + 1),
            "tasks": [
                {"type": task.kernel, "after": task.after}
                for task in template(width).tasks
            ],
        }
        for template, least, most in TEMPLATES
        for width in range(least, most + 1)
    ]
    return document | {
        "format": "hetsim/family-1",
        "templates": templates,
        "jobs": [1, setting.jobs],
        "every_s": setting.every_s,
        "spread": {"job": SIZE_OF_JOB, "task": SIZE_OF_TASK, "time": TRUE_TIME},
    }


def _base(setting: Setting, machine: Testbed) -> dict[str, Any]:
    """Return what scenarios and families have in common."""
    return {
        "resources": machine.resources,
        "shared": machine.shared,
        "types": [_type_of(machine, kernel, kernel, 1.0) for kernel in KERNELS],
        "background": {
            "levels": [0.0, 0.3, 0.6, 1.0, 1.5],
            "weights": list(setting.weights),
            "mean_s": setting.mean_s,
            "scale": {"bus": 0.5, "network": 0.5},
        },
        "counters": COUNTERS[setting.counters],
        "contention": {"law": setting.law},
    }


def _loads_together(machine: Testbed, seed: int) -> list[dict[str, Any]]:
    """Draw loads that change at once on all that a node shares."""
    generator = random.Random(f"together {machine.processors} {seed}")
    steps: dict[str, list[tuple[float, float]]] = {
        x["name"]: [] for x in machine.shared
    }
    for node in sorted({_node_of(name) for name in steps}):
        at = 0.0
        while at < HORIZON_S:
            level = generator.choice(LEVELS_TOGETHER)
            for name, found in steps.items():
                if _node_of(name) == node:
                    found.append((at, level))
            at += generator.expovariate(1.0 / CHANGES_S)
    return [{"shared": name, "steps": found} for name, found in steps.items()]


def _node_of(shared: str) -> str:
    """Return the number of a shared resource's node: the only digit after a letter or dash."""
    return next(c for c in reversed(shared) if c.isdigit())


def _add_job(
    document: dict[str, Any],
    machine: Testbed,
    graph: DrawnGraph,
    which: tuple[int, float],
    generator: random.Random,
) -> None:
    number, arrival = which
    for place, task in enumerate(graph.tasks):
        name = f"{task.kernel}/{number}.{place}"
        entry = _type_of(machine, name, task.kernel, task.size)
        document["types"].append(entry)
        factor = generator.lognormvariate(0.0, TRUE_TIME)
        document["tasks"].append(
            {
                "id": f"{number}.{place}",
                "type": name,
                "job": f"job{number}",
                "arrival": arrival,
                "inputs": [{"from": f"{number}.{other}"} for other in task.after],
                "actual_seconds": {
                    resource: seconds * factor
                    for resource, seconds in entry["seconds"].items()
                },
            }
        )


def _type_of(machine: Testbed, name: str, kernel: str, size: float) -> dict[str, Any]:
    figures = KERNELS[kernel]
    load, bound = machine.loads_of(figures)
    return {
        "name": name,
        "seconds": {
            resource: size * figures.seconds[model]
            for resource, model in machine.processors.items()
            if model in figures.seconds
        },
        "load": load,
        "bound": bound,
        "strips": STRIPS,
        "migration_s": MOVE_S,
        "output_bytes": size * figures.output * BYTES_PER_S,
    }
