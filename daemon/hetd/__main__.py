"""`hetd`: read the configuration, open the parts, run the loop."""

from __future__ import annotations

import argparse
import gc
import grp
import logging
import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

import hetd
from hetd.assembly import Parts, assemble, make_drain, make_loop
from hetd.config import ActiveConfig, Config, Origins, log_of_this_process
from hetd.daemon import Serving
from hetd.devices.discovery import discover, with_verdicts
from hetd.log import LogWriter
from hetd.store import Retention, Store, StoreError
from hetd.store.errors import CURE
from hetd.store.lock import lock
from hetd.systemd import Notifier, passed_socket, path_of
from hetd.tasks.journal import Journal
from hetd.tasks.stored_profiles import restore_profiles
from hetd.transport.connection_guard import Allowance
from hetd.transport.poller import Poller
from hetd.transport.router import Router
from hetd.workers.pool import WorkerPool
from hetsched import build
from hetsched.estimates.table import EstimateTable
from hetsched.policies import make_policy, plug_ins
from libtask.endpoint import run_directory
from libtask.errors import HetError, InputError
from libtask.user_folders import user_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hetd.runtime import Runtime
    from hetsched.policy import Policy
    from libtask.messages import DeviceInfo

log = logging.getLogger("hetd")

START_S = 120.0
"""Time limit of a start: driver discovery, and recovery of the unfinished tasks."""
MISTAKEN_S = 5.0
"""Delay before a socket-activated daemon exits on a configuration error."""
STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
DISCOVERY_S = 60.0
"""Drivers may compile on their first use; a hanging one must not prevent the start."""


class RecordsLostError(HetError):
    """The records in memory contradict each other because of what a policy did."""


def main() -> None:
    """Run the daemon."""
    # Until it means something, see `Serving`: it must not end a daemon that starts.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    environment = dict(os.environ)
    writer = LogWriter()
    logging.basicConfig(level=logging.INFO, handlers=[writer])
    # Commits wait for this interpreter's lock as briefly as possible.
    sys.setswitchinterval(0.0005)
    try:
        arguments = parser().parse_args()
        arguments.state = arguments.state or _own_state()
        if arguments.check:
            _check(arguments)
        else:
            _serve(arguments)
    except HetError as error:
        writer.say(f"hetd: {error}")
        writer.flush()
        _leave(error, environment)
    except Exception:
        # not left to the interpreter, which would wait for the reader of its last words
        log.exception("fatal: unhandled exception, shutting down")
        sys.exit(1)
    finally:
        # all is done: a signal more must not end the interpreter as it leaves
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)


def _leave(error: HetError, environment: Mapping[str, str]) -> NoReturn:
    """End after an error, or start again in this process.

    Args:
        error: of the client where it is an `InputError`.
        environment: that hetd was started with.

    """
    activated = "LISTEN_FDS" in environment
    managed = activated or "NOTIFY_SOCKET" in environment
    if isinstance(error, RecordsLostError) and not managed:
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606  this command itself
    if not isinstance(error, InputError):
        sys.exit(1)
    if activated:
        # clients go on knocking, and each would start it again at once
        time.sleep(MISTAKEN_S)
    sys.exit(2)


def parser() -> argparse.ArgumentParser:
    """Describe the command line; the manual page is made of it."""
    made = argparse.ArgumentParser(
        prog="hetd",
        description="Run tasks on CPU, GPU and FPGA, and move them between.",
    )
    version = f"hetd {hetd.__version__}" + " (compiled)" * (build.NAME == "compiled")
    made.add_argument("--version", action="version", version=version)
    made.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help="where to listen, unless the service manager passes a socket; default: "
        "hetd/hetd.sock in the runtime directory of the user",
    )
    made.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="where the tasks are kept; default: hetd in the state directory of the user",
    )
    made.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=_own_config(),
        help="the configuration, see hetd.toml(5); default: hetd/hetd.toml in the "
        "configuration directory of the user, where there is one",
    )
    made.add_argument(
        "--policy",
        metavar="NAME",
        help="schedule by this policy, not the configured one, unless `hetctl policy set` "
        "has put another in force",
    )
    made.add_argument(
        "--check",
        action="store_true",
        help="only check the configuration; exit status 2 if hetd would not start with it",
    )
    return made


def _own_config() -> Path | None:
    try:
        path = user_folder("config") / "hetd.toml"
    except InputError:
        return None  # an account without a home directory has no configuration
    return path if path.is_file() else None


def _own_state() -> Path:
    try:
        return user_folder("state")
    except InputError as error:
        raise InputError(f"{error}, or give --state FOLDER") from error


def _check(arguments: argparse.Namespace) -> None:
    """Read the configuration, and make the policy that it names.

    Raises:
        InputError: the daemon would not start with them.

    """
    config = _origins(arguments).read()
    make_policy(config.policy, config.policy_parameters)


