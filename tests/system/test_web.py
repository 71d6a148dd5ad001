"""The page of `hetctl web`: what its server lets through, and what a browser shows."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from hetctl.documents.schemas import schema_of
from hetctl.web.server import PageServer
from system.private_daemon import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from libtask.client.handles import TaskHandle
    from system.private_daemon import PrivateDaemon

LONG = {"seconds": {"cpu": 300.0, "gpu": 300.0}, "strips": 30_000}
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


@contextmanager
def served(daemon: PrivateDaemon, *, control: bool) -> Iterator[PageServer]:
    with PageServer(daemon.socket, 0, control=control) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def looking(daemon: PrivateDaemon) -> Iterator[PageServer]:
    with served(daemon, control=False) as server:
        yield server


@pytest.fixture
def steering(daemon: PrivateDaemon) -> Iterator[PageServer]:
    with served(daemon, control=True) as server:
        yield server


@pytest.fixture
def running(daemon: PrivateDaemon) -> TaskHandle:
    handle = daemon.client.submit("synthetic", LONG, resources=["cpu", "gpu0"])
    daemon.await_state(handle.id, "running")
    return handle


def ask(
    server: PageServer,
    what: str,
    order: object = None,
    *,
    secret: str | None = None,
    host: str | None = None,
) -> tuple[int, Any]:
    """Ask the server; return the status and what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    path = f"/{server.secret if secret is None else secret}/{what}"
    body = None if order is None else json.dumps(order)
    headers = {} if host is None else {"Host": host}
    connection.request("GET" if order is None else "POST", path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    kind = answer.getheader("Content-Type") or ""
    return answer.status, json.loads(text) if "json" in kind else text


def test_the_state_is_that_of_the_node(
    looking: PageServer, running: TaskHandle
) -> None:
    status, seen = ask(looking, "state")

    assert status == 200
    assert seen["policy"] == "affinity"
    assert {each["name"] for each in seen["resources"]} == {"cpu", "gpu0", "fpga0"}
    assert running.id in [task["id"] for task in seen["tasks"]]
    (bar,) = [bar for bar in seen["chart"]["bars"] if bar["task"] == running.id]
    assert bar["runs"]
    assert ask(looking, f"explain/{running.id}")[1]["text"].startswith(
        f"task {running.id} runs on"
    )


@pytest.mark.parametrize("secret", ["", "x", "..", "%00"])
def test_who_does_not_know_the_secret_sees_nothing(
    looking: PageServer, secret: str
) -> None:
    for what in ("", "state", "page.js"):
        assert ask(looking, what, secret=secret)[0] == 403


def test_pages_of_other_hosts_see_nothing(looking: PageServer) -> None:
    port = looking.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
        assert ask(looking, "state", host=host)[0] == 403
    assert ask(looking, "state", host=f"localhost:{port}")[0] == 200


def test_orders_are_taken_only_where_that_was_asked_for(
    looking: PageServer, steering: PageServer, running: TaskHandle
) -> None:
    order = {"verb": "cancel", "id": running.id}

    assert ask(looking, "order", order)[0] == 403
    assert running.info().state == "running"
    assert ask(steering, "order", order) == (200, {"done": "cancel"})
    assert running.wait(PATIENCE) == "cancelled"


@pytest.mark.parametrize(
    ("order", "status", "told"),
    [
        ({"verb": "explode", "id": 1}, 400, "no verb 'explode'"),
        ({"verb": "cancel", "id": "x"}, 400, "not an order"),
        ({"verb": "cancel", "id": 999_999}, 404, "no task 999999"),
        ({"verb": "policy", "to": "magic"}, 404, "no policy 'magic'"),
        ("x" * 5000, 400, "expected an order as JSON"),
    ],
)
def test_a_bad_order_is_refused_with_a_reason(
    steering: PageServer, order: object, status: int, told: str
) -> None:
    seen, answer = ask(steering, "order", order)

    assert (seen, told in answer["error"]) == (status, True), answer


@pytest.mark.parametrize(
    ("body", "length"),
    [
        ('{"verb": "cancel", "id": ' + "9" * 3000 + "}", None),
        ('{"verb": "cancel", "id": ' + str(2**64) + "}", None),
        ("[" * 4000, None),
        ("{}", "9" * 5000),
        ("{}", "\u0663"),
        ("{}", "-1"),
    ],
)
def test_a_strange_order_is_answered(
    steering: PageServer, body: str, length: str | None
) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", steering.server_port, timeout=30
    )
    connection.putrequest("POST", f"/{steering.secret}/order")
    wanted = str(len(body)) if length is None else length
    connection.putheader("Content-Length", wanted.encode())
    connection.endheaders(body.encode())

    answer = connection.getresponse()

    assert answer.status == 400
    assert json.loads(answer.read())["error"]
    connection.close()


