"""Keyword options of a submission are checked before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from libtask.client.options import OptionFields
from libtask.documents import ALL_CORES
from libtask.errors import InputError
from libtask.messages import Estimate, Submit

if TYPE_CHECKING:
    from libtask.client.client import Client
    from unit.fake_daemon import FakeDaemon

APP = ("synthetic", {"seconds": {"cpu": 0.01}})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"time_limit_s": "5m"},
            "option time_limit_s: expected float or none, got '5m'",
        ),
        (
            {"time_limit_s": -1.0},
            "option time_limit_s: expected float >= 0.0, got -1.0",
        ),
        ({"priority": "high"}, "option priority: expected int, got 'high'"),
        ({"retries": 3.5}, "option retries: expected int, got 3.5"),
        ({"retries": -1}, "option retries: expected int >= 0, got -1"),
        ({"after": 3}, "option after: expected list[int], got 3"),
        ({"after": ["a"]}, "option after: expected list[int], got ['a']"),
        ({"resources": "cpu"}, "option resources: expected list[str], got 'cpu'"),
        ({"strip": 0}, "option strip: expected int >= 1, got 0"),
        ({"strip": -1}, "option strip: expected int >= 1, got -1"),
        ({"seconds": {"cpu": "1m"}}, "option seconds: expected dict[str, float], got"),
        ({"overrun": "go"}, "option overrun: expected one of 'continue', 'stop', got"),
        ({"begin": "now"}, "option begin: expected float or none, got 'now'"),
        ({"job": 3}, "option job: expected str, got 3"),
        ({"key": 17}, "option key: expected str, got 17"),
        ({"export": ["PATH"]}, "option export: expected str, got ['PATH']"),
        ({"env": {"W": 3}}, "option env: W: expected str, got 3"),
        ({"env": "W=3"}, "option env: expected dict, got 'W=3'"),
        ({"env": {1: "W"}}, "option env: a name: expected str, got 1"),
        ({"cwd": b"/tmp"}, "option cwd: expected str, got b'/tmp'"),
        ({"name": "x\udce9"}, "option name: expected text in UTF-8, got"),
        ({"bogus": 1}, "no option 'bogus'; a submission knows after, after_any, "),
        ({"retrys": 1}, "no option 'retrys' (did you mean retries?); a submission"),
    ],
)
def test_an_invalid_option_is_refused_before_anything_is_sent(
    client: Client, daemon: FakeDaemon, options: Any, text: str
) -> None:
    for ask in (client.submit, client.estimate):
        with pytest.raises(InputError) as caught:
            ask(*APP, **options)
        assert str(caught.value).startswith(text)
    assert not daemon.requests(Submit)
    assert not daemon.requests(Estimate)


def test_options_may_have_the_usual_types_of_their_values(
    client: Client, daemon: FakeDaemon
) -> None:
    client.submit(
        *APP,
        after=range(1, 3),
        resources=("cpu",),
        seconds={"cpu": 2},
        cores="all",
        retries=None,
        time_limit_s=5,
        cwd=Path("/data"),
    )

    (sent,) = daemon.requests(Submit)[0].tasks
    assert (sent.after, sent.resources, sent.seconds) == ([1, 2], ["cpu"], {"cpu": 2.0})
    assert (sent.cores, sent.retries, sent.time_limit_s) == (ALL_CORES, 0, 5.0)
    assert sent.cwd == "/data"


def test_a_relative_folder_is_that_of_the_submitter(
    client: Client,
    daemon: FakeDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    client.submit(*APP, cwd="here")
    client.submit(*APP, cwd=Path("here"))
    client.submit(*APP, cwd="")

    folders = [each.tasks[0].cwd for each in daemon.requests(Submit)]
    assert folders == [f"{tmp_path}/here", f"{tmp_path}/here", str(tmp_path)]


def test_options_may_be_numpys(client: Client, daemon: FakeDaemon) -> None:
    options: dict[str, Any] = {
        "priority": np.int64(3),
        "time_limit_s": np.float32(2.0),
        "name": np.str_("a"),
        "resources": np.array(["cpu"]),
        "seconds": {"cpu": np.float64(2.0)},
    }
    client.submit(*APP, **options)

    (sent,) = daemon.requests(Submit)[0].tasks
    assert (sent.priority, sent.time_limit_s, sent.name) == (3, 2.0, "a")
    assert (sent.resources, sent.seconds) == (["cpu"], {"cpu": 2.0})


def test_an_option_that_is_none_is_not_given(
    client: Client, daemon: FakeDaemon
) -> None:
    names: dict[str, Any] = dict.fromkeys(OptionFields.__annotations__)

    client.submit(*APP)
    client.submit(*APP, **names)

    (first,), (second,) = (each.tasks for each in daemon.requests(Submit))
    assert first == second
