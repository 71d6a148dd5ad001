"""The processes of a pool: `python -m hetpool scheduler`, `node` and `gateway`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetpool.setup.config import read_settings
from hetpool.setup.settings import refuse_root
from libtask.errors import DaemonUnreachableError, HetError, InputError, NotAllowedError
from libtask.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetpool.setup.config import NodeSettings

UNREACHABLE, REFUSED = 3, 5
"""Exit statuses, as those of hetctl."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a process of a pool until SIGTERM; return the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        format="%(levelname)s %(name)s: %(message)s", level=logging.INFO
    )
    try:
        refuse_root(allowed=options.allow_root)
        asyncio.run(_run(options))
    except HetError as error:
        print(f"hetpool: {error}", file=sys.stderr)  # noqa: T201  the program's answer
        return _status(error)
    except ModuleNotFoundError as error:
        text = f"the extra `pool` is missing ({error}): {how_to_install('pool')}"
        print(f"hetpool: {text}", file=sys.stderr)  # noqa: T201  the program's answer
        return 1
    return 0


def _status(error: HetError) -> int:
    if isinstance(error, DaemonUnreachableError):
        return UNREACHABLE
    return REFUSED if isinstance(error, NotAllowedError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hetpool", description=__doc__)
    parser.add_argument("role", choices=["scheduler", "node", "gateway"])
    parser.add_argument("--config", type=Path, help="pool.toml; else the user's")
    parser.add_argument("--name", default="", help="of the node, as in pool.toml")
    parser.add_argument("--socket", type=Path, help="of the node's hetd")
    parser.add_argument("--folder", type=Path, help="for the node's files")
    parser.add_argument("--incoming", type=Path, help="where clients leave input files")
    parser.add_argument(
        "--allow-root", action="store_true", help="run as root: for a private pool"
    )
    return parser


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.role == "scheduler":
        await _scheduler(options, stop)
    else:
        await _node(options, stop)


async def _scheduler(options: argparse.Namespace, stop: asyncio.Event) -> None:
    from hetpool.broker.broker import Broker
    from hetpool.broker.planning_process import PlanningProcess
    from hetpool.engine.scheduler import DaskSchedulerEngine

    settings = read_settings(options.config)
    planning = PlanningProcess()
    try:
        engine = DaskSchedulerEngine(settings.engine())
        broker = Broker(engine, settings.broker(), planning)
        watch = asyncio.ensure_future(broker.watch(stop))
        await engine.run(broker, stop)
        watch.cancel()
    finally:
        planning.close()


async def _node(options: argparse.Namespace, stop: asyncio.Event) -> None:
    from hetpool.node.service import NodeOptions, serve

    settings = read_settings(options.config)
    gateway = options.role == "gateway"
    if options.name or settings.this is None:
        node = _listed(settings.nodes, options.name, gateway=gateway)
    else:
        node = settings.this
    own = NodeOptions(node, options.socket, options.folder, options.incoming)
    await serve(own, settings.engine(), settings.lease_s, stop)


def _listed(nodes: Sequence[NodeSettings], name: str, *, gateway: bool) -> NodeSettings:
    """Find a node's table by its name.

    Raises:
        InputError: there is none, or it has the other role.

    """
    found = next((each for each in nodes if each.name == name), None)
    if found is None:
        names = ", ".join(each.name for each in nodes) or "none"
        raise InputError(f"--name {name!r}: not in pool.toml; there are: {names}")
    if found.gateway != gateway:
        word = "a gateway" if found.gateway else "not a gateway"
        raise InputError(f"--name {name}: {word}, by pool.toml")
    return found


if __name__ == "__main__":
    sys.exit(main())
