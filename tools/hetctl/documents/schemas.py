"""JSON Schemas of the documents, generated from their types."""

from __future__ import annotations

from types import ModuleType
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec

from hetctl.documents import accounts, node, pool, store, tasks
from libtask.errors import NotFoundError
from libtask.wording import suggestion

MODULES: tuple[ModuleType, ...] = (tasks, accounts, node, store, pool)
TASKS = ("hetctl/tasks-1",)
SUBMITTED = ("hetctl/submitted-1", *TASKS)
PRINTED: dict[str, tuple[str, ...]] = {
    "submit": (*SUBMITTED, "hetctl/estimate-1"),
    "batch": (*SUBMITTED, "hetctl/batch-check-1"),
    "list": (*TASKS, "hetctl/jobs-1"),
    "graph": ("hetctl/graph-1",),
    "run": ("hetctl/task-1",),
    "show": ("hetctl/task-1", *TASKS),
    "explain": ("hetctl/explanation-1", "hetctl/explanations-1"),
    "result": ("hetctl/result-1",),
    "wait": TASKS,
    "progress": ("hetctl/progress-1",),
    "requeue": ("hetctl/requeued-1", *TASKS),
    "forget": ("hetctl/tasks-forgotten-1",),
    "cancel": ("hetctl/control-1",),
    "hold": ("hetctl/control-1",),
    "release": ("hetctl/control-1",),
    "snapshot": ("hetctl/control-1",),
    "set": ("hetctl/set-1",),
    "migrate": ("hetctl/migrate-1",),
    "logs": ("hetctl/log-1",),
    "events": ("hetctl/event-1",),
    "devices": ("hetctl/devices-1", "hetctl/load-1"),
    "drain": ("hetctl/resource-1",),
    "resume": ("hetctl/resource-1",),
    "policy show": ("hetctl/policy-1",),
    "policy list": ("hetctl/policies-1",),
    "policy set": ("hetctl/policy-1",),
    "policy reset": ("hetctl/policy-1",),
    "characterize": ("hetctl/characterization-1", "hetctl/learned-loads-1"),
    "models list": ("hetctl/model-list-1",),
    "models show": ("hetctl/model-samples-1",),
    "models plot": ("hetctl/model-plot-1",),
    "models forget": ("hetctl/models-forgotten-1",),
    "models export": ("hetctl/models-exported-1", "hetctl/models-1"),
    "models import": ("hetctl/models-imported-1",),
    "history": ("hetctl/history-1",),
    "report": ("hetctl/report-1",),
    "gantt": ("hetctl/gantt-1",),
    "trace": ("hetsim/scenario-1", "hetctl/trace-1"),
    "top": ("hetctl/top-1",),
    "web": ("hetctl/web-1",),
    "metrics": ("hetctl/metrics-1",),
    "daemon start": ("hetctl/daemon-1",),
    "daemon stop": ("hetctl/daemon-1",),
    "daemon status": ("hetctl/daemon-1",),
    "daemon restart": ("hetctl/daemon-1",),
    "daemon logs": ("hetctl/daemon-log-1",),
    "config show": ("hetctl/config-1",),
    "daemon check": ("hetctl/store-1",),
    "daemon backup": ("hetctl/store-1",),
    "daemon restore": ("hetctl/store-1",),
    "pool up": ("hetctl/pool-1",),
    "pool down": ("hetctl/pool-1",),
    "pool join": ("hetctl/pool-1",),
    "pool status": ("hetctl/pool-1",),
    "pool nodes": ("hetctl/pool-nodes-1",),
    "pool submit": ("hetctl/pool-submitted-1", "hetctl/pool-tasks-1"),
    "pool batch": ("hetctl/pool-submitted-1", "hetctl/pool-tasks-1"),
    "pool plan": ("hetsim/plan-1",),
    "pool list": ("hetctl/pool-tasks-1",),
    "pool show": ("hetctl/pool-task-1",),
    "pool wait": ("hetctl/pool-tasks-1",),
    "pool cancel": ("hetctl/pool-control-1",),
    "pool logs": ("hetctl/pool-log-1",),
    "pool explain": ("hetctl/pool-explanation-1",),
    "pool move": ("hetctl/pool-control-1",),
    "pool get": ("hetctl/pool-file-1",),
    "pool drain": ("hetctl/pool-node-1",),
    "pool resume": ("hetctl/pool-node-1",),
    "pool top": ("hetctl/pool-tasks-1",),
    "pool gantt": ("hetctl/pool-gantt-1",),
    "pool trace": ("hetctl/trace-1",),
    "pool metrics": ("hetctl/metrics-1",),
    "pool demo": ("hetctl/pool-demo-1",),
    "completion": ("hetctl/completion-1",),
    "doc": ("hetctl/doc-1",),
}
"""Command -> the documents that it may print with `--json`."""

ON_ERROR = "hetctl/error-1"
"""The document that every failing command prints on standard error with `--json`."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def documents() -> dict[str, type]:
    """Return the type of each document by its format, as `hetctl/task-1`."""
    found = [each for module in MODULES for each in vars(module).values()]
    return {
        get_args(get_type_hints(each)["format"])[0]: each
        for each in found
        if is_typeddict(each) and "format" in each.__annotations__
    }


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, named by its format or the part after `/`.

    Raises:
        NotFoundError: the document does not exist.

    """
    known = documents()
    full = name if "/" in name else f"hetctl/{name}"
    if full not in known:
        hint = suggestion(full, known)
        raise NotFoundError(
            f"no document {name!r}{hint}; there are: {', '.join(known)}"
        )
    head = {"$schema": DIALECT, "$id": f"urn:{full.replace('/', ':')}"}
    return head | msgspec.json.schema(known[full])


def file_name(name: str) -> str:
    """Return the name of a document's file in `docs/schemas`."""
    return name.replace("/", "-") + ".json"
