"""`python -m hetdemo`: hetd's main job on this machine, from nothing to checked results.

Says what the machine is and which driver emulates what, starts a daemon of its own,
moves a first task by hand, measures the applications, runs a mixed batch under the daemon's default policy, checks
every result, says what migration was worth, and draws what ran where. It succeeds only if
every resource that is in use computed something (an emulated one may idle beside a real card),
and all results are right.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from hetdemo.batch import APPS, POLICY, make_batch
from hetdemo.checks import check_all
from hetdemo.daemon import demo_daemon
from hetdemo.first_move import first_move
from hetdemo.flow import run_batch
from hetdemo.inputs import make_inputs, write_flower
from hetdemo.machine import machine_lines, offered
from hetdemo.pipeline import resembling, submit_pipeline
from hetdemo.progress import Followed, Names, Trials, bars
from hetdemo.report import (
    LEGEND,
    Outcome,
    resource_table,
    shortcomings,
    summary,
    task_table,
)
from hetdemo.worth import worth_lines, worth_of, write_scenario
from libtask.characterisation import characterise
from libtask.errors import HetError, InputError
from libtask.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from hetdemo.batch import Job
    from libtask.client.client import Client
    from libtask.messages import DeviceInfo, TaskInfo

OUTPUT = Path("demo-output")
INTERRUPTED = 130
GRAPH_HELP = (
    "run a graph of tasks instead: a photograph is blurred, the columns of both halves "
    "are correlated, and a Markov chain is made of the coefficients"
)


def main() -> int:
    """Run the demo; return its exit status."""
    parser = argparse.ArgumentParser(prog="hetdemo", description=__doc__)
    parser.add_argument("--graph", action="store_true", help=GRAPH_HELP)
    chosen = parser.parse_args()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _leave)
    try:
        _check_packages()
        demo = Demo(console, OUTPUT.absolute())
        good = demo.run_graph() if chosen.graph else demo.run()
    except HetError as error:
        # the name hetd[demo] contains what looks like markup
        console.print(
            f"hetdemo: {error}", style="bold red", markup=False, soft_wrap=True
        )
        return 1
    except KeyboardInterrupt:
        console.print("hetdemo: interrupted; the daemon was stopped")
        return INTERRUPTED
    except TerminatedError as error:
        console.print("hetdemo: ended by SIGTERM; the daemon was stopped")
        return error.status
    return 0 if good else 1


def _check_packages() -> None:
    """Refuse to begin without the packages that make inputs and draw.

    Raises:
        InputError: the extra with them is not installed.

    """
    lacking = [name for name in ("sklearn", "matplotlib") if find_spec(name) is None]
    if lacking:
        names = " and ".join(lacking)
        raise InputError(f"the demo needs {names}: {how_to_install('demo')}")


class TerminatedError(BaseException):
    """A signal ends the demo, as Ctrl-C does; `status`: that of a shell for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End as after Ctrl-C: tasks are cancelled and the daemon is stopped."""
    raise TerminatedError(number)


class Demo:
    """One run of the demo.

    Args:
        console: the console for progress and results.
        folder: the folder for inputs, results, the daemon's files and the picture.

    """

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder
        self._scenario = folder / "scenario.json"
        self._began = time.monotonic()

    def run(self) -> bool:
        """Run the demo; return whether all results are right."""
        self._step(f"Starting a daemon with the policy {POLICY!r}")
        with demo_daemon(self._folder, POLICY) as client:
            every = client.devices()
            devices, names = offered(every), Names(every)
            for line in machine_lines(every, names):
                self._say(f"  {line}")
            self._step("Moving a first task by hand, in the middle of its work")
            first_move(client, devices, names, self._say)
            jobs = self._prepare()
            self._characterise(client, names)
            infos = self._flow(client, jobs, names)
            known = write_scenario(client, devices, infos, self._scenario)
        outcomes = self._check(jobs, infos)
        self._console.print(task_table(outcomes, names))
        self._console.print(LEGEND, style="dim")
        self._console.print(resource_table(devices, infos, names))
        self._compare(known=known)
        picture = self._draw(devices, infos)
        self._say(f"Gantt picture: {picture}")
        self._console.print(summary(outcomes), style="bold")
        missing = shortcomings(devices, outcomes, names)
        for line in missing:
            self._say(line, style="bold red")
        return not missing

    def run_graph(self) -> bool:
        """Run the graph of `hetdemo.pipeline`; return whether all results are right."""
        self._step(f"Starting a daemon with the policy {POLICY!r}")
        with demo_daemon(self._folder, POLICY) as client:
            names = Names(client.devices())
            self._step("Writing a photograph, and submitting what becomes of it")
            folder = self._folder / "pipeline"
            folder.mkdir(exist_ok=True)
            pipeline = submit_pipeline(client, write_flower(folder), folder)
            for handle in pipeline.steps:
                state = handle.wait()
                self._say(f"  {handle.info().name}: {state}")
            infos = [handle.info() for handle in pipeline.steps]
        checked = [info for info in infos if info.id in pipeline.jobs]
        outcomes = self._check([pipeline.jobs[info.id] for info in checked], checked)
        self._console.print(task_table(outcomes, names))
        self._say(f"Picture of the graph: {self._draw_graph(infos)}")
        if all(outcome.good for outcome in outcomes):
            columns = ", ".join(map(str, resembling(folder / "steady.npy")))
            self._say(f"columns that resemble all others most: {columns}")
        self._console.print(summary(outcomes), style="bold")
        return all(outcome.good for outcome in outcomes)

    def _draw_graph(self, infos: list[TaskInfo]) -> Path:
        """Draw the graph as `hetctl graph` does; return the picture's path."""
        from hetctl.export.jobgraph import write_graph
        from hetctl.views.jobs import jobs_of

        picture = self._folder / "graph.svg"
        end = max(info.finished or info.submitted for info in infos)
        (job,) = jobs_of(infos, end)
        write_graph(job, picture)
        return picture

    def _compare(self, *, known: bool) -> None:
        """Print the benefit of migration."""
        if not known:
            self._say("not all tasks completed: what migration was worth is not known")
            return
        for line in worth_lines(worth_of(self._scenario)):
            self._say(line)
        self._say(f"(hetsim run {self._scenario} --policy NAME tries others)")

    def _say(self, line: str, style: str = "") -> None:
        """Print a line without markup: it may contain texts of drivers."""
        self._console.print(line, style=style, markup=False, soft_wrap=True)

    def _prepare(self) -> list[Job]:
        self._step("Writing inputs: photographs, tables, chains")
        inputs = make_inputs(self._folder / "inputs")
        return make_batch(inputs, self._folder / "results")

    def _characterise(self, client: Client, names: Names) -> None:
        self._step("Measuring each application alone on each resource")
        with bars(self._console) as progress:
            trials = Trials(self._console, progress, names)
            characterise(client, APPS, quick=True, report=trials.changed)

    def _flow(self, client: Client, jobs: list[Job], names: Names) -> list[TaskInfo]:
        self._step(f"Running {len(jobs)} tasks")
        with bars(self._console) as progress:
            return run_batch(client, jobs, Followed(self._console, progress, names))

    def _check(self, jobs: Sequence[Job], infos: Sequence[TaskInfo]) -> list[Outcome]:
        self._step("Checking every result against a float64 reference")
        done = [
            (job.task, info.result)
            for job, info in zip(jobs, infos, strict=True)
            if info.state == "completed"
        ]
        outcomes = []
        with closing(check_all(done)) as verdicts, bars(self._console) as progress:
            shown = progress.add_task("checking", total=len(infos), note="")
            for info in infos:
                progress.update(shown, note=info.name)
                verdict = next(verdicts) if info.state == "completed" else None
                outcomes.append(Outcome(info, verdict))
                progress.advance(shown)
                if verdict is not None and not self._console.is_terminal:
                    self._say(f"  {info.name}: {verdict}")
        return outcomes

    def _draw(self, devices: list[DeviceInfo], infos: list[TaskInfo]) -> Path:
        """Draw the batch as `hetctl gantt` does; return the picture's path."""
        from hetctl.export.chart import draw
        from hetctl.export.lanes import laid_out

        picture = self._folder / "gantt.png"
        ran = [info for info in infos if info.segments]
        end = max(info.finished or info.submitted for info in infos)
        draw(*laid_out(ran, devices, end), picture)
        return picture

    def _step(self, what: str) -> None:
        passed = time.monotonic() - self._began
        self._console.print(f"[bold]{what}[/] [dim]({passed:.0f} s)[/]")


if __name__ == "__main__":
    sys.exit(main())
