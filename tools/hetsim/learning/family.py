"""A family of scenarios: a node, templates of jobs, and what is drawn for each episode.

`hetsim train` draws an episode's jobs, their sizes and their true times from it. The family
of a recorded run has the jobs of that run as templates.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, structs

from hetsim.documents import convert, decode_json, read_document
from hetsim.scenario import (
    FORMAT as SCENARIO_FORMAT,
)
from hetsim.scenario import (
    Amount,
    Count,
    DrawnBackground,
    InputModel,
    Scenario,
    TaskModel,
    TypeModel,
    Whole,
    check_scenario,
)
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "hetsim/family-1"

MOST_TASKS = 2000
"""Tasks of an episode at most."""
MOST_JOBS_OF_A_RUN = 4
"""Jobs of an episode, where the family is that of a recorded run."""


class TemplateTask(Struct, frozen=True):
    """A task of a template; `after`: numbers of the tasks whose results it reads."""

    type: str
    after: list[Whole] = []


class Template(Struct, frozen=True):
    """A job; `weight`: how often it is drawn."""

    tasks: Annotated[list[TemplateTask], Meta(min_length=1, max_length=MOST_TASKS)]
    name: str = ""
    weight: Amount = 1.0


class Spread(Struct, frozen=True):
    """Standard deviations of logarithms.

    Attributes:
        job: of the size of a job; `task`: of a task in it.
        time: of a true time over the expected one.

    """

    job: Amount = 0.3
    task: Amount = 0.2
    time: Amount = 0.1


class Draws(Struct, frozen=True):
    """The distribution that episodes are drawn from.

    Attributes:
        jobs: least and greatest number of jobs.
        every_s: mean time between two arrivals, in seconds; 0: all at once.

    """

    templates: Annotated[list[Template], Meta(min_length=1)]
    jobs: tuple[Count, Count] = (1, 1)
    every_s: Amount = 0.0
    spread: Spread = Spread()


class Family:
    """A family of scenarios.

    Args:
        base: a scenario without tasks.
        draws: what is drawn.

    """

    def __init__(self, base: Scenario, draws: Draws) -> None:
        self.base = base
        self.draws = draws
        self._types = {kind.name: kind for kind in base.types}
        self._weights = [template.weight for template in draws.templates]

    def draw(self, seed: str) -> Scenario:
        """Draw a scenario; the same seed gives the same one."""
        generator = random.Random(seed)
        least, most = self.draws.jobs
        types: list[TypeModel] = list(self.base.types)
        tasks: list[TaskModel] = []
        arrival = 0.0
        for number in range(generator.randint(least, most)):
            template = generator.choices(self.draws.templates, self._weights)[0]
            self._add(template, (number, arrival), generator, types, tasks)
            if self.draws.every_s:
                arrival += generator.expovariate(1.0 / self.draws.every_s)
        return structs.replace(self.base, types=types, tasks=tasks)

    def _add(
        self,
        template: Template,
        which: tuple[int, float],
        generator: random.Random,
        types: list[TypeModel],
        tasks: list[TaskModel],
    ) -> None:
        job, arrival = which
        spread = self.draws.spread
        whole = generator.lognormvariate(0.0, spread.job)
        for place, task in enumerate(template.tasks):
            size = whole * generator.lognormvariate(0.0, spread.task)
            kind = _sized(self._types[task.type], size, f"{job}.{place}")
            types.append(kind)
            factor = generator.lognormvariate(0.0, spread.time)
            tasks.append(
                TaskModel(
                    f"{job}.{place}",
                    kind.name,
                    arrival,
                    job=f"job{job}",
                    inputs=[InputModel(f"{job}.{other}") for other in task.after],
                    actual_seconds={
                        name: None if seconds is None else seconds * factor
                        for name, seconds in kind.seconds.items()
                    },
                )
            )


def _sized(kind: TypeModel, size: float, label: str) -> TypeModel:
    return structs.replace(
        kind,
        name=f"{kind.name}/{label}",
        seconds={
            name: None if seconds is None else seconds * size
            for name, seconds in kind.seconds.items()
        },
        output_bytes=(kind.output_bytes or 0) * size,
    )


def read_family(path: Path) -> Family:
    """Read a family, or the scenario of a recorded run.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    return read_document(path, decode_family)


def decode_family(text: bytes) -> Family:
    """Check a family as JSON text.

    Raises:
        InputError: malformed; names the place.

    """
    return check_family(decode_json(text))


def check_family(raw: Any) -> Family:
    """Turn a decoded document into a family.

    Raises:
        InputError: malformed; names the place.

    """
    if isinstance(raw, dict) and raw.get("format") == SCENARIO_FORMAT:
        return family_of(check_scenario(raw))
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InputError(f'format: expected "{FORMAT}" or "{SCENARIO_FORMAT}"')
    draws = convert(raw, Draws)
    base = check_scenario({**raw, "format": SCENARIO_FORMAT, "tasks": [], "bursts": []})
    _check(draws, base)
    return Family(base, draws)


def _check(draws: Draws, base: Scenario) -> None:
    known = {kind.name for kind in base.types}
    if sum(template.weight for template in draws.templates) <= 0:
        raise InputError("templates: all weights are 0")
    if draws.jobs[0] > draws.jobs[1]:
        raise InputError("jobs: the least number is greater than the other")
    for number, template in enumerate(draws.templates):
        for place, task in enumerate(template.tasks):
            at = f"templates[{number}].tasks[{place}]"
            if task.type not in known:
                raise InputError(f'{at}.type: there is no type "{task.type}"')
            if any(other >= place for other in task.after):
                raise InputError(f"{at}.after: expected numbers of earlier tasks")
    most = max(len(template.tasks) for template in draws.templates)
    if most * draws.jobs[1] > MOST_TASKS:
        raise InputError(f"jobs: more than {MOST_TASKS} tasks in an episode")


def family_of(scenario: Scenario) -> Family:
    """Return the family of a recorded run: its jobs, other programs as usual.

    Raises:
        InputError: it has no tasks.

    """
    groups: dict[str, list[TaskModel]] = {}
    for task in scenario.all_tasks():
        groups.setdefault(task.job or f"task {task.id}", []).append(task)
    if not groups:
        raise InputError("tasks: there are none")
    templates = [_template(name, tasks) for name, tasks in groups.items()]
    arrivals = sorted(
        min(task.arrival or 0.0 for task in tasks) for tasks in groups.values()
    )
    every = (arrivals[-1] - arrivals[0]) / max(len(arrivals) - 1, 1)
    background = scenario.background or DrawnBackground()
    base = structs.replace(
        scenario, tasks=[], bursts=[], outages=[], crashes=[], background=background
    )
    most = max(len(template.tasks) for template in templates)
    jobs = max(1, min(len(templates), MOST_JOBS_OF_A_RUN, MOST_TASKS // most))
    draws = Draws(templates, (1, jobs), every)
    return Family(base, draws)


def _template(name: str, tasks: list[TaskModel]) -> Template:
    """Return a template with the tasks of a job in an order in which each follows its inputs."""
    left = {task.id: task for task in tasks}
    numbers: dict[str | int, int] = {}
    found: list[TemplateTask] = []
    while left:
        for task in list(left.values()):
            before = [other for other in task.predecessors() if other in left]
            if before:
                continue
            after = [numbers[o] for o in task.predecessors() if o in numbers]
            numbers[task.id] = len(found)
            found.append(TemplateTask(task.type, after))
            del left[task.id]
    return Template(found[:MOST_TASKS], name)
