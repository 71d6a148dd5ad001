"""The configuration: read key by key, refused with the place of the mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hetd.config import Config, read_config
from libtask.errors import InputError
from libtask.messages import DeviceInfo, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path


def _written(folder: Path, text: str) -> Path:
    path = folder / "hetd.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_defaults_hold() -> None:
    assert read_config(None) == Config()


def test_everything_that_can_be_set_is_read(tmp_path: Path) -> None:
    path = _written(
        tmp_path,
        """
        policy = "migration"
        interval_ms = 20
        attempts = 5
        queue_limit = 1

        [policy_parameters]
        minimum_run_s = 0.5

        [[resource]]
        name = "gpu7"
        kind = "gpu"
        driver = "opencl"
        platform = "P"
        device = "D"
        index = 2
        busy_watts = 300.0
        link_bytes_per_s = 1e9

        [[resource]]
        name = "cpu"
        kind = "cpu"
        threads = 4
        slots = 3
        """,
    )

    config = read_config(path)

    assert (config.policy, config.interval_ms, config.attempts) == ("migration", 20, 5)
    assert config.policy_parameters == {"minimum_run_s": 0.5}
    assert config.queue_limit == 1
    gpu, cpu = (table.device_info() for table in config.resource)
    assert gpu == DeviceInfo(
        DeviceSpec("gpu7", "gpu", "opencl", platform="P", device="D", index=2),
        busy_watts=300.0,
        link_bytes_per_s=1e9,
    )
    assert (cpu.spec.threads, cpu.slots, cpu.spec.driver) == (4, 3, "cpu")


CPU = '[[resource]]\nname = "cpu"\nkind = "cpu"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("polcy = 'x'", "polcy: unknown key (did you mean policy?)"),
        ("on_stop = 'kill'", 'on_stop: expected "leave" or "preempt", got "kill"'),
        ("[limits]\ntask = 1", "limits.task: unknown key (did you mean tasks?)"),
        (
            "[limits]\ntasks = 'few'",
            'limits.tasks: expected a whole number or "unlimited", got "few"',
        ),
        (
            "[limits.user.ann]\nrunning = 'few'",
            'limits.user.ann.running: expected a whole number or "unlimited", got "few"',
        ),
        ("[limits]\nrunning = -1", "limits.running: expected at least 0, got -1"),
        ("[limits]\nshare = 0", "limits.share: expected a number above 0"),
        ("[limits.user.ann]\ntasks = -1", "limits.user.ann.tasks: expected at least 0"),
        (
            "[limits]\nshare = 1e-7",
            "limits.share: expected a number from 1e-06 to 1e",
        ),
        ("[limits]\nshare = 1e9", "limits.share: expected a number from 1e-06 to 1e"),
        ("[limits.user.ann]\nshare = nan", "limits.user.ann.share: expected a number"),
        ("interval_ms = 'soon'", 'interval_ms: expected a number, got "soon"'),
        ("interval_ms = -5", "interval_ms: expected at least 0.1"),
        ("attempts = 0", "attempts: expected at least 1"),
        ("migration_ms = -1.0", "migration_ms: expected at least 0"),
        ("x = ", "Invalid value"),
        ("policy = 3", "policy: expected a text, got 3"),
        ("queue_limit = 'few'", 'queue_limit: expected a whole number, got "few"'),
        ("queue_limit = -1", "queue_limit: expected at least 0, got -1"),
        (
            '[[resource]]\nname = "a"\nkind = "dsp"',
            'resource[0].kind: expected "cpu", "gpu" or "fpga", got "dsp"',
        ),
        ('[[resource]]\nkind = "cpu"', "resource[0].name: is missing"),
        (CPU + "color = 'red'", "resource[0].color: unknown key"),
        (CPU + CPU, "resource[1].name: 'cpu' is taken"),
        (CPU + "slots = 0", "resource[0]: slots and threads are at least 1"),
        (CPU + "threads = -1", "resource[0]: slots and threads are at least 1"),
        (CPU + "uuid = 'GPU-1'", "resource[0].uuid: expected 32 hexadecimal digits"),
        (CPU + "driver = 'cuda'", "resource[0].driver: expected cpu, opencl or null"),
        (
            '[[resource]]\nname = "g"\nkind = "gpu"\nslots = 2',
            "resource[0].slots: accelerators run one task at a time",
        ),
    ],
)
def test_mistakes_are_refused_with_their_place(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = _written(tmp_path, text)

    with pytest.raises(InputError) as caught:
        read_config(path)

    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert complaint in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no.toml.*No such file"):
        read_config(tmp_path / "no.toml")
