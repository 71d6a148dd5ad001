"""`python -m hetdemo.pictures FOLDER`: pictures of the demo's batch while it runs.

Draws `hetctl top` (`top.svg`) and, where a Chromium is installed, the page of `hetctl
web` in light and dark (`web.png`, `web-dark.png`), as the documentation shows them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

from hetctl.web.server import PageServer
from hetdemo.batch import APPS, POLICY, make_batch
from hetdemo.daemon import demo_daemon
from hetdemo.inputs import make_inputs
from libtask.characterisation import characterise

if TYPE_CHECKING:
    from libtask.client.client import Client

UNDER_WAY_S = 9.0
"""Seconds after which some tasks have ended, some moved, and many wait."""
BROWSER = ("chromium", "google-chrome")
QUIETLY = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,820",
    "--virtual-time-budget=5000",
)


def main() -> None:
    """Run the batch, draw it, and stop."""
    parser = argparse.ArgumentParser(prog="hetdemo.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="for the pictures")
    folder = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="hetd-") as scratch:
        _draw(Path(scratch), folder)


def _draw(scratch: Path, folder: Path) -> None:
    with demo_daemon(scratch, POLICY) as client:
        jobs = make_batch(make_inputs(scratch / "inputs"), scratch / "results")
        characterise(client, APPS, quick=True)
        for job in jobs:
            client.submit(job.task)
        time.sleep(UNDER_WAY_S)
        _draw_top(client, folder / "top.svg")
        browser = next(filter(None, map(shutil.which, BROWSER)), None)
        if browser is None:
            sys.stderr.write("no Chromium is installed: the page is not drawn\n")
        else:
            _draw_page(client, browser, folder, scratch)


def _draw_top(client: Client, picture: Path) -> None:
    command = [sys.executable, "-m", "hetctl", "top", "--screenshot", str(picture)]
    command += ["--socket", str(client.path)]
    subprocess.run(command, check=True)  # noqa: S603  our own interpreter and module


def _draw_page(client: Client, browser: str, folder: Path, scratch: Path) -> None:
    with PageServer(client.path, 0, control=True) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for name, more in (("web", ()), ("web-dark", ("--force-dark-mode",))):
            command = [browser, *QUIETLY, *more, f"--user-data-dir={scratch / name}"]
            picture = f"--screenshot={folder / name}.png"
            subprocess.run(  # noqa: S603  a browser that is installed
                [*command, picture, server.address], check=True, capture_output=True
            )
        server.shutdown()


if __name__ == "__main__":
    main()
