"""Devices that fail: each of OpenCL's errors, and what becomes of the task it meets."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyopencl
import pytest

from system.private_daemon import PATIENCE, SETTINGS, eventually, opened
from system.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libtask.messages import DeviceInfo, DeviceSpec
    from system.private_daemon import PrivateDaemon

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Preload the faults in every process started; return the file that makes them."""
    compiler = shutil.which("cc")
    library = next(Path(pyopencl.__file__).parent.glob(".libs/libOpenCL*"), None)
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the faults with")
    if library is None:
        pytest.skip("pyopencl brings no OpenCL library of its own")
    folder = tmp_path_factory.mktemp("faults")
    built = folder / "opencl_faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(built)]
    subprocess.run([*command, str(HERE / "opencl_faults.c"), "-ldl"], check=True)
    faults = folder / "faults"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(built))
        patch.setenv("HET_OPENCL", str(library))
        patch.setenv("HET_FAULTS", str(faults))
        yield faults


# A fault, and how the application's error begins.
EXPECTED = {
    "clFinish:-2": "device: gpu0: DEVICE_NOT_AVAILABLE (-2) while",
    "clFinish:-5": "device: gpu0: OUT_OF_RESOURCES (-5) while",
    "clFinish:-36": "device: gpu0: INVALID_COMMAND_QUEUE (-36) while",
    "clEnqueueNDRangeKernel:-5": "device: gpu0: OUT_OF_RESOURCES (-5) while",
    "clEnqueueNDRangeKernel:-54": "program: gpu0: INVALID_WORK_GROUP_SIZE (-54) while",
    "clEnqueueReadBuffer:-5": "device: gpu0: OUT_OF_RESOURCES (-5) while copying out",
    "clCreateBuffer:-4": "device-memory: gpu0: MEM_OBJECT_ALLOCATION_FAILURE (-4)",
    "clBuildProgram:-11": "program: gpu0: program text does not compile",
    "clEnqueueReadBuffer:1": "device: gpu0: computes wrong numbers",
    "none:0": "right",
}


def test_each_code_is_read_for_what_it_is(
    preloaded: Path, emulated_gpu: DeviceSpec
) -> None:
    spec = msgspec.json.encode(emulated_gpu).decode()
    program = [sys.executable, str(HERE / "faulty.py"), spec, str(preloaded)]

    ended = subprocess.run(
        [*program, *EXPECTED], capture_output=True, text=True, check=True, timeout=100
    )

    told = dict(zip(EXPECTED, ended.stdout.splitlines(), strict=True))
    assert {
        fault: line[: len(EXPECTED[fault])] for fault, line in told.items()
    } == EXPECTED


# ---------------------------------------------------------------- a whole node


APP = """
from dataclasses import dataclass
import numpy as np
from libtask import Size, Task

@dataclass
class Numbers(Task):
    strips: int = 3

    def load(self):
        self.numbers = np.zeros(1024, np.int32)

    def total(self):
        return self.strips

    def save(self, checkpoint):
        return int(self.numbers.sum())

class Sum(Numbers):
    def check(self, checkpoint):
        same = (self.numbers == self.numbers[-1]).all()
        return "" if same else "some differ"

class BoardSum(Numbers): pass
class TextSum(Numbers): pass

@BoardSum.on("cpu")
@Sum.on("cpu")
def cpu(task, device, checkpoint):
    for strip in checkpoint.strips():
        task.numbers += len(strip)
        yield

SOURCE = "__kernel void add(__global int *n, int k) { n[get_global_id(0)] += k; }"

@Sum.on("gpu")
def gpu(task, device, checkpoint):
    kernel = device.program(SOURCE).kernel("add")
    with device.resident(task.numbers) as (buffer,):
        for strip in checkpoint.strips():
            kernel(device.queue, (1024,), None, buffer, np.int32(len(strip)))
            yield

@BoardSum.on("fpga")
def fpga(task, device, checkpoint):
    device.kernel("board.sums", "ignored.cl", "add")
    yield from gpu(task, device, checkpoint)

TextSum.on("fpga")(gpu)
"""

