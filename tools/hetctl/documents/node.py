"""Documents about the node: resources, policy, daemon, execution times."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from hetctl.documents.parts import (
    AvoidedPart,
    Count,
    Id,
    Seconds,
    Share,
    Source,
)
from hetctl.documents.tasks import Task
from libtask.messages import Kind


class DevicePart(TypedDict):
    """A resource of the node."""

    name: str
    kind: Kind
    driver: Literal["cpu", "opencl", "null"]
    platform: str
    device: str
    index: Count
    threads: Count
    emulated: bool
    slots: Annotated[int, Meta(ge=1)]
    state: Literal["up", "draining", "lost", "unusable"]
    reason: str | None
    rejected: list[str]
    version: str | None
    running: list[Id]
    queued: Count
    busy_watts: Seconds
    idle_watts: Seconds
    link_bytes_per_s: float | None
    reconfigure_s: Seconds
    busy_joules: Seconds
    idle_joules: Seconds
    metered_s: Seconds
    energy_source: Source
    avoided: list[AvoidedPart]
    array_library: Annotated[
        str | None,
        Meta(description="`device.xp` there, in the environment of hetctl; null: none"),
    ]


class Devices(TypedDict):
    """The resources: `devices`."""

    format: Literal["hetctl/devices-1"]
    devices: list[DevicePart]


class EvidencePart(TypedDict):
    """The last statement of a source about a shared resource."""

    source: Annotated[
        str, Meta(description="`progress` of the own tasks, or the name of a counter")
    ]
    value: Annotated[
        float,
        Meta(description="of the counter; time of strips over that expected alone"),
    ]
    count: Count
    age_s: Seconds


class LevelPart(TypedDict):
    """A load that other programs may offer, and how likely that is held."""

    load: Annotated[float, Meta(ge=0)]
    probability: Share


class SharedPart(TypedDict):
    """A part of the node that several resources use. Loads: shares of its capacity."""

    name: str
    kind: str
    used_by: list[str]
    own: Annotated[float, Meta(description="load of the running tasks")]
    others: Annotated[float, Meta(description="expected load of other programs", ge=0)]
    slowdown: Annotated[
        float, Meta(description="expected, of work that depends on it completely", ge=1)
    ]
    levels: list[LevelPart]
    evidence: list[EvidencePart]


class CounterPart(TypedDict):
    """A counter of a shared resource, and whether it is read."""

    source: Annotated[str, Meta(description="file or interface that it is read from")]
    shared: Annotated[str, Meta(description="empty: it is not known which")]
    counter: str
    state: Literal["read", "starting", "unused", "missing"]
    reason: Annotated[str, Meta(description="why it is missing")]


class NodeLoad(TypedDict):
    """The believed load of other programs: `devices --load`."""

    format: Literal["hetctl/load-1"]
    used: Annotated[
        bool, Meta(description="whether the policy uses it; else no counter is read")
    ]
    shared: list[SharedPart]
    counters: list[CounterPart]


class ResourceState(TypedDict):
    """The new state of resources: `drain`, `resume`."""

    format: Literal["hetctl/resource-1"]
    name: Annotated[str, Meta(description="the first of them")]
    names: Annotated[list[str], Meta(description="all of them")]
    state: Literal["up", "draining"]


class TopResource(TypedDict):
    """A resource in short."""

    name: str
    emulated: bool
    state: Literal["up", "draining", "lost"]
    running: list[Id]
    queued: Count


class Top(TypedDict):
    """The node in short, with the unfinished tasks: `top`."""

    format: Literal["hetctl/top-1"]
    policy: str | None
    counts: dict[str, Count]
    resources: list[TopResource]
    tasks: list[Task]


class Web(TypedDict):
    """The address of the page: `web`."""

    format: Literal["hetctl/web-1"]
    address: str


class MetricSample(TypedDict):
    """A figure of the daemon under its Prometheus name."""

    name: str
    labels: dict[str, str]
    value: float


class Metrics(TypedDict):
    """The daemon's figures for Prometheus: `metrics`."""

    format: Literal["hetctl/metrics-1"]
    samples: list[MetricSample]


class Policy(TypedDict):
    """The policy in force: `policy show`, `policy set`, `policy reset`."""

    format: Literal["hetctl/policy-1"]
    name: str
    parameters: dict[str, Any]
    set: Annotated[
        str | None,
        Meta(description="the user who set it, and the time; null: configured"),
    ]
    configured: Annotated[str, Meta(description="the policy of the configuration")]
    failed: Annotated[
        str | None,
        Meta(
            description="the chosen policy that this one replaces, as it raised an error"
        ),
    ]
    fault: Annotated[str | None, Meta(description="that error")]


class PolicyPart(TypedDict):
    """An available policy."""

    name: str
    package: Annotated[str, Meta(description="the package that provides it")]
    summary: str


class Policies(TypedDict):
    """The available policies: `policy list`."""

    format: Literal["hetctl/policies-1"]
    current: str
    policies: list[PolicyPart]