def _serve(arguments: argparse.Namespace) -> None:
    with ExitStack() as stack:
        origins = _origins(arguments)
        notifier = Notifier()
        stack.callback(notifier.close)
        notifier.starting(START_S)
        if build.FAULT:
            log.warning("%s", build.FAULT)
        config = origins.read()
        policy = _policy(config)
        stack.callback(os.close, lock(arguments.state))
        store = Store(arguments.state / "hetd.db", _retention(config))
        stack.callback(store.close)
        router = _router(arguments, config)
        stack.callback(router.close)
        router.self_test()
        parts = _assemble(ActiveConfig(config, origins), store, router, policy)
        runtime = parts.runtime
        stack.callback(parts.devices.close)
        with _without_failed_policy(runtime, store):
            _restore(runtime)
        log.info("serving %s on %s", ", ".join(parts.devices.infos), router.path)
        poller = Poller(router.socket, store.wake_fd)
        router.guard.begin(runtime.journal.bytes())
        serving = Serving(
            make_loop(parts, router, store, poller),
            make_drain(parts),
            runtime,
            parts.config,
            router.guard,
            notifier,
        )
        with _without_failed_policy(runtime, store):
            serving.run(poller)
        if router.guard.exhausted:
            raise HetError(router.guard.exhausted)
        runtime.pool.retire_launchers(runtime.journal.live_of.get)


@contextmanager
def _without_failed_policy(runtime: Runtime, store: Store) -> Iterator[None]:
    """Store the fault of a policy of another package that has changed the records of tasks.

    Raises:
        RecordsLostError: there is such a fault: hetd has to start again.

    """
    try:
        yield
    except Exception as error:
        fault = runtime.foreign_policy.fault_in(error)
        if not fault:
            raise
        store.flush()
        runtime.give_up_policy(fault)
        store.submit(runtime.journal.take_batch())
        store.flush()
        raise RecordsLostError(
            "the records of tasks in memory are not valid any more; hetd starts again "
            "from its store"
        ) from error


def _policy(config: Config) -> Policy:
    """Load the policies of other packages, once and for all; make the configured one."""
    found = plug_ins()
    for name, package in found.packages.items():
        log.info("policy %s comes from package %s", name, package)
    for fault in found.faults.values():
        log.warning("%s", fault)
    return make_policy(config.policy, config.policy_parameters)


def _origins(arguments: argparse.Namespace) -> Origins:
    """Note where things come from, before the service manager's variables are taken."""
    return Origins(
        arguments.config,
        arguments.policy,
        arguments.state.absolute(),
        log_of_this_process(),
        managed="NOTIFY_SOCKET" in os.environ or "LISTEN_FDS" in os.environ,
    )


def _restore(runtime: Runtime) -> None:
    """Recover the tasks and settings of the previous run.

    A search for cyclic garbage among that number of new objects, which have none, would
    double the time; later searches leave them out, too.

    Raises:
        StoreError: what is stored cannot be decoded.

    """
    gc.disable()
    try:
        runtime.restore()
    except msgspec.MsgspecError as error:
        text = (
            f"a stored value is invalid: {error}; hetd does not start with it: {CURE}"
        )
        raise StoreError(text) from error
    finally:
        gc.enable()
    gc.freeze()


def _retention(config: Config) -> Retention:
    return Retention(config.history_days, config.history_tasks)


def _router(arguments: argparse.Namespace, config: Config) -> Router:
    passed = passed_socket()
    path = _path(arguments) if passed is None else Path(path_of(passed))
    group = _gid(config.socket_group) if config.socket_group else None
    return Router(path.absolute(), _allowance(config), group=group, passed=passed)


def _path(arguments: argparse.Namespace) -> Path:
    named: Path | None = arguments.socket
    return named or run_directory() / "hetd.sock"


def _gid(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise InputError(f"socket_group: there is no group {group!r}") from error


def _allowance(config: Config) -> Allowance:
    return Allowance(config.connections_per_user, config.memory_mb << 20)


def _assemble(
    config: ActiveConfig, store: Store, router: Router, policy: Policy
) -> Parts:
    estimates = EstimateTable(config.value.probing)
    for known in store.samples():
        estimates.enter(known)
    restore_profiles(estimates.profiles, store.settings())
    return assemble(
        config,
        _devices(config.value),
        policy,
        estimates,
        Journal(store),
        WorkerPool(router.send, prefix=str(store.incarnation)),
    )


def _devices(config: Config) -> list[DeviceInfo]:
    if config.resource:
        return with_verdicts(
            [table.device_info() for table in config.resource], DISCOVERY_S
        )
    return discover(DISCOVERY_S)


if __name__ == "__main__":
    main()
