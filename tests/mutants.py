"""`make mutants`: change the code in thousands of small ways; list changes that no test notices.

    python tests/mutants.py [--minutes 10] [--only MODULE,...] [--json]

mutmut does it, as `[tool.mutmut]` of pyproject.toml says: which modules, and which tests
are to notice. It expects one source folder, so it works in a copy where the daemon's
packages lie in `src`. What is tried stays in that copy: the next run goes on from there,
until the sources change.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "torture-output" / "mutants"
STATUS = {None: "untried", 0: "survived", 33: "untested"}
"""Exit status of the tests under a mutant -> what that means; any other one: killed."""
END_S = 60.0


def main() -> None:
    """Try mutants until all are tried or the time is over; print what became of them."""
    chosen = _parse()
    _copy()
    _try(chosen.minutes, [f"{name}*" for name in chosen.only.split(",") if name])
    rows = _rows()
    if chosen.json:
        print(json.dumps({"format": "mutants-1", "modules": rows}, indent=1))
    else:
        print("\n".join(map(_line, rows)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="stop then")
    parser.add_argument("--only", default="", help="modules, as hetsched.queues,...")
    parser.add_argument("--json", action="store_true", help="with names of survivors")
    return parser.parse_args()


def _copy() -> None:
    """Lay the sources and tests out as mutmut expects them."""
    ignore = shutil.ignore_patterns("__pycache__")
    for source, target in ((ROOT / "daemon", "src"), (ROOT / "tests", "tests")):
        shutil.rmtree(PLACE / target, ignore_errors=True)
        shutil.copytree(source, PLACE / target, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", PLACE)


def _try(minutes: float, names: list[str]) -> None:
    """Run mutmut for this time; its progress goes to standard error."""
    program = Path(sys.executable).with_name("mutmut")
    # a shell that runs this in the background has it ignored, and mutmut after it
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = [str(program), "run", "--max-children", "1", *names]
    running = subprocess.Popen(command, cwd=PLACE, stdout=sys.stderr)
    try:
        status = running.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)
        status = running.wait(END_S)
    if status != 0:
        sys.exit("mutants: mutmut failed, see above")


def _rows() -> list[dict[str, Any]]:
    """Count what became of the mutants of each module."""
    return [_row(path) for path in sorted((PLACE / "mutants").rglob("*.meta"))]


def _row(path: Path) -> dict[str, Any]:
    exits = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    became = {name: STATUS.get(status, "killed") for name, status in exits.items()}
    module = str(path.relative_to(PLACE / "mutants" / "src")).removesuffix(".meta")
    survivors = sorted(name for name, what in became.items() if what == "survived")
    return {"module": module, **Counter(became.values()), "survivors": survivors}


def _line(row: dict[str, Any]) -> str:
    counts = {name: row.get(name, 0) for name in ("killed", *STATUS.values())}
    return "  ".join([row["module"], *(f"{n} {what}" for what, n in counts.items())])


if __name__ == "__main__":
    main()