class Daemon(TypedDict):
    """A daemon: `daemon start`, `status`, `restart`; a stopped one: `daemon stop`."""

    format: Literal["hetctl/daemon-1"]
    running: bool
    pid: Id
    socket: str
    version: NotRequired[str]
    build: NotRequired[
        Annotated[
            Literal["pure", "compiled"], Meta(description="of the scheduler's modules")
        ]
    ]
    protocol: NotRequired[int]
    policy: NotRequired[str]
    policy_set: NotRequired[
        Annotated[
            str | None,
            Meta(description="the user who set it, and the time; null: configured"),
        ]
    ]
    resources: NotRequired[list[str]]
    draining: NotRequired[list[str]]
    config: NotRequired[
        Annotated[str | None, Meta(description="its hetd.toml; null: none")]
    ]
    state: NotRequired[Annotated[str | None, Meta(description="folder of its store")]]
    log: NotRequired[
        Annotated[
            str | None,
            Meta(description="a file, or `journal`; null: another place"),
        ]
    ]


class DaemonLog(TypedDict):
    """A line of the daemon's log: `daemon logs`."""

    format: Literal["hetctl/daemon-log-1"]
    line: str


class ConfigPart(TypedDict):
    """A configuration value in force."""

    key: Annotated[str, Meta(description="with dots between tables")]
    value: Any
    source: Annotated[
        str, Meta(description="default, file, command line, operator or start")
    ]
    text: str | None


class Configuration(TypedDict):
    """The daemon's configuration: `config show`."""

    format: Literal["hetctl/config-1"]
    file: str | None
    values: list[ConfigPart]


class ErrorDocument(TypedDict):
    """The error of a failed command, on standard error with `--json`: every command."""

    format: Literal["hetctl/error-1"]
    code: Annotated[str, Meta(description="the kind: usage, not-found, unreachable…")]
    text: str
    status: Annotated[int, Meta(description="the exit status")]


class ModelPart(TypedDict):
    """A measured application."""

    app: str
    sizes: Count
    resources: list[str]
    measurements: Count
    loads: Annotated[Count, Meta(description="learned from runs beside others")]


class ModelList(TypedDict):
    """The measured applications: `models list`."""

    format: Literal["hetctl/model-list-1"]
    apps: list[ModelPart]
    avoided: list[AvoidedPart]
    hidden: Annotated[
        Count, Meta(description="measurements of other users' private applications")
    ]


class SamplePart(TypedDict):
    """Measurements of a task type on a resource."""

    type: str
    resource: str
    emulated: bool
    seconds: Annotated[Seconds, Meta(description="of a whole task, with set-up")]
    work: Seconds
    spread: Annotated[Seconds, Meta(description="relative standard deviation")]
    count: Count
    joules: Seconds | None


class ModelSamplePart(SamplePart):
    """Measurements, with the affinity computed from them."""

    setup: Seconds
    affinity: Share


class LearnedLoadPart(TypedDict):
    """The load of an application on a shared resource, from runs beside others."""

    app: str
    resource: str
    shared: str
    demand: Annotated[float, Meta(description="1: its capacity", ge=0)]
    bound: Annotated[Share, Meta(description="of its time alone that depends on it")]
    slowdowns: Annotated[
        dict[str, float], Meta(description="application beside it -> factor")
    ]


class ModelSamples(TypedDict):
    """Measured times, and learned loads: `models show`."""

    format: Literal["hetctl/model-samples-1"]
    samples: list[ModelSamplePart]
    loads: list[LearnedLoadPart]


class NewSamplePart(SamplePart):
    """A new measurement."""

    setup_s: Seconds


class Characterization(TypedDict):
    """New measurements: `characterize`."""

    format: Literal["hetctl/characterization-1"]
    samples: list[NewSamplePart]


class LearnedLoads(TypedDict):
    """New loads: `characterize --together`."""

    format: Literal["hetctl/learned-loads-1"]
    loads: list[LearnedLoadPart]
    file: str | None


class ModelPlot(TypedDict):
    """The file of a plot: `models plot`."""

    format: Literal["hetctl/model-plot-1"]
    file: str
    app: str


class ModelsForgotten(TypedDict):
    """The numbers of deleted measurements, loads and failures: `models forget`."""

    format: Literal["hetctl/models-forgotten-1"]
    count: Count
    loads: Count
    failures: Count


class ModelsHeader(TypedDict):
    """The first line of a model file: `models export` without `-o`."""

    format: Literal["hetctl/models-1"]


class ModelsExported(TypedDict):
    """The written model file: `models export -o`."""

    format: Literal["hetctl/models-exported-1"]
    file: str
    count: Count
    loads: Count


class ModelsImported(TypedDict):
    """The imported model file: `models import`."""

    format: Literal["hetctl/models-imported-1"]
    file: str
    count: Count
    loads: Count
    refused: Count


class Completion(TypedDict):
    """Shell completion code: `completion`."""

    format: Literal["hetctl/completion-1"]
    shell: Literal["bash", "zsh", "fish"]
    code: str


class Page(TypedDict):
    """The manual of a command: `doc`."""

    format: Literal["hetctl/doc-1"]
    command: str
    text: str
