"""The command that installs a missing optional package of hetd."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra into this environment.

    That of a service has no pip: its administrator repeats the installation, with the extra.
    """
    if find_spec("pip") is not None:
        return f"{sys.executable} -m pip install 'hetd[{extra}]'"
    return (
        f"{sys.prefix} has no pip; install 'hetd[{extra}]' in an environment of your own, "
        f"or make install EXTRAS={extra}"
    )
