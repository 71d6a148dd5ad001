"""The jobs: three templates of data-flow graphs over fifteen kernels, with drawn sizes.

The paper names its applications (section 5) and prints no graph and no time. These are
plausible, not measured; `docs/papers/banerjee.md` lists the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

RANDOM_TASKS = (8, 20)
FIRST_TASKS = 3
REACH = 5
"""Of random graphs: least and greatest number of tasks; those that read nothing; how far
back a task reads."""
SIZE_OF_JOB = 0.3
SIZE_OF_TASK = 0.2
"""Standard deviations of the logarithms of sizes."""


@dataclass(frozen=True, slots=True)
class GraphKernel:
    """A kernel.

    Attributes:
        seconds: model of processor -> seconds alone; it runs on no other.
        memory: load on the memory of a CPU, and share of the time bound to it.
        link: the same of an accelerator's link.
        output: seconds that its result takes over one link.

    """

    seconds: dict[str, float]
    memory: tuple[float, float]
    link: tuple[float, float]
    output: float


def _kernel(
    times: tuple[float | None, ...],
    memory: tuple[float, float],
    link: tuple[float, float],
    output: float,
) -> GraphKernel:
    models = ("cpu", "k40", "k80", "fpga")
    known = {m: t for m, t in zip(models, times, strict=True) if t is not None}
    return GraphKernel(known, memory, link, output)


KERNELS = {
    "align": _kernel((24, 11, 9, 6), (0.35, 0.4), (0.3, 0.3), 1.0),
    "sort": _kernel((8, 6, 5, None), (0.6, 0.7), (0.6, 0.5), 1.0),
    "dedup": _kernel((7, None, None, None), (0.5, 0.6), (0.0, 0.0), 0.8),
    "recalibrate": _kernel((9, 5, 4.5, None), (0.4, 0.4), (0.4, 0.3), 0.8),
    "assemble": _kernel((10, None, None, None), (0.3, 0.3), (0.0, 0.0), 0.5),
    "pairhmm": _kernel((28, 5, 4, 3), (0.15, 0.1), (0.2, 0.15), 0.2),
    "genotype": _kernel((5, None, None, None), (0.3, 0.3), (0.0, 0.0), 0.1),
    "filter": _kernel((5, 2.2, 2, None), (0.5, 0.5), (0.6, 0.5), 0.6),
    "fft": _kernel((4, 1.3, 1.1, 1.2), (0.5, 0.5), (0.7, 0.6), 0.5),
    "features": _kernel((4, 2, 1.8, None), (0.3, 0.3), (0.4, 0.3), 0.2),
    "fginfer": _kernel((18, 7, 6, 2.5), (0.2, 0.2), (0.15, 0.1), 0.1),
    "localize": _kernel((8, 4, 3.6, None), (0.3, 0.3), (0.2, 0.2), 0.1),
    "parse": _kernel((3, None, None, None), (0.4, 0.4), (0.0, 0.0), 0.4),
    "hashjoin": _kernel((5, 3.2, 3, 2), (0.65, 0.7), (0.7, 0.6), 0.3),
    "alert": _kernel((1, None, None, None), (0.1, 0.1), (0.0, 0.0), 0.0),
}
"""The kernels of the model: name -> figures."""


@dataclass(slots=True)
class GraphTask:
    """A kernel in a graph; `after`: places in the graph of those that it reads."""

    kernel: str
    after: list[int]
    size: float = 1.0


@dataclass(slots=True)
class DrawnGraph:
    """A job that was drawn."""

    tasks: list[GraphTask] = field(default_factory=list)

    def add(self, kernel: str, *after: int) -> int:
        """Add a task; return its place."""
        self.tasks.append(GraphTask(kernel, list(after)))
        return len(self.tasks) - 1

    def chain(self, kernels: tuple[str, ...]) -> int:
        """Add tasks that each read the one before; return the place of the last."""
        last = self.add(kernels[0])
        for kernel in kernels[1:]:
            last = self.add(kernel, last)
        return last


def _variant_calling(width: int) -> DrawnGraph:
    graph = DrawnGraph()
    steps = ("align", "sort", "dedup", "recalibrate", "assemble", "pairhmm")
    graph.add("genotype", *[graph.chain(steps) for _ in range(width)])
    return graph


def _electroencephalography(width: int) -> DrawnGraph:
    graph = DrawnGraph()
    steps = ("filter", "fft", "features")
    inferred = graph.add("fginfer", *[graph.chain(steps) for _ in range(width)])
    graph.add("localize", inferred)
    return graph


def _security(width: int) -> DrawnGraph:
    graph = DrawnGraph()
    steps = ("parse", "hashjoin", "fginfer")
    graph.add("alert", *[graph.chain(steps) for _ in range(width)])
    return graph


TEMPLATES = (
    (_variant_calling, 2, 4),
    (_electroencephalography, 3, 6),
    (_security, 2, 5),
)
"""Each template with its least and greatest width."""


def draw_graph(generator: random.Random) -> DrawnGraph:
    """Draw a job: template, width, and the sizes of its tasks."""
    template, least, most = TEMPLATES[generator.randrange(len(TEMPLATES))]
    return _sized(template(generator.randint(least, most)), generator)


def draw_random_graph(generator: random.Random) -> DrawnGraph:
    """Draw a graph of the same kernels that no template has: any composition of them."""
    graph = DrawnGraph()
    kernels = list(KERNELS)
    for place in range(generator.randint(*RANDOM_TASKS)):
        most = min(generator.choice((1, 1, 1, 2, 3)), place)
        recent = range(max(0, place - REACH), place)
        first = place < FIRST_TASKS
        after = [] if first else generator.sample(recent, min(most, len(recent)))
        graph.add(generator.choice(kernels), *sorted(after))
    return _sized(graph, generator)


def _sized(graph: DrawnGraph, generator: random.Random) -> DrawnGraph:
    """Draw the sizes of the tasks."""
    whole = generator.lognormvariate(0.0, SIZE_OF_JOB)
    for task in graph.tasks:
        task.size = whole * generator.lognormvariate(0.0, SIZE_OF_TASK)
    return graph
