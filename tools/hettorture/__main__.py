"""`python -m hettorture COMMAND …`: each command is a module with a `main`."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "powercuts": "the power goes while the store writes, again and again (root)",
    "simulate": "the whole daemon in a simulation, seed by seed",
}
"""Command, which is also its module -> what it does."""


def main() -> int:
    """Run a command; return its exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        told = "; ".join(f"{each}: {what}" for each, what in COMMANDS.items())
        sys.stderr.write(f"hettorture: name a command ({told})\n")
        return 2
    module = importlib.import_module(f"hettorture.{name}")
    return int(module.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
