"""`hetctl pool status`, `nodes`, `drain`, `resume`: the nodes of a pool."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from hetctl.commands.resources import device_document
from hetctl.output import emit, moment, say, table
from hetctl.pool.connection import complete_nodes, open_pool, opened, pooled, reach
from hetctl.units import readable_bytes
from hetctl.views.places import marked

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from hetctl.documents.pool import PoolNodePart
    from hetctl.pool.gathering import NodeView
    from hetpool.client.pool import Pool
    from hetpool.setup.config import PoolSettings
    from libtask.messages import DeviceInfo

NODE_HEADINGS = ("node", "state", "address", "devices", "receives", "sends", "hetd")
WARNED_DAYS = 60
"""Days before a certificate's end from which `status` reports it."""


# ------------------------------------------------------------ status


@click.command("status")
@pooled
def status_command(*, config: str | None, as_json: bool) -> None:
    """Show whether the pool answers, its nodes and tasks; exit status 3 if it does not."""
    settings, end = reach(config)
    with opened(settings) as pool:
        print_state(pool, settings, as_json=as_json, end=end)


def print_state(
    pool: Pool, settings: PoolSettings, *, as_json: bool, end: dt.datetime | None = None
) -> None:
    """Print the state of a pool."""
    from hetctl.pool.gathering import nodes_of

    views = nodes_of(pool)
    states = Counter(job.state for job in pool.tasks())
    names = {view.node.name for view in views if view.node.present}
    listed = {each.name for each in settings.nodes}
    absent = sorted((listed | {view.node.name for view in views}) - names)
    draining = [view.node.name for view in views if view.node.draining]
    differ = differing(views)
    if as_json:
        document = {
            "format": "hetctl/pool-1",
            "running": True,
            "scheduler": str(settings.scheduler),
            "file": str(settings.file) if settings.file is not None else None,
            "nodes": sorted(names),
            "absent": absent,
            "draining": draining,
            "tasks": dict(states),
            "versions_differ": differ,
        }
        until = {} if end is None else {"certificate_until": moment(end.timestamp())}
        emit(document | until)
        return
    say(f"running: {settings.scheduler}, planner {settings.planner}")
    say(f"nodes {', '.join(sorted(names)) or '(none)'}")
    for word, some in (("absent", absent), ("draining", draining)):
        if some:
            say(f"{word} {', '.join(some)}")
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    say(f"unfinished tasks: {told or 'none'}")
    for package in differ:
        say(
            f"hetctl: nodes have different versions of {package}: {_each(views, package)}",
            err=True,
        )
    if end is not None:
        _report_end(end)


def _report_end(end: dt.datetime) -> None:
    from hetctl.pool.connection import present

    days = (end - present()).days
    if days < WARNED_DAYS:
        say(
            f"hetctl: this machine's certificate ends in {days} days; `hetctl pool up` "
            "renews it",
            err=True,
        )


def differing(views: list[NodeView]) -> list[str]:
    """Return the packages that nodes, or this machine, have in different versions."""
    from hetpool.inquiry import versions

    every = [
        versions(),
        *(view.facts.versions for view in views if view.facts is not None),
    ]
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if len({each.get(name, "-") for each in every}) > 1]


def _each(views: list[NodeView], package: str) -> str:
    """Say which node has which version of a package."""
    from hetpool.inquiry import versions

    pairs = [("this machine", versions().get(package, "-"))]
    pairs += [
        (view.node.name, view.facts.versions.get(package, "-"))
        for view in views
        if view.facts is not None
    ]
    return ", ".join(f"{name} {version}" for name, version in pairs)


# ------------------------------------------------------------ nodes


@click.command("nodes")
@pooled
def nodes_command(*, config: str | None, as_json: bool) -> None:
    """List the nodes, their devices and the measured rates of their links.

    A star marks emulated devices.
    """
    from hetctl.pool.gathering import nodes_of

    with open_pool(config) as pool:
        views = nodes_of(pool)
    if as_json:
        emit(
            {"format": "hetctl/pool-nodes-1", "nodes": [document_of(v) for v in views]}
        )
        return
    table(NODE_HEADINGS, [node_row(view) for view in views])
    for view in views:
        if view.problem:
            say(f"hetctl: {view.node.name}: {view.problem}", err=True)


def node_row(view: NodeView) -> tuple[str, ...]:
    """Return the cells of `NODE_HEADINGS`."""
    node, facts = view.node, view.facts
    devices = facts.devices if facts is not None else []
    shown = ", ".join(_device(each) for each in devices)
    return (
        node.name,
        state_of(view),
        node.address,
        shown or ("(gateway)" if node.present and node.gateway else "-"),
        _rate(node.inward),
        _rate(node.egress),
        facts.status.version if facts is not None and facts.status is not None else "-",
    )


def state_of(view: NodeView) -> str:
    """Return the state of a node in a word."""
    if not view.node.present:
        return "lost"
    return "draining" if view.node.draining else "up"


def _device(each: DeviceInfo) -> str:
    emulated = frozenset([each.spec.name]) if each.spec.emulated else frozenset[str]()
    shown = marked(each.spec.name, emulated)
    return shown if each.state == "up" else f"{shown} ({each.state})"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{readable_bytes(round(value))}/s"


def document_of(view: NodeView) -> PoolNodePart:
    """Return the document of a node."""
    node, facts = view.node, view.facts
    status = facts.status if facts is not None else None
    return {
        "name": node.name,
        "address": node.address,
        "present": node.present,
        "draining": node.draining,
        "gateway": node.gateway,
        "ingress_bytes_per_s": node.inward,
        "egress_bytes_per_s": node.egress,
        "devices": [device_document(each) for each in (facts.devices if facts else [])],
        "versions": facts.versions if facts is not None else {},
        "policy": status.policy if status is not None else None,
        "problem": view.problem or None,
    }


# ------------------------------------------------------------ drain, resume


@click.command("drain")
@click.argument("node", shell_complete=complete_nodes)
@pooled
def drain_command(node: str, *, config: str | None, as_json: bool) -> None:
    """Move all tasks away from NODE, and give it no others until `resume`.

    Tasks that keep no snapshots stay to their ends.
    """
    with open_pool(config) as pool:
        check_nodes(pool, [node])
        pool.drain(node)
    _report_state(node, "draining", as_json=as_json)


@click.command("resume")
@click.argument("node", shell_complete=complete_nodes)
@pooled
def resume_command(node: str, *, config: str | None, as_json: bool) -> None:
    """Give NODE, which was drained, tasks again."""
    with open_pool(config) as pool:
        check_nodes(pool, [node])
        pool.resume(node)
    _report_state(node, "up", as_json=as_json)


def check_nodes(pool: Pool, wanted: Iterable[str]) -> None:
    """Check names of nodes.

    Raises:
        NotFoundError: the pool has no such node.

    """
    from libtask.errors import NotFoundError
    from libtask.wording import suggestion

    names = sorted(node.name for node in pool.nodes())
    for name in wanted:
        if name not in names:
            there = ", ".join(names) or "none"
            hint = suggestion(name, names)
            raise NotFoundError(f"no node {name!r}{hint}; there are: {there}")


def _report_state(node: str, state: str, *, as_json: bool) -> None:
    if as_json:
        emit({"format": "hetctl/pool-node-1", "name": node, "state": state})
    else:
        say(f"{node} is {state}")