def test_what_is_not_there_is_not_found(looking: PageServer) -> None:
    for what in ("secrets", "page.html/../server.py", "explain/x", "explain/999999"):
        assert ask(looking, what)[0] == 404
    for what in ("explain/" + "9" * 5000, "explain/" + str(2**64), "explain/"):
        assert ask(looking, what)[0] == 404


def test_an_absent_daemon_is_told_of_and_found_again(
    private_daemon: Callable[..., PrivateDaemon],
) -> None:
    daemon = private_daemon()
    with served(daemon, control=False) as server:
        daemon.kill9()
        status, answer = ask(server, "state")
        daemon.start()
        again, _ = ask(server, "state")

    assert (status, again) == (502, 200)
    assert "hetctl daemon start" in answer["error"]


def test_the_command_prints_the_address(daemon: PrivateDaemon) -> None:
    command = [sys.executable, "-m", "hetctl", "web", "--json"]
    with subprocess.Popen(
        [*command, "--socket", str(daemon.socket)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        process.terminate()

    jsonschema.validate(document, schema_of("web-1"))
    assert document["address"].startswith("http://127.0.0.1:")


# ---------------------------------------------------------------- a real browser


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A headless Chromium, driven through its driver."""
    if BROWSER is None or DRIVER is None:
        pytest.skip("no Chromium with its driver is installed")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = BROWSER
    for option in (*OPTIONS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(option)
    # it leaves things in the runtime directory, which here is a daemon's
    own = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    driver = Chrome(options, Service(DRIVER, env=own))
    yield driver
    driver.quit()


def test_a_browser_shows_and_steers(
    browser: Any, steering: PageServer, daemon: PrivateDaemon, running: TaskHandle
) -> None:
    def text(css: str) -> str:
        found = browser.find_elements("css selector", css)
        return str(found[0].text) if found else ""

    browser.get(steering.address)
    eventually(lambda: "running" in text("#counts"), "the page")
    row = f"//tr[td[text()='{running.id}']]"
    eventually(lambda: browser.find_elements("xpath", row), "the task's row")
    assert _hidden_by_width(browser, 400) == _hidden_by_width(browser, 1200) == [0, 0]
    browser.find_element("xpath", row).click()
    eventually(lambda: f"task {running.id} runs" in text("#text"), "the story")
    browser.find_element("css selector", "button[data-verb=cancel]").click()

    assert running.wait(PATIENCE) == "cancelled"
    eventually(lambda: not browser.find_elements("css selector", "[open]"), "its end")
    # the chart has something on it, and nothing went wrong unseen
    painted = "const c = document.getElementById('chart'); return c.getContext('2d')"
    pixels = f"{painted}.getImageData(0, 0, c.width, c.height).data.some((v) => v)"
    assert browser.execute_script(pixels)
    assert [
        each for each in browser.get_log("browser") if each["level"] == "SEVERE"
    ] == []


def _hidden_by_width(browser: Any, width: int) -> list[int]:
    """Return the pixels of the page and of its table that a width of the screen hides."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    parts = "[document.documentElement, document.querySelector('table')]"
    hidden = f"return {parts}.map((part) => part.scrollWidth - part.clientWidth)"
    found: list[int] = browser.execute_script(hidden)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found
