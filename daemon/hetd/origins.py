"""Origins: where the values of the configuration come from, and where hetd's files lie.

`hetctl config show` and `hetctl daemon status` tell it. Made at the start; the document
is that of the last good reading of the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from libtask.messages import ConfigValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hetd.config import Config
    from hetd.settings import Setting

STANDARD_ERROR = Path("/proc/self/fd/2")


@dataclass(slots=True)
class Origins:
    """Where things come from, and lie.

    Attributes:
        file: the configuration; None: there is none.
        policy: that of the command line; None: it names none.
        state: the folder of the store.
        log: what is said goes there: a file, or `journal`; empty: a terminal or a pipe.
        managed: whether a service manager started the daemon.
        document: what the file says, as it was read last.

    """

    file: Path | None = None
    policy: str | None = None
    state: Path | None = None
    log: str = ""
    managed: bool = False
    document: Mapping[str, Any] = field(default_factory=dict)


def log_of_this_process() -> str:
    """Return the file that standard error goes to; `journal`; empty: something else."""
    if "JOURNAL_STREAM" in os.environ:
        return "journal"
    try:
        target = STANDARD_ERROR.readlink()
    except OSError:
        return ""
    try:
        return str(target) if target.is_file() else ""
    except (
        OSError
    ):  # whoever started hetd may write there, and hetd itself may not look
        return str(target)


def values(
    config: Config, origins: Origins, setting: Setting | None
) -> Iterator[ConfigValue]:
    """Tell every value of the configuration in force, by its key, and its source.

    Args:
        config: the one in force.
        origins: where it comes from.
        setting: the policy that an operator has put in force.

    """
    said = dict(_flat(origins.document))
    for key, value in _flat(msgspec.to_builtins(config)):
        if key == "policy" and setting is not None:
            told = f"hetctl policy set, {setting.told()}; configured: {value}"
            yield ConfigValue(key, setting.policy, "operator", told)
        elif key == "policy" and origins.policy is not None:
            yield ConfigValue(key, value, "command line")
        elif key in said and said[key] == value:
            yield ConfigValue(key, value, "file")
        elif key in said:
            told = f"the file says {said[key]}: from the next start on"
            yield ConfigValue(key, value, "start", told)
        else:
            yield ConfigValue(key, value, "default")


def _flat(document: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the values of nested tables by dotted keys."""
    if isinstance(document, dict) and (document or not place):
        for key, value in document.items():
            yield from _flat(value, f"{place}.{key}" if place else str(key))
    elif isinstance(document, list) and document and isinstance(document[0], dict):
        for number, value in enumerate(document):
            yield from _flat(value, f"{place}[{number}]")
    else:
        yield place, document
