"""The way to a pool: its settings, its certificates, and a connection.

Nothing here is imported at hetctl's start. `reach` finds out in milliseconds whether there
is a scheduler that accepts us; `open_pool` loads Dask, which takes a second.
"""

from __future__ import annotations

import datetime as dt
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from hetctl.options import Decorated, json_option
from hetctl.output import now
from libtask.errors import HetError
from libtask.extras import how_to_install

if TYPE_CHECKING:
    from pathlib import Path

    from hetpool.client.pool import Pool
    from hetpool.setup.config import PoolSettings

NEEDED = ("distributed", "cryptography")
"""Packages of the extra `pool`."""
PATIENCE_S = 20.0

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="The pool's file.  [default: $HETPOOL_CONFIG, else ~/.config/hetd/pool.toml]",
)


def pooled(function: Decorated) -> Decorated:
    """Add `--json` and `--config`."""
    return json_option(config_option(function))


def check_extra() -> None:
    """Check that the packages of the extra `pool` are installed.

    Raises:
        HetError: one is not; the text has the command that installs them.

    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise HetError(f"a pool needs {names}: {how_to_install('pool')}")


def present() -> dt.datetime:
    """Return the present time with its zone, for certificates."""
    return dt.datetime.fromtimestamp(now(), dt.UTC)


def settings_of(config: str | None) -> PoolSettings:
    """Read the pool's settings.

    Raises:
        InputError: there are none, or they are wrong.

    """
    check_extra()
    from pathlib import Path

    from hetpool.setup.config import read_settings

    return read_settings(Path(config).absolute() if config else None)


def reach(config: str | None) -> tuple[PoolSettings, dt.datetime]:
    """Check the certificates, and that the scheduler answers; return the certificate's end.

    Raises:
        PoolUnreachableError: no scheduler answers.
        CertificateError: a certificate is refused.

    """
    settings = settings_of(config)
    from hetpool.setup.certificates import check_files
    from hetpool.setup.endpoint import probe

    end = check_files(settings.tls, present())
    probe(settings.scheduler, settings.tls)
    return settings, end


def open_pool(config: str | None) -> Pool:
    """Connect to the pool.

    Raises:
        PoolUnreachableError: no scheduler answers.
        CertificateError: a certificate is refused.

    """
    return opened(reach(config)[0])


def opened(settings: PoolSettings) -> Pool:
    """Connect to the pool of these settings."""
    from hetpool.client.pool import Pool
    from hetpool.setup.folders import incoming_of

    return Pool(settings.engine(), timeout=PATIENCE_S, incoming=incoming_of(settings))


def file_of(config: str | None) -> Path:
    """Return the path of the pool's file, which may not exist."""
    from pathlib import Path

    from hetpool.setup.config import default_file

    return Path(config).absolute() if config else default_file()


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """Complete the name of a node, from the pool's file: no connection is made."""
    try:
        nodes = settings_of(ctx.params.get("config")).nodes
    except HetError:
        return []
    return [each.name for each in nodes if each.name.startswith(incomplete)]