RESOURCES = """
strip_limit_s = 1.0
[[resource]]
name = "cpu"
kind = "cpu"
[[resource]]
name = "gpu0"
kind = "gpu"
driver = "opencl"
platform = "{platform}"
device = "{device}"
index = {index}
emulated = true
[[resource]]
name = "fpga0"
kind = "fpga"
driver = "opencl"
platform = "{platform}"
device = "{device}"
index = {index}
emulated = true
binaries = {{ "board.sums" = "{image}" }}
"""


@pytest.fixture
def node(_node: PrivateDaemon, preloaded: Path) -> PrivateDaemon:
    """Return a daemon with a CPU and a GPU that works, until a fault is written."""
    preloaded.unlink(missing_ok=True)
    _node.client.resume("gpu0")
    _node.client.resume("fpga0")
    return _node


@pytest.fixture(scope="module")
def _node(preloaded: Path, emulated_gpu: DeviceSpec) -> Iterator[PrivateDaemon]:
    preloaded.unlink(missing_ok=True)
    table = RESOURCES.format(
        platform=emulated_gpu.platform,
        device=emulated_gpu.device,
        index=emulated_gpu.index,
        image=preloaded.with_name("board.aocx"),
    )
    with opened(SETTINGS + table) as daemon:
        yield daemon


@pytest.fixture
def app(tmp_path: Path) -> str:
    path = tmp_path / "sums.py"
    path.write_text(APP)
    return f"{path}:Sum"


def _device(node: PrivateDaemon, name: str = "gpu0") -> DeviceInfo:
    (found,) = [each for each in node.client.devices() if each.spec.name == name]
    return found


def test_a_lost_device_is_avoided_tried_and_used_again(
    node: PrivateDaemon, app: str, preloaded: Path
) -> None:
    (known,) = _run_on_gpu(node, app, 1)
    assert [s.resource for s in node.info(known).segments] == ["gpu0"]
    preloaded.write_text("clFinish -2\n")

    ids = _run_on_gpu(node, app, 3)

    for task in ids:
        assert [s.resource for s in node.info(task).segments] == ["gpu0", "cpu"]
        assert "DEVICE_NOT_AVAILABLE (-2)" in node.info(task).segments[0].stop_rule
    gpu = _device(node)
    assert gpu.state == "lost"
    eventually(lambda: "self-test failed" in _device(node).reason, "a failed self-test")
    assert "DEVICE_NOT_AVAILABLE (-2)" in _device(node).reason
    shown = Terminal(node)("devices")
    assert "\ngpu0: self-test failed: DEVICE_NOT_AVAILABLE (-2)" in shown
    waits = node.client.submit(app, {}, resources=["gpu0"])
    preloaded.unlink()
    assert waits.result(PATIENCE) == 3 * 1024
    assert _device(node).state == "up"


def _run_on_gpu(
    node: PrivateDaemon, app: str, number: int, name: str = "gpu0"
) -> list[int]:
    """Run tasks that begin on the GPU, one after the other; return their ids."""
    ids = []
    for _ in range(number):
        handle = node.client.submit(app, {}, hold=True)
        node.client.migrate(handle.id, name)
        node.client.release(handle.id)
        assert handle.result(PATIENCE) == 3 * 1024
        ids.append(handle.id)
    return ids


def test_wrong_numbers_keep_a_failed_device_out_of_use(
    node: PrivateDaemon, app: str, preloaded: Path
) -> None:
    preloaded.write_text("clEnqueueNDRangeKernel -5\n")
    _run_on_gpu(node, app, 3)
    assert _device(node).state == "lost"

    preloaded.write_text("clEnqueueReadBuffer 1\n")

    eventually(lambda: "computes wrong numbers" in _device(node).reason, "a trial")
    preloaded.unlink()
    node.client.resume("gpu0")
    assert _device(node).state == "up"


def test_wrong_numbers_that_a_task_notices_cost_its_device_the_task(
    node: PrivateDaemon, app: str, preloaded: Path
) -> None:
    preloaded.write_text("clEnqueueReadBuffer 1\n")

    (task,) = _run_on_gpu(node, app, 1)

    info = node.info(task)
    assert [s.resource for s in info.segments] == ["gpu0", "cpu"]
    assert "gpu0: computes wrong numbers: some differ" in info.segments[0].stop_rule
    preloaded.unlink()


