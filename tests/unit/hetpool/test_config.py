"""`pool.toml`: its values, its defaults, and one line that names the key for each mistake."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hetpool.errors import PoolUnreachableError
from hetpool.setup.config import PLANNERS, default_file, read_settings
from hetpool.setup.endpoint import Address
from hetpool.setup.settings import BrokerSettings, EngineSettings
from hetsched.planning.batch.planners import PLANNERS as KNOWN
from libtask.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

FULL = """
scheduler = "tls://head:8787"
planner = "sjf"
this = "n1"
lease_s = 5
replace_s = 12.5

[tls]
ca = "ca.pem"
key = "/elsewhere/this.key"

[[node]]
name = "n1"
address = "10.0.0.5"
ingress = 12.5e6

[[node]]
name = "n2"
worker_port = 9001
gateway = true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pool.toml"
    path.write_text(text)
    return path


def test_values_and_defaults(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, FULL), {})

    assert found.scheduler == Address("head", 8787)
    assert (found.planner, found.lease_s, found.replace_s) == ("sjf", 5, 12.5)
    assert (found.goodput_share, found.group_s, found.group_size) == (0.95, 0.5, 50)
    assert found.tls.ca == tmp_path / "ca.pem"
    assert found.tls.cert == tmp_path / "pool" / "this.pem"
    assert str(found.tls.key) == "/elsewhere/this.key"
    first, second = found.nodes
    assert (first.name, first.host, first.port) == ("n1", "10.0.0.5", 9000)
    assert (first.ingress, first.gateway) == (12.5e6, False)
    assert (second.host, second.port, second.ingress) == ("n2", 9001, None)
    assert second.gateway
    assert found.node("n2") == second
    assert found.this == first
    assert found.node("n3") is None


def test_engine_and_broker_get_theirs(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, FULL), {})

    assert found.engine() == EngineSettings(
        "tls://head:8787", found.tls.ca, found.tls.cert, found.tls.key
    )
    assert found.broker() == BrokerSettings("sjf", 0.95, lease_s=5, replace_s=12.5)


def test_the_environment_overrides_the_scheduler(tmp_path: Path) -> None:
    found = read_settings(
        written(tmp_path, FULL), {"HETPOOL_SCHEDULER": "tls://[::1]:99"}
    )

    assert found.scheduler == Address("::1", 99)
    assert str(found.scheduler) == "tls://[::1]:99"


def test_the_environment_names_another_file(tmp_path: Path) -> None:
    path = written(tmp_path, FULL)

    assert default_file({"HETPOOL_CONFIG": str(path)}) == path
    assert read_settings(None, {"HETPOOL_CONFIG": str(path)}).file == path
    with pytest.raises(InputError, match=r"no\.toml: No such file"):
        read_settings(None, {"HETPOOL_CONFIG": str(tmp_path / "no.toml")})


def test_without_a_file_the_environment_suffices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    found = read_settings(None, {"HETPOOL_SCHEDULER": "head"})
    assert str(found.scheduler) == "tls://head:8786"
    assert found.file is None
    assert found.tls.ca == tmp_path / "hetd" / "pool" / "ca.pem"
    with pytest.raises(
        PoolUnreachableError, match=r"no pool: there is no .* `hetctl pool up`"
    ):
        read_settings(None, {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("planer = 1", "planer: unknown key (did you mean planner?)"),
        (
            "planner = 'ncm'",
            "planner: no planner 'ncm' (did you mean ncjm?); there are",
        ),
        ("lease_s = 'long'", 'lease_s: expected a number, got "long"'),
        ("lease_s = 0.5", "lease_s: expected a number of seconds from 1"),
        ("lease_s = nan", "lease_s"),
        ("replace_s = inf", "replace_s"),
        ("lease_s = 30", "replace_s: expected more than lease_s (30), got 25"),
        ("goodput_share = 1.5", "goodput_share: expected a share"),
        ("group_s = -1", "group_s: expected"),
        ("group_size = 0", "group_size: expected 1 to 1000"),
        ("scheduler = 'tcp://head:8786'", "scheduler: expected tls://HOST:PORT"),
        ("scheduler = 'tls://a b'", "scheduler: expected tls://HOST:PORT"),
        ("scheduler = 'tls://head:70000'", "scheduler: expected a port"),
        ("scheduler = ''", "scheduler: no address"),
        ("tls = 1", "tls: expected a table, got 1"),
        ("tls.cat = 'a'", "tls.cat: unknown key (did you mean ca?)"),
        ("this = 'n1'", "this: no node 'n1'"),
        ("[[node]]\naddress = 'a'", "node[0].name: is missing"),
        ("[[node]]\nname = 'n:1'", "node[0].name: expected letters"),
        ("[[node]]\nname = ''", "node[0].name: expected letters"),
        ("[[node]]\nname = 'a'\naddress = 'tls://a'", "node[0].address: expected"),
        ("[[node]]\nname = 'a'\nworker_port = 0", "node[0].worker_port: expected 1"),
        ("[[node]]\nname = 'a'\ningress = 'fast'", "node[0].ingress: expected bytes"),
        ("[[node]]\nname = 'a'\ningress = 0", "node[0].ingress: expected bytes"),
        ("[[node]]\nname = 'a'\n[[node]]\nname = 'a'", "node[1].name: 'a' is taken"),
        (
            "[[node]]\nname = 'a'\naddress = 'h'\n[[node]]\nname = 'b'\naddress = 'h'",
            "node[1].worker_port: another node has h:9000",
        ),
        ("lease_s = 1e400", "lease_s"),
        ("group_s = 1e99", "group_s: expected a number up to"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("scheduler =", "Invalid value"),
    ],
)
def test_mistakes_are_one_line_that_names_the_key(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = written(tmp_path, text)

    with pytest.raises(InputError, match=re.escape(complaint)) as caught:
        read_settings(path, {})
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["tcp://head:1", "head:x", "tls://", "a" * 300 + ":"]
)
def test_a_wrong_address_names_the_variable(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match=r"^\$HETPOOL_SCHEDULER: expected") as caught:
        read_settings(written(tmp_path, FULL), {"HETPOOL_SCHEDULER": address})
    assert len(str(caught.value)) < 300


def test_the_planners_are_those_of_the_scheduler() -> None:
    assert sorted(PLANNERS) == sorted(KNOWN)
