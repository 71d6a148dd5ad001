"""Builders of scenarios, and traces in a form that fits on a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetsim.scenario import check_scenario
from hetsim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hetsim.result import Result
    from hetsim.scenario import Scenario


def a_node(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Describe resources by name: `cpu`, `gpu0`, `fpga0`; `fields` hold for all."""
    return [{"name": n, "kind": n.rstrip("0123456789"), **fields} for n in names]


def a_type(name: str, strips: int = 10, **fields: Any) -> dict[str, Any]:
    """Describe a type; fields that are no resource of the tests are keys of their own."""
    seconds = {r: fields.pop(r) for r in ("cpu", "gpu0", "fpga0") if r in fields}
    return {"name": name, "seconds": seconds, "strips": strips, **fields}


def a_scenario(
    resources: list[dict[str, Any]],
    types: list[dict[str, Any]],
    tasks: Sequence[tuple[str, str, float] | dict[str, Any]],
    **keys: Any,
) -> Scenario:
    """Make a scenario; a task may be (id, type, arrival)."""
    entries = [
        task if isinstance(task, dict) else dict(zip(_TASK, task, strict=True))
        for task in tasks
    ]
    return check_scenario(
        {
            "format": "hetsim/scenario-1",
            "resources": resources,
            "types": types,
            "tasks": entries,
            **keys,
        }
    )


_TASK = ("id", "type", "arrival")


def trace(result: Result) -> dict[str | int, str]:
    """Write what each task did: `gpu0 0-4, cpu 5-9`, and its state unless completed."""
    return {task.id: _line(task) for task in result.tasks}


def _line(task: Any) -> str:
    where = ", ".join(f"{s.resource} {s.start:g}-{s.finish:g}" for s in task.segments)
    return where if task.state == "completed" else f"{where or '-'} {task.state}"


def run_trace(
    scenario: Scenario, policy: str, **parameters: Any
) -> dict[str | int, str]:
    """Run a scenario and write what each task did."""
    return trace(simulate(scenario, policy, parameters))
