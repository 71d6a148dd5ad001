"""joblib over a real daemon: what joblib promises of every backend, and scikit-learn."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import joblib
import numpy as np
import pytest

from libtask import joblib as backend
from libtask.client.client import Selection
from libtask.messages import ENDED
from system.private_daemon import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from system.private_daemon import PrivateDaemon

# workers cannot import test modules
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(autouse=True)
def hetd(daemon: PrivateDaemon) -> Iterator[None]:
    """Make the daemon's backend that of every `Parallel` without a name."""
    backend.register()
    with joblib.parallel_config(backend="hetd", socket=daemon.socket):
        yield


def parallel(calls: Any, **options: Any) -> Any:
    return joblib.Parallel(**({"n_jobs": -1} | options))(calls)


def where(value: Any) -> tuple[Any, int]:
    return value, os.getpid()


def test_results_come_in_order_from_other_processes() -> None:
    found = parallel(joblib.delayed(where)(i) for i in range(40))

    assert [value for value, _ in found] == list(range(40))
    assert os.getpid() not in {process for _, process in found}


def test_closures_and_lambdas_travel() -> None:
    offset = 10

    assert parallel(joblib.delayed(lambda x: x + offset)(i) for i in range(5)) == [
        10,
        11,
        12,
        13,
        14,
    ]


def test_all_slots_are_used_unless_told_otherwise() -> None:
    own = backend.HetdBackend(os.environ.get("HETD_SOCKET"))
    assert [own.effective_n_jobs(3), own.effective_n_jobs(1)] == [3, 1]
    with pytest.raises(ValueError, match="no meaning"):
        own.effective_n_jobs(0)


def test_jobs_are_the_slots_of_the_kind(daemon: PrivateDaemon) -> None:
    of_cpu = backend.HetdBackend(daemon.socket)
    of_gpu = backend.HetdBackend(daemon.socket, "gpu")

    assert [of_cpu.effective_n_jobs(n) for n in (-1, None, -2, -9)] == [2, 1, 1, 1]
    assert of_gpu.effective_n_jobs(-1) == 1


