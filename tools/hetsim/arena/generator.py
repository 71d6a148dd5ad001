"""Scenarios drawn at random: what they are drawn from, and the drawing.

The same seed and the same parameters always give the same scenario.
"""

from __future__ import annotations

import math
import random
import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from hetsim.documents import convert
from hetsim.scenario import FORMAT as SCENARIO_FORMAT
from hetsim.scenario import ResourceModel, Scenario, TaskModel, TypeModel
from libtask.documents import MOST, check_numbers
from libtask.errors import InputError
from libtask.whole_files import LARGEST_TEXT, read_whole

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "hetsim/generator-1"
NAMES = ("cpu", "gpu0", "fpga0", "gpu1")

Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Time: TypeAlias = Annotated[float, Meta(ge=1e-3, le=1e6)]
Times: TypeAlias = tuple[Time, Time]
"""Seconds. Bounds are floored to microseconds, and what is drawn is multiplied by ratios."""
MoveTime: TypeAlias = Annotated[float, Meta(ge=1e-6, le=1e6)]
MoveTimes: TypeAlias = tuple[MoveTime, MoveTime]
Ratio: TypeAlias = Annotated[float, Meta(ge=1e-3, le=1e3)]
Ratios: TypeAlias = tuple[Ratio, Ratio]
Bytes: TypeAlias = Annotated[float, Meta(gt=0, le=MOST)]
ByteRange: TypeAlias = tuple[Bytes, Bytes]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
Count: TypeAlias = tuple[Number, Number]
Arrivals: TypeAlias = Literal["static", "even", "poisson", "bursts"]
Matrix: TypeAlias = Literal[
    "consistent", "inconsistent", "specialised", "alike", "partial"
]


class Generator(Struct, frozen=True):
    """The distributions of scenarios; `generator.toml` explains each key."""

    format: str
    resources: Count
    slots: Count
    several_slots: Share
    shared_cpu: Share
    linked: Share
    link_bytes_per_s: ByteRange
    types: Count
    seconds: Times
    ratio: Ratios
    specialised_ratio: Ratios
    alike: Ratios
    absent: Share
    strips: Count
    stateless: Share
    state_bytes: ByteRange
    migration_s: MoveTimes
    tasks: Count
    arrivals: Annotated[list[Arrivals], Meta(min_length=1)]
    matrices: Annotated[list[Matrix], Meta(min_length=1)]
    span: Ratios
    bursts: Count


