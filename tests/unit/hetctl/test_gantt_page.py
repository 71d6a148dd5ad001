"""The interactive Gantt chart: one file, whole, and safe whatever names users choose."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from hetctl.export.lanes import laid_out
from hetctl.export.page import write_page
from libtask.messages import Segment
from unit.fake_daemon import a_node, a_task

if TYPE_CHECKING:
    from pathlib import Path

NASTY = "</script><b>DOCUMENT & \u2028 'x'"


class Page(HTMLParser):
    """Finds the data of a page, and what it loads from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.data: Any = None
        self._in_data = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self._in_data = known.get("id") == "data"
        self.loaded += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data = json.loads(data)
            self._in_data = False


def test_the_page_holds_everything_and_loads_nothing(tmp_path: Path) -> None:
    stopped = Segment(
        "cpu", 101.0, 102.0, strips=3, stop_ordered=101.5, stop_rule="it had to"
    )
    moved = a_task(
        1,
        name=NASTY,
        state="completed",
        submitted=100.0,
        segments=[stopped, Segment("gpu0", 102.5, 104.0, rule="best there")],
    )

    write_page(*laid_out([moved], a_node(), 200.0), tmp_path / "g.html")

    page = Page((tmp_path / "g.html").read_text(encoding="utf-8"))
    assert (page.loaded, page.tags.count("script"), "b" in page.tags) == ([], 2, False)
    assert page.data["title"] == "1 task, 1 migration, 4.0 s"
    assert page.data["lanes"] == ["cpu #1", "cpu #2", "gpu0 (emulated)"]
    bars = [(b["lane"], b["start"], b["finish"]) for b in page.data["bars"]]
    assert bars == [(0, 1.0, 2.0), (2, 2.5, 4.0)]
    assert [(b["name"], b["asked"]) for b in page.data["bars"]] == [
        (NASTY, 1.5),
        (NASTY, None),
    ]
    assert page.data["moves"] == [[0, 1]]
    assert (page.data["groups"], page.data["legend"]) == (["1"], False)


def test_colours_tell_applications_else_types(tmp_path: Path) -> None:
    def groups(*fields: dict[str, str]) -> Any:
        tasks = [
            a_task(number, submitted=1.0, segments=[Segment("cpu", 1.0, 2.0)], **each)
            for number, each in enumerate(fields, 1)
        ]
        write_page(*laid_out(tasks, a_node(), 9.0), tmp_path / "g.html")
        return Page((tmp_path / "g.html").read_text(encoding="utf-8")).data["groups"]

    assert groups({"app": "heat"}, {"app": "/a/b.py:Fit"}) == ["heat", "b:Fit"]
    assert groups({"type": "heat/8"}, {"type": "heat/9"}) == ["heat/8", "heat/9"]
    assert groups({}, {}) == ["1", "2"]


def test_a_failed_attempt_is_no_migration_and_says_why(tmp_path: Path) -> None:
    failed = Segment("gpu0", 100.0, 101.0, error="does not compile")
    task = a_task(1, submitted=100.0, segments=[failed, Segment("cpu", 101.0, 102.0)])

    write_page(*laid_out([task], a_node(), 200.0), tmp_path / "g.html")

    data = Page((tmp_path / "g.html").read_text(encoding="utf-8")).data
    assert (data["title"], data["moves"]) == ("1 task, 0 migrations, 2.0 s", [])
    assert [(bar["failed"], bar["error"]) for bar in data["bars"]] == [
        (True, "does not compile"),
        (False, ""),
    ]
