"""The table of expected execution times: task type x resource -> seconds.

Filled by characterisation and corrected by live strips. Sizes that were never measured
are interpolated from others of the same application (`regression`), unless the user has said
what to expect. A resource on which the application was never measured is assumed to be as
quick as the others.

The types of users' own programs are kept by user (`point.own_type`): what the workers of one
user report never decides where the tasks of another run. Where a user's own were never
measured, what is known of the type under its name for all counts, which administrators enter.

An answer stays the same until it is off by `WORTH_PUBLISHING`: policies cache what they
computed from it, and must not recompute it at each strip.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from heapq import nsmallest
from statistics import median
from typing import TYPE_CHECKING

from hetsched.estimates.point import (
    LEAST_S,
    Figures,
    Point,
    grain_of,
    key_of,
    owner_of,
    refuse_nonsense,
    shared_type,
)
from hetsched.estimates.profile import CostProfiles
from hetsched.estimates.regression import Prediction, predict
from hetsched.estimates.sampling import SHORT_S, WELL_KNOWN
from hetsched.estimates.series import Series
from hetsched.estimates.stated_times import StatedTimes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from hetsched.estimates.point import Key
    from hetsched.estimates.regression import Known
    from hetsched.ids import TaskId
    from hetsched.system import Resource
    from hetsched.tasks import Row

GUESS_S = 1.0
"""Expected time of a task that was never measured. All resources being equal then, such
a task has affinity 1 to every one that can run it."""
GUESS_SPREAD = 2.0
STATED_SPREAD = 0.5
"""Of what users expect: wrong by half is common, by ten is not."""
MOST_OFF = 10.0
"""Factor by which a stated time of an installed application may differ from the one that
measurements of other sizes give."""

MOST_S = 1e12
"""Of a corrected time."""

WORTH_PUBLISHING = 0.05
"""Relative change of an expectation that is published to policies."""
WORTH_PUBLISHING_S = 0.0005
"""Smaller changes, in seconds, decide nothing."""

SETUP_SLOPE = 0.5
"""Transfers grow with the data, launches do not grow at all."""

CACHED = 20_000
"""Answers kept at hand; rows come and go for years."""
POINTS = 20_000
"""Measured points kept; of the user who has most, those without news for longest are
forgotten."""
POINTS_OF_APP = 256
"""Of one application on one resource."""
NEAREST = 32
"""Points from which a size that was never measured is estimated: more take too long."""


@dataclass(frozen=True, slots=True)
class News:
    """The effect of a live measurement.

    Attributes:
        keep: the figures to store; None: the change does not matter.
        drift: factor by which the resource became slower; None: it did not.

    """

    keep: Figures | None = None
    drift: float | None = None


NOTHING = News()


class EstimateTable:
    """Expected execution times (EET); an `Estimates` for the scheduler.

    Args:
        curiosity: expected time on a resource on which an application was never
            measured, as a multiple of its time on others. Below 1 a policy that moves
            tasks tries such resources (*probing*): a few strips on each show the truth.

    Attributes:
        profiles: how the work of each type is spread over its iterations.
        version: raised at each change of an answer.

    """

    def __init__(self, curiosity: float = 1.0) -> None:
        self.curiosity = curiosity
        self._points: dict[Key, Point] = {}
        self._keys: list[Key] = []
        """Those of the points, in order."""
        self._dropped: list[Key] = []
        self._by_app: dict[str, dict[str, dict[Key, Point]]] = {}
        """Application -> resource -> its points."""
        self._by_owner: dict[int | None, dict[Key, Point]] = {}
        """User, None for what is known of all -> points, those without news for longest
        first."""
        self._cache: dict[tuple[Row, str], Prediction] = {}
        self._stated_times = StatedTimes()
        self.version = 0
        self.profiles = CostProfiles()

    # ------------------------------------------------------------ answers

    def seconds(self, row: Row, resource: Resource) -> float:
        """Return the expected seconds of a whole task of `row` alone on `resource`."""
        return self._answer(row, resource).seconds

    def spread(self, row: Row, resource: Resource) -> float:
        """Return the relative standard deviation of that expectation."""
        return self._answer(row, resource).spread

    def confidence(self, row: Row, resource: Resource) -> float:
        """Return the reliability: 1 certain, 0.5 a factor of two either way, 0 a guess."""
        return math.exp(-self.spread(row, resource))

    def knows_app(self, row: Row, resource: Resource) -> bool:
        """Whether any size of the application was measured on `resource`."""
        return any(self._near(name, resource) for name in _names(row.type))

    def knows(self, row: Row, resource: Resource) -> bool:
        """Whether anything is known of a row on `resource`: measured, or said by its user."""
        return _stated(row, resource) is not None or self.knows_app(row, resource)

    def is_untried(self, row: Row, resource: Resource) -> bool:
        """Whether probing makes the time of a row on `resource` less than that on others.

        The application was measured on others, and nothing is known of it here.
        """
        if self.curiosity >= 1 or self.knows(row, resource):
            return False
        return any(application(name) in self._by_app for name in _names(row.type))

    def figures(self) -> list[Figures]:
        """List all that was measured, by type, resource and work."""
        return [self._points[key].figures() for key in self._keys]

    def has_type(self, name: str) -> bool:
        """Whether any measurement is kept under the name of a type."""
        place = bisect_left(self._keys, (name, "", -math.inf))
        return place < len(self._keys) and self._keys[place][0] == name

    def keys_after(self, last: Key | None, most: int) -> list[Key]:
        """List at most `most` keys, in order, that follow `last`."""
        start = 0 if last is None else bisect_right(self._keys, last)
        return self._keys[start : start + most]

    def figures_of(self, key: Key) -> Figures:
        """Return the measurement of a key in `keys_after`."""
        return self._points[key].figures()

    def dropped(self) -> list[Key]:
        """Return the keys that were forgotten since the last call, for whatever reason."""
        dropped, self._dropped = self._dropped, []
        return dropped

    # ------------------------------------------------------------ measurements

    def learn(
        self, task_type: str, resource: str, seconds: float, work: float
    ) -> Figures:
        """Enter one characterisation measurement in place of earlier ones."""
        return self.enter(Figures(task_type, resource, seconds, work))

    def enter(self, known: Figures) -> Figures:
        """Enter a result of characterisation in place of earlier measurements.

        Raises:
            InputError: a figure is not a valid time, amount or count.

        """
        refuse_nonsense(known)
        self._add(Point.of(known))
        self._publish()
        return known

    def should_observe(
        self, task: TaskId, row: Row, resource: Resource, seconds: float
    ) -> bool:
        """Return whether a segment that ended is to be observed; of short ones, a sample.

        Args:
            task: the task of the segment.
            row: its row.
            resource: where the segment ran.
            seconds: how long it ran, which decides about later segments only.

        """
        point = self._points.get((row.type, resource.name, grain_of(row.work)))
        if point is None or point.computing.count <= WELL_KNOWN:
            return True
        return point.answer >= SHORT_S or point.sampling.includes(task, seconds)

    def observe(
        self, row: Row, resource: Resource, computing: float, setup: float | None = None
    ) -> News:
        """Take in live strips.

        Args:
            row: the task's row.
            resource: where the strips ran.
            computing: time in strips of a whole task, extrapolated from them; anything
                that is not a time is ignored.
            setup: time before the first strip and in transfers, where it was measured.

        """
        if not (0 < computing < math.inf and row.work > 0):
            return NOTHING
        key = (row.type, resource.name, grain_of(row.work))
        point = self._points.get(key)
        if point is None:
            return self._observe_first(row, resource, computing, setup)
        drift = point.computing.take(max(computing * point.work / row.work, LEAST_S))
        if setup is not None and setup > 0:
            point.setup = point.setup or Series()
            point.setup.take(setup)
        return self._weigh(point, drift)

    def forget_row(self, row: Row, resource: Resource) -> None:
        """Forget what was measured of a row, without news: a measurement follows."""
        key = (row.type, resource.name, grain_of(row.work))
        if key in self._points:
            self._remove(key)

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget the measurements of these keys."""
        gone = [key for key in keys if key in self._points]
        for key in gone:
            self._remove(key)
        if gone:
            self._publish()

    # ------------------------------------------------------------ parts

    def _observe_first(
        self, row: Row, resource: Resource, computing: float, setup: float | None
    ) -> News:
        """Believe the first measurement: nothing better is known of this size."""
        before = self.seconds(row, resource)
        untried = self.is_untried(row, resource)
        expected = self._unmeasured(row, resource)
        setup = max(setup or 0.0, 0.0)
        seconds = computing + setup
        point = Point.of(
            Figures(row.type, resource.name, seconds, row.work, setup=setup)
        )
        self._add(point)
        self._cache.pop((row, resource.name), None)
        owner = owner_of(row.type)
        corrected = expected is not None and self._stated_times.compare(
            owner, expected, seconds
        )
        # of a resource that was tried, even if it is as guessed: guesses of others follow
        if corrected or untried or _differs(point.answer, before):
            self._publish()
        return News(point.figures())

    def _weigh(self, point: Point, drift: float | None) -> News:
        """Publish a new answer where the last is too far off; return what to store."""
        changed = _differs(point.seconds, point.answer)
        if changed:
            point.answer = point.seconds
            self._touch(point)
            self._publish()
        elif drift is None and not _round(point.computing.count):
            return NOTHING
        return News(point.figures(), drift)

    def _publish(self) -> None:
        self._cache.clear()
        self.version += 1

    def _add(self, point: Point) -> None:
        key = key_of(point)
        if key not in self._points:
            insort(self._keys, key)
        self._points[key] = point
        of_app = self._by_app.setdefault(application(point.type), {})
        near = of_app.setdefault(point.resource, {})
        near[key] = point
        self._by_owner.setdefault(owner_of(point.type), {})[key] = point
        if len(near) > POINTS_OF_APP:
            self._remove(next(iter(near)))
        if len(self._points) > POINTS:
            most = max(self._by_owner.values(), key=len)
            self._remove(next(iter(most)))

    def _touch(self, point: Point) -> None:
        """Mark a point as the most recently updated."""
        key = key_of(point)
        near = self._by_app[application(point.type)][point.resource]
        near[key] = near.pop(key)
        of_owner = self._by_owner[owner_of(point.type)]
        of_owner[key] = of_owner.pop(key)

    def _remove(self, key: Key) -> None:
        point = self._points.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        self._dropped.append(key)
        app, owner = application(point.type), owner_of(point.type)
        of_app = self._by_app[app]
        del of_app[point.resource][key]
        if not of_app[point.resource]:
            del of_app[point.resource]
        if not of_app:
            del self._by_app[app]
        del self._by_owner[owner][key]
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    # ------------------------------------------------------------ looking up

    def _answer(self, row: Row, resource: Resource) -> Prediction:
        key = (row, resource.name)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            found = self._cache[key] = self._look_up(row, resource)
        return found

    def _look_up(self, row: Row, resource: Resource) -> Prediction:
        work = row.work if 0 < row.work < math.inf else 1.0
        names = _names(row.type)
        for name in names:
            point = self._points.get((name, resource.name, grain_of(work)))
            if point is not None:
                return Prediction(point.seconds_at(work), point.computing.spread)
        stated = _stated(row, resource)
        if stated is not None:
            seconds = self._corrected(row.type, resource, stated, work)
            return Prediction(seconds, STATED_SPREAD)
        for name in names:
            near = self._near(name, resource)
            if near:
                return _expect(near, name, work)
        return self._guess(names, work)

    def _corrected(
        self, task_type: str, resource: Resource, stated: float, work: float
    ) -> float:
        """Correct a stated time.

        That of an installed application, which all users share, by measurements of other
        sizes; that of a user's own program, by the error of the user's earlier statements.
        """
        owner = owner_of(task_type)
        near = self._near(task_type, resource) if owner is None else None
        if not near:
            corrected = stated * self._stated_times.correction(owner)
            return min(max(corrected, LEAST_S), MOST_S)
        expected = _expect(near, task_type, work).seconds
        return min(max(stated, expected / MOST_OFF), expected * MOST_OFF)

    def _unmeasured(self, row: Row, resource: Resource) -> float | None:
        """Return the stated or guessed time of a row; None: it comes from measurements."""
        stated = _stated(row, resource)
        if stated is not None:
            return max(stated, LEAST_S)
        known = any(application(name) in self._by_app for name in _names(row.type))
        return None if known else GUESS_S

    def _near(self, name: str, resource: Resource) -> dict[Key, Point]:
        """Return the points of an application on a resource."""
        return self._by_app.get(application(name), NONE).get(resource.name, {})

    def _guess(self, names: Sequence[str], work: float) -> Prediction:
        """Expect of a resource without measurements the time of the others."""
        for name in names:
            of_app = self._by_app.get(application(name), NONE)
            others = [_expect(near, name, work).seconds for near in of_app.values()]
            if others:
                return Prediction(self.curiosity * median(others), GUESS_SPREAD)
        correction = self._stated_times.correction(owner_of(names[0]))
        return Prediction(GUESS_S * correction, GUESS_SPREAD)