def read_generator(path: Path | None = None) -> Generator:
    """Read parameters; what a file leaves out is as in the file that comes with hetsim.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    known = tomllib.loads(
        files("hetsim.arena").joinpath("generator.toml").read_text(encoding="utf-8")
    )
    if path is None:
        return convert(known, Generator)
    try:
        return _checked(
            {**known, **tomllib.loads(read_whole(path, LARGEST_TEXT).decode())}
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"{path}: {error}") from error


def _checked(raw: dict[str, object]) -> Generator:
    check_numbers(raw)
    generator = convert(raw, Generator)
    if generator.format != FORMAT:
        raise InputError(f'format: expected "{FORMAT}", got "{generator.format}"')
    if generator.resources[1] > len(NAMES):
        raise InputError(f"resources: at most {len(NAMES)}")
    for key in generator.__struct_fields__:
        value = getattr(generator, key)
        if isinstance(value, tuple) and value[0] > value[1]:
            raise InputError(f"{key}: {value[0]:g} is above {value[1]:g}")
    return generator


class Drawn(Struct, frozen=True):
    """A scenario, and by which seed and of which kinds it was drawn."""

    seed: int
    arrivals: Arrivals
    matrix: Matrix
    scenario: Scenario


def draw(seed: int, generator: Generator) -> Drawn:
    """Draw the scenario of a seed."""
    chance = random.Random(f"arena {seed}")
    resources = _resources(chance, generator)
    matrix = chance.choice(generator.matrices)
    seconds = _matrix(chance, generator, matrix, [r.name for r in resources])
    types = [_type(chance, generator, n, row) for n, row in enumerate(seconds)]
    arrivals = chance.choice(generator.arrivals)
    chosen = [chance.choice(types) for _ in range(chance.randint(*generator.tasks))]
    work = sum(min(s for s in t.seconds.values() if s is not None) for t in chosen)
    span = work / sum(r.slots for r in resources) * chance.uniform(*generator.span)
    instants = _instants(chance, generator, arrivals, len(chosen), span)
    tasks = [
        TaskModel(id=f"t{number}", type=kind.name, arrival=at)
        for number, (kind, at) in enumerate(zip(chosen, instants, strict=True), 1)
    ]
    scenario = Scenario(SCENARIO_FORMAT, resources, types, tasks)
    return Drawn(seed, arrivals, matrix, scenario)


def _resources(chance: random.Random, generator: Generator) -> list[ResourceModel]:
    count = chance.randint(*generator.resources)
    return [_resource(chance, generator, name) for name in NAMES[:count]]


def _resource(chance: random.Random, generator: Generator, name: str) -> ResourceModel:
    several = chance.random() < generator.several_slots
    slots = chance.randint(*generator.slots)
    shared = chance.random() < generator.shared_cpu
    linked = chance.random() < generator.linked
    link = _log(chance, generator.link_bytes_per_s)
    if name == "cpu":
        return ResourceModel(name, slots=slots, sharing="processor" if shared else None)
    return ResourceModel(
        name, slots=slots if several else 1, link_bytes_per_s=link if linked else None
    )


def _matrix(
    chance: random.Random, generator: Generator, kind: Matrix, names: list[str]
) -> list[dict[str, float | None]]:
    """Draw the execution times: a row for each type."""
    speeds = [_log(chance, generator.ratio) for _ in names]
    rows: list[dict[str, float | None]] = []
    for _ in range(chance.randint(*generator.types)):
        work = _log(chance, generator.seconds)
        ratios = _ratios(chance, generator, kind, speeds)
        row: dict[str, float | None] = {
            name: work * ratio for name, ratio in zip(names, ratios, strict=True)
        }
        if kind == "partial":
            kept = chance.choice(names)
            for name in names:
                if chance.random() < generator.absent and name != kept:
                    row[name] = None
        rows.append(row)
    return rows


def _ratios(
    chance: random.Random, generator: Generator, kind: Matrix, speeds: list[float]
) -> list[float]:
    """Draw how many times longer than on the quickest resource a type takes on each."""
    match kind:
        case "consistent":
            found = speeds
        case "inconsistent" | "partial":
            found = [_log(chance, generator.ratio) for _ in speeds]
        case "specialised":
            found = [_log(chance, generator.specialised_ratio) for _ in speeds]
            found[chance.randrange(len(speeds))] = 1.0
        case _:
            found = [chance.uniform(*generator.alike) for _ in speeds]
    least = min(found)
    return [ratio / least for ratio in found]


def _type(
    chance: random.Random,
    generator: Generator,
    number: int,
    seconds: dict[str, float | None],
) -> TypeModel:
    strips = round(_log(chance, generator.strips))
    stateless = chance.random() < generator.stateless
    state = _log(chance, generator.state_bytes)
    return TypeModel(
        f"app{number}/1",
        {n: None if s is None else round(s, 6) for n, s in seconds.items()},
        strips=strips,
        state_bytes=0 if stateless else round(state),
        migration_s=round(_log(chance, generator.migration_s), 6),
    )


def _instants(
    chance: random.Random,
    generator: Generator,
    arrivals: Arrivals,
    count: int,
    span: float,
) -> list[float]:
    """Draw when tasks arrive, in order."""
    every = span / count
    match arrivals:
        case "static":
            found = [0.0] * count
        case "even":
            found = [every * number for number in range(count)]
        case "poisson":
            found, at = [], 0.0
            for _ in range(count):
                found.append(at)
                at += chance.expovariate(1.0 / every)
        case _:
            bursts = chance.randint(*generator.bursts)
            at_once = [span * number / bursts for number in range(bursts)]
            found = sorted(chance.choice(at_once) for _ in range(count))
    return [round(at, 6) for at in found]


def _log(chance: random.Random, bounds: tuple[float, float]) -> float:
    """Draw evenly in the logarithm."""
    low, high = bounds
    return math.exp(chance.uniform(math.log(low), math.log(high)))
