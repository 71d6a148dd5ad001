"""`python -m hetd.store check|backup|restore`: maintenance of a store that is not open here.

Prints one JSON object; problems make the exit status 1. `hetctl daemon` calls it, as
clients do not import the daemon.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import msgspec

from hetd.store.maintenance import NAME, Findings, backup, check, restore
from libtask.errors import HetError, InputError, NotAllowedError, NotFoundError

STATUS: tuple[tuple[type[HetError], int], ...] = (
    (NotFoundError, 4),
    (NotAllowedError, 5),
    (InputError, 2),
)
"""Exit status by error; the first that fits, else 1."""


def main() -> None:
    """Run the command line."""
    try:
        found = _done(_parse())
    except HetError as error:
        print(error, file=sys.stderr)  # noqa: T201  the one line
        fitting = (status for kind, status in STATUS if isinstance(error, kind))
        sys.exit(next(fitting, 1))
    print(msgspec.json.encode(asdict(found)).decode())  # noqa: T201  the answer
    sys.exit(1 if found.problems else 0)


def _done(arguments: argparse.Namespace) -> Findings:
    path = arguments.state / NAME
    if arguments.action == "check":
        return check(path)
    if arguments.action == "backup":
        return backup(path, arguments.file, replace=arguments.force)
    return restore(path, arguments.file)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hetd.store", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("check", "backup", "restore"):
        action = actions.add_parser(name)
        action.add_argument("state", type=Path, help="state directory")
        if name != "check":
            action.add_argument("file", type=Path, help="the backup")
        if name == "backup":
            action.add_argument("--force", action="store_true", help="replace it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