def test_a_task_in_a_call_that_never_returns_goes_on_elsewhere(
    node: PrivateDaemon, app: str, preloaded: Path
) -> None:
    handle = node.client.submit(app, {"strips": 100_000}, hold=True, strip=1)
    node.client.migrate(handle.id, "gpu0")
    node.client.release(handle.id)
    _await_reports(node, handle.id)

    preloaded.write_text("clEnqueueNDRangeKernel 2\n")

    assert handle.result(PATIENCE) == 100_000 * 1024
    info = node.info(handle.id)
    assert [s.resource for s in info.segments] == ["gpu0", "cpu"]
    assert "no checkpoint was reached in 1 s" in info.segments[0].stop_rule
    preloaded.unlink()


def _await_reports(node: PrivateDaemon, task: int) -> None:
    """Wait for some reports: the first ones are still part of set-up."""
    seen: set[float] = set()

    def reported() -> bool:
        seen.add(node.info(task).progress)
        return len(seen) > 4

    eventually(reported, "reports")


def test_a_program_that_does_not_build_says_why_and_is_not_tried_again(
    node: PrivateDaemon, app: str, preloaded: Path
) -> None:
    with Path(app.rpartition(":")[0]).open("a") as file:
        file.write("\nSOURCE = SOURCE + 'no such type;'\n")

    (task,) = _run_on_gpu(node, app, 1)

    info = node.info(task)
    assert [s.resource for s in info.segments] == ["gpu0", "cpu"]
    assert "does not compile" in info.segments[0].stop_rule
    log = Path(info.segments[0].log).read_bytes()
    assert b"unknown type name 'no'" in log
    assert _device(node).state == "up"


# ---------------------------------------------------------------- boards


@pytest.fixture
def image(preloaded: Path) -> Iterator[Path]:
    """Return where the board's binary is to lie; it does not."""
    path = preloaded.with_name("board.aocx")
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "fault",
    [
        (None, "none 0", "cannot read binary"),
        (b"of another board", "clCreateProgramWithBinary -42", "INVALID_BINARY (-42)"),
    ],
    ids=["missing", "refused"],
)
def test_a_binary_that_is_no_good_costs_its_own_tasks_the_board_and_no_others(
    node: PrivateDaemon,
    app: str,
    preloaded: Path,
    image: Path,
    fault: tuple[bytes | None, str, str],
) -> None:
    content, call, told = fault
    if content is not None:
        image.write_bytes(content)
    preloaded.write_text(f"{call}\n")

    ids = _run_on_gpu(node, app.replace(":Sum", ":BoardSum"), 4, "fpga0")

    for task in ids:
        assert [s.resource for s in node.info(task).segments] == ["fpga0", "cpu"]
        assert told in node.info(task).segments[0].stop_rule
    assert _device(node, "fpga0").state == "up"
    (other,) = _run_on_gpu(node, app.replace(":Sum", ":TextSum"), 1, "fpga0")
    assert [s.resource for s in node.info(other).segments] == ["fpga0"]


def test_a_board_that_another_process_holds_is_left_alone_for_a_while(
    node: PrivateDaemon, app: str, preloaded: Path, image: Path
) -> None:
    image.write_bytes(b"never looked at")
    preloaded.write_text("clCreateProgramWithBinary -2\nclFinish -2\n")

    ids = _run_on_gpu(node, app.replace(":Sum", ":BoardSum"), 3, "fpga0")

    for task in ids:
        assert [s.resource for s in node.info(task).segments] == ["fpga0", "cpu"]
        assert "DEVICE_NOT_AVAILABLE (-2)" in node.info(task).segments[0].stop_rule
    assert _device(node, "fpga0").state == "lost"
    preloaded.unlink()
    waits = node.client.submit(app.replace(":Sum", ":TextSum"), {}, resources=["fpga0"])
    assert waits.result(PATIENCE) == 3 * 1024
    assert _device(node, "fpga0").state == "up"