NONE: Mapping[str, dict[Key, Point]] = {}


def _names(task_type: str) -> tuple[str, ...]:
    """List the names under which something may be known of a type: the user's own first."""
    shared = shared_type(task_type)
    return (task_type,) if shared == task_type else (task_type, shared)


def _expect(near: dict[Key, Point], name: str, work: float) -> Prediction:
    """Expect of a size that was never measured what others of its application show."""
    return _interpolate(_nearest(near.values(), name, work), name, work)


def _stated(row: Row, resource: Resource) -> float | None:
    """Return the seconds that the user expects of a row on `resource`; None: not said."""
    return row.seconds.get(resource.name, row.seconds.get(resource.kind))


def _nearest(points: Collection[Point], task_type: str, work: float) -> list[Point]:
    """Choose the most informative points: same type first, then similar amounts."""
    if len(points) <= NEAREST:
        return list(points)

    def distance(point: Point) -> tuple[bool, float]:
        return point.type != task_type, abs(math.log(point.work / work))

    return nsmallest(NEAREST, points, distance)


def _interpolate(points: list[Point], task_type: str, work: float) -> Prediction:
    computing = predict([p.known_computing(task_type) for p in points], work)
    setups = list(_setups(points, task_type))
    if not setups:
        return computing
    setup = predict(setups, work, SETUP_SLOPE)
    return Prediction(computing.seconds + setup.seconds, computing.spread)


def _setups(points: list[Point], task_type: str) -> Iterator[Known]:
    for point in points:
        known = point.known_setup(task_type)
        if known is not None:
            yield known


def _differs(value: float, other: float) -> bool:
    """Whether a change from `other` to `value` must be published to policies."""
    change = abs(value - other)
    return change > WORTH_PUBLISHING_S and change > WORTH_PUBLISHING * min(value, other)


def _round(count: int) -> bool:
    """Whether a count is a power of two: then it is stored."""
    return count & (count - 1) == 0


def application(task_type: str) -> str:
    """Return the application of a task type; paths and size signatures may hold slashes."""
    path, mark, rest = task_type.rpartition(".py:")
    return path + mark + rest.partition("/")[0]