class OwnError(Exception):
    """An exception with arguments that need pickling."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number


def fail_at(bad: int, number: int) -> int:
    if number == bad:
        raise OwnError(number, "went wrong")
    return number


def test_an_exception_comes_back_as_it_was(daemon: PrivateDaemon) -> None:
    with pytest.raises(OwnError) as caught:
        parallel(joblib.delayed(fail_at)(3, i) for i in range(100))

    assert caught.value.number == 3
    eventually(lambda: idle(daemon), "the end of what was given up")
    assert parallel([joblib.delayed(fail_at)(3, 1)] * 2) == [1, 1]


def idle(daemon: PrivateDaemon) -> bool:
    tasks = daemon.client.tasks(Selection(limit=200))
    return all(info.state in ENDED for info in tasks)


def test_a_time_limit_ends_the_calls(daemon: PrivateDaemon) -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        parallel((joblib.delayed(time.sleep)(600) for _ in range(4)), timeout=0.5)

    eventually(lambda: idle(daemon), "the end of what took too long")


def nested(number: int) -> tuple[int, list[int]]:
    inside = joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(number, k) for k in range(3))
    return os.getpid(), inside


def test_what_is_parallel_inside_runs_in_the_calls_own_process() -> None:
    def process_of(_: int) -> tuple[int, list[int]]:
        inside = joblib.Parallel(n_jobs=2)(
            joblib.delayed(os.getpid)() for _ in range(3)
        )
        return os.getpid(), inside

    for process, inside in parallel(joblib.delayed(process_of)(i) for i in range(4)):
        assert set(inside) == {process}
    assert [
        found for _, found in parallel(joblib.delayed(nested)(i) for i in (2, 3))
    ] == [
        [1, 2, 4],
        [1, 3, 9],
    ]


def describe(array: Any) -> tuple[bool, bool, float]:
    return isinstance(array, np.memmap), array.flags.writeable, float(array.sum())


def test_large_arrays_are_mapped_read_only_and_small_ones_copied() -> None:
    large = np.arange(300_000, dtype=np.float64)
    small = np.arange(10, dtype=np.float64)

    found = parallel(
        joblib.delayed(describe)(each) for each in (large, small, large[::2])
    )

    sums = [float(each.sum()) for each in (large, small, large[::2])]
    assert found == [
        (True, False, sums[0]),
        (False, True, sums[1]),
        (True, False, sums[2]),
    ]


def test_joblibs_own_options_of_mapping_count() -> None:
    array = np.arange(1000, dtype=np.float64)

    copied = parallel([joblib.delayed(describe)(array)] * 2, max_nbytes=None)
    mapped = parallel([joblib.delayed(describe)(array)] * 2, max_nbytes=100)
    private = parallel(
        [joblib.delayed(describe)(array)] * 2, max_nbytes="1K", mmap_mode="c"
    )

    total = float(array.sum())
    assert copied == [(False, True, total)] * 2
    assert mapped == [(True, False, total)] * 2
    assert private == [(True, True, total)] * 2


def leave(how: type[BaseException]) -> None:
    raise how("left")


@pytest.mark.parametrize("how", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_call_interrupts_the_caller(how: type[BaseException]) -> None:
    with pytest.raises(how, match="left"):
        parallel([joblib.delayed(leave)(how)] * 2)


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(TypeError, match="initializer"):
        backend.HetdBackend(initializer=print)  # type: ignore[call-arg]  # that is it


def test_an_array_is_written_once_and_gone_at_the_end(tmp_path: Any) -> None:
    store = backend.Arrays(backend.Mapping())
    large = np.zeros(200_000)
    first = store.pickled([large, {"same": large}])

    assert len(list(store._folder.iterdir())) == 1
    assert len(first) < 10_000
    store.remove()
    assert not store._folder.exists()


def test_large_results_come_back() -> None:
    found = parallel(joblib.delayed(np.full)(300_000, i) for i in range(3))

    assert [each[0] for each in found] == [0, 1, 2]


def test_results_can_be_taken_while_others_run() -> None:
    calls = (joblib.delayed(where)(i) for i in range(20))

    assert [value for value, _ in parallel(calls, return_as="generator")] == list(
        range(20)
    )
    calls = (joblib.delayed(where)(i) for i in range(20))
    unordered = parallel(calls, return_as="generator_unordered")
    assert sorted(value for value, _ in unordered) == list(range(20))


def test_a_generator_given_up_ends_its_calls(daemon: PrivateDaemon) -> None:
    calls = [joblib.delayed(where)(0), *[joblib.delayed(time.sleep)(600)] * 3]
    results = parallel(calls, return_as="generator", batch_size=1)
    assert next(results)[0] == 0

    with pytest.warns(UserWarning, match="have been cancelled"):
        results.close()

    eventually(lambda: idle(daemon), "the end of calls that nobody wants")


def test_one_pool_serves_several_calls() -> None:
    with joblib.Parallel(n_jobs=2) as pool:
        for power in range(3):
            assert pool(joblib.delayed(pow)(i, power) for i in range(5)) == [
                i**power for i in range(5)
            ]


def test_one_job_runs_here() -> None:
    found = parallel([joblib.delayed(where)(1)], n_jobs=1)

    assert found == [(1, os.getpid())]


@pytest.mark.timeout(600)  # four processes import scikit-learn
def test_cross_validation_equals_that_of_loky() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    selection = pytest.importorskip("sklearn.model_selection")
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.make_classification(400, 12, random_state=1)
    model = linear_model.LogisticRegression()
    search = partial(
        selection.GridSearchCV, model, {"C": [0.1, 1.0, 10.0]}, cv=3, n_jobs=2
    )

    ours = selection.cross_val_score(model, x, y, cv=4, n_jobs=2)
    found = search().fit(x, y)
    with joblib.parallel_config(backend="loky"):
        theirs = selection.cross_val_score(model, x, y, cv=4, n_jobs=2)
        expected = search().fit(x, y)

    assert np.array_equal(ours, theirs)
    assert found.best_params_ == expected.best_params_
    scores = "mean_test_score"
    assert np.array_equal(found.cv_results_[scores], expected.cv_results_[scores])
