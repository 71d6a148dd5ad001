"""The screen of `hetctl top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.text import Text
from textual.app import App
from textual.widgets import DataTable, Footer, Input, Static

from hetctl.options import connect
from hetctl.output import STYLES, now
from hetctl.top.dialogs import Choice, Reading
from hetctl.top.feed import Feed
from hetctl.top.picture import (
    FILTERS,
    RESOURCE_HEADINGS,
    TASK_HEADINGS,
    Picture,
    cut,
    fitting,
    task_row,
)
from hetctl.views.explanation import explanation_text
from libtask.errors import HetError
from libtask.messages import ENDED
from libtask.plaintext import visible
from libtask.worker.tasklog import last_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from libtask.client.client import Client

LOG_LINES = 200
"""Lines of a task's output that the log view shows."""
SCROLLBAR = 2
"""Cells that the vertical scrollbar takes."""
MOST_ROWS = 500
"""Most tasks in the table; a line below shows the number of all tasks."""

Rows = dict[str, tuple[str, ...]]


class Top(App[None]):
    """The live view of the node.

    Args:
        socket: the daemon's socket.
        interval: seconds between two updates.

    """

    TITLE = "hetd"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $primary; color: $text; padding: 0 1; }
    #resources { height: auto; max-height: 8; }
    #tasks { height: 1fr; }
    #more { height: 1; color: $text-muted; padding: 0 1; }
    #search { display: none; height: 1; border: none; }
    DataTable > .datatable--header { text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "explain", "Explain"),
        ("h", "hold", "Hold"),
        ("r", "release", "Release"),
        ("m", "migrate", "Move"),
        ("c", "cancel", "Cancel"),
        ("l", "logs", "Logs"),
        ("d", "drain", "Drain"),
        ("p", "policy", "Policy"),
        ("f", "filter", "Filter"),
        ("slash", "search", "Find"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, socket: Path | None, interval: float = 1.0) -> None:
        super().__init__()
        self._socket = socket
        self.picture = Picture()
        self.feed = Feed(socket, self.picture, interval)
        self.updates = 0
        """Number of the feed's updates that the screen has shown."""
        self.only, self.text = FILTERS[0], ""
        self._live: set[str] = set()
        """Keys of the unfinished tasks in the table."""

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield DataTable(
            id="resources", cursor_type="row", show_cursor=False, zebra_stripes=True
        )
        yield DataTable(id="tasks", cursor_type="row")
        yield Static(id="more", markup=False)
        yield Input(id="search", placeholder="type, name, owner or state", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self._table("tasks").focus()
        self.run_worker(self._feed, thread=True, group="feed")

    def on_unmount(self) -> None:
        self.feed.stop()

    def _feed(self) -> None:
        self.feed.run(lambda: self.call_from_thread(self._show_update))

    def _show_update(self) -> None:
        self.show()
        self.updates += 1

    def _table(self, name: str) -> DataTable[Any]:
        return self.query_one(f"#{name}", DataTable)

    # ------------------------------------------------------------ display

    def show(self) -> None:
        """Update the screen from the picture."""
        picture, at = self.picture, now()
        head = picture.problem or picture.headline()
        self.query_one("#head", Static).update(f"hetd · {head}")
        resources = {d.spec.name: picture.resource_row(d) for d in picture.devices}
        self._fill(self._table("resources"), RESOURCE_HEADINGS, resources)
        found = picture.shown(self.only, self.text, MOST_ROWS)
        rows = {str(info.id): task_row(info, at) for info in found}
        tasks = self._table("tasks")
        chosen, place = self._chosen_key(tasks), tasks.cursor_row
        self._fill(tasks, TASK_HEADINGS, rows)
        live = [str(info.id) for info in found if info.state not in ENDED]
        if chosen in self._live and chosen not in live and live:
            # it has ended: its neighbour is more likely to be steered next
            tasks.move_cursor(row=min(place, len(live) - 1))
        self._live = set(live)
        self.feed.wanted = tuple(info.id for info in found[: self.size.height])
        self.query_one("#more", Static).update(self._more(len(found)))

    def _more(self, shown: int) -> str:
        chosen = f"filter: {self.only}" + (f", {self.text!r}" if self.text else "")
        emulated = any(each.spec.emulated for each in self.picture.devices)
        star = "   * emulated" if emulated else ""
        return f"{shown} of {len(self.picture.tasks)} tasks   {chosen}{star}"

    def _fill(
        self, table: DataTable[Any], headings: tuple[str, ...], rows: Rows
    ) -> None:
        """Change the cells that differ; refill the table only if order or columns do."""
        cells = fitting(headings, rows.values(), self.size.width - SCROLLBAR)
        shown = tuple(cells)
        places = [(headings.index(heading), cells[heading]) for heading in shown]
        rows = {
            key: tuple(cut(row[number], most) for number, most in places)
            for key, row in rows.items()
        }
        columns = tuple(str(key.value) for key in table.columns)
        if columns != shown or [str(key.value) for key in table.rows] != list(rows):
            self._refill(table, shown, rows)
            return
        for key, row in rows.items():
            before = table.get_row(key)
            for heading, cell, old in zip(shown, row, before, strict=True):
                if str(old) != cell:
                    table.update_cell(key, heading, _styled(cell), update_width=True)

    def _refill(
        self, table: DataTable[Any], headings: tuple[str, ...], rows: Rows
    ) -> None:
        chosen = self._chosen_key(table)
        scrolled = table.scroll_y
        table.clear(columns=True)
        for heading in headings:
            table.add_column(heading, key=heading)
        for key, row in rows.items():
            table.add_row(*map(_styled, row), key=key)
        if chosen in rows:
            table.move_cursor(row=table.get_row_index(chosen), scroll=False)
            table.scroll_to(y=scrolled, animate=False)

    def _chosen_key(self, table: DataTable[Any]) -> str:
        if not table.row_count:
            return ""
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key
        return str(key.value)

    def _chosen(self) -> int | None:
        key = self._chosen_key(self._table("tasks"))
        return int(key) if key else None

    # ------------------------------------------------------------ control

    def report(
        self, text: str, severity: Literal["information", "error"] = "information"
    ) -> None:
        """Show a line for a moment, without markup: it may contain other users' words."""
        self.notify(visible(text), severity=severity, markup=False)

    def _do(self, work: Callable[[Client], str]) -> None:
        """Send a request in a thread; report the outcome."""

        def ask() -> None:
            try:
                with connect(self._socket) as client:
                    self.call_from_thread(self.report, work(client))
            except HetError as error:
                self.call_from_thread(self.report, str(error), "error")
            self.feed.hurry()

        self.run_worker(ask, thread=True)

    def _chosen_to_steer(self) -> int | None:
        """Return the selected task; if it cannot be steered, say why and return None."""
        task = self._chosen()
        info = self.picture.tasks.get(task or 0)
        if task is None:
            self.notify("no task is selected", severity="warning")
        elif info is not None and info.state in ENDED:
            self.report(f"task {task} has ended: it is {info.state}")
            return None
        return task

    def _steer(
        self, task: int | None, said: str, order: Callable[[Client, int], object]
    ) -> None:
        if task is None:
            return

        def work(client: Client) -> str:
            order(client, task)
            return f"{said} task {task}"

        self._do(work)

    def action_hold(self) -> None:
        task = self._chosen_to_steer()
        self._steer(task, "held", lambda client, task: client.hold(task))

    def action_release(self) -> None:
        task = self._chosen_to_steer()
        self._steer(task, "released", lambda client, task: client.release(task))

    def action_cancel(self) -> None:
        task = self._chosen_to_steer()

        def chosen(answer: str | None) -> None:
            if answer == "yes":
                self._steer(task, "cancelled", lambda client, task: client.cancel(task))

        question = f"Cancel task {task}? Its progress is lost."
        choices = [("no", "keep it"), ("yes", "cancel it")]
        if task is not None:
            self.push_screen(Choice(question, choices), chosen)

    def action_migrate(self) -> None:
        task = self._chosen_to_steer()

        def chosen(name: str | None) -> None:
            if name is not None:
                self._steer(
                    task,
                    f"moving to {name}:",
                    lambda client, task: client.migrate(task, name),
                )

        places = [(d.spec.name, d.spec.kind) for d in self.picture.devices]
        if places and task is not None:
            question = f"Move task {task} at its next checkpoint to:"
            self.push_screen(Choice(question, places), chosen)

    def action_drain(self) -> None:
        """Drain a resource, or resume it: the selected one, or one to be chosen."""
        states = {d.spec.name: d.state for d in self.picture.devices}

        def chosen(name: str | None) -> None:
            if name is None:
                return
            if states[name] == "draining":
                self._do(lambda client: _resumed(client, name))
            else:
                self._do(lambda client: _drained(client, name))

        resources = self._table("resources")
        if resources.has_focus and resources.row_count:
            chosen(self._chosen_key(resources))
            return
        choices = [
            (name, "resume it" if state == "draining" else "drain it")
            for name, state in states.items()
        ]
        if choices:
            self.push_screen(Choice("Which resource?", choices), chosen)

    def action_logs(self) -> None:
        """Show the last lines of the selected task's output."""
        task = self._chosen()
        if task is None:
            return

        def ask() -> None:
            try:
                with connect(self._socket) as client:
                    text = last_lines(client.show(task), LOG_LINES)
            except HetError as error:
                text = str(error)
            shown = visible(text) or f"task {task} has no output"
            self.call_from_thread(self.push_screen, Reading(shown))

        self.run_worker(ask, thread=True)

    def action_policy(self) -> None:
        def choose(available: dict[str, str]) -> None:
            choices = list(available.items())
            self.push_screen(Choice("Set the policy to:", choices), chosen)

        def chosen(name: str | None) -> None:
            if name is not None:
                self._do(lambda client: f"policy {client.policy(name).name}")

        def ask() -> None:
            try:
                with connect(self._socket) as client:
                    self.call_from_thread(choose, client.policy().available)
            except HetError as error:
                self.call_from_thread(self.report, str(error), "error")

        self.run_worker(ask, thread=True)

    def action_explain(self) -> None:
        task = self._chosen()

        def ask() -> None:
            try:
                with connect(self._socket) as client:
                    text = explanation_text(client, task or 0)
            except HetError as error:
                text = str(error)
            self.call_from_thread(self.push_screen, Reading(text))

        if task is not None:
            self.run_worker(ask, thread=True)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.data_table.id == "tasks":
            self.action_explain()

    def on_descendant_focus(self) -> None:
        resources = self._table("resources")
        resources.show_cursor = resources.has_focus

    def on_resize(self) -> None:
        self.show()

    # ------------------------------------------------------------ filter, search

    def action_filter(self) -> None:
        self.only = FILTERS[(FILTERS.index(self.only) + 1) % len(FILTERS)]
        self.show()

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.display = True
        search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.text = event.value.strip()
        self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = False
        self._table("tasks").focus()


def _drained(client: Client, name: str) -> str:
    client.drain(name)
    return f"{name} is drained"


def _resumed(client: Client, name: str) -> str:
    client.resume(name)
    return f"{name} takes tasks again"


def _styled(cell: str) -> Text:
    return Text(cell, style=STYLES.get(cell, ""), no_wrap=True)
