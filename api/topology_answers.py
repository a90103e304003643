"""The shapes of answers and requests about topologies: Orcaflow's own, and those of Storm's UI."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from api.answers import Answer, Document, Figures, Shape, Text


class TopologyItem(Answer):
    """A topology in one line; `reason` tells why nothing goes on."""

    name: str
    status: str
    version: int
    generation: int
    project_id: int
    project: str | None
    cores: int | None
    components: int
    executors: int
    tasks: int
    uptime_seconds: float | None
    batch: int | None
    lag: int | None
    process_instance_id: int | None
    run_state: str | None
    task_instance_id: int | None
    host: str | None
    verdict: str | None
    reason: str
    created: datetime
    updated: datetime


class TopologyItemPage(Answer):
    """A page of topologies, by name."""

    items: list[TopologyItem]
    next: str | None


class TopologyRunAnswer(Answer):
    """The run of a topology's definition that is live, else the newest."""

    id: int
    state: int
    reason: str | None
    start_time: datetime | None
    end_time: datetime | None


class TopologyAttemptAnswer(Answer):
    """The newest attempt of the run; `number` counts those of the run."""

    id: int
    number: int
    state: int
    host: str | None
    reason: str | None
    submit_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    lost_at: datetime | None


class TopologyInFull(Answer):
    """A topology with the documents of its row: orders, last report, graph."""

    name: str
    project_id: int
    process_definition_id: int
    version: int
    generation: int
    wanted: Document
    report: Document | None
    reported: datetime | None
    holder: int | None
    graph: Document
    starting: bool
    run: TopologyRunAnswer | None
    attempt: TopologyAttemptAnswer | None
    created: datetime
    updated: datetime
    looked_at: datetime


class TopologyVersionAnswer(Answer):
    """A version of a topology with its graph."""

    version: int
    user_id: int | None
    components: int
    created: datetime
    graph: Document


class TopologyVersionList(Answer):
    """The versions of a topology, the newest first."""

    items: list[TopologyVersionAnswer]


class SubmittedTopologyAnswer(Answer):
    """The outcome of a submission: created, changed, restarted or unchanged.

    `command_id` is the command that starts a run; null if a run is live. `notes` lists settings
    that have a different effect than in Storm, each with a remedy.
    """

    name: str
    version: int
    generation: int
    outcome: str
    command_id: int | None
    notes: list[str]


class NewTopology(Shape):
    """The files of a topology, and its graph as `orcaflow topology submit` makes it."""

    code: dict[str, Any]
    graph: dict[str, Any]
    project_id: int | None = None
    worker_group: Text | None = None
    cores: int | None = None
    memory: Text | None = None
    active: bool = True


class RebalanceOptions(Shape):
    """Storm's options: `numWorkers` are cores here; `tasks` is Orcaflow's own."""

    numWorkers: int | None = None  # noqa: N815  # Storm's name.
    executors: dict[str, int] | None = None
    tasks: dict[str, int] | None = None


class Rebalance(Shape):
    """Storm's body of a rebalance."""

    rebalanceOptions: RebalanceOptions  # noqa: N815


class TopologyOperation(Answer):
    """Storm's answer to an order, with the number of the orders, and a command that was put."""

    topologyOperation: str  # noqa: N815
    topologyId: str  # noqa: N815
    status: str
    number: int
    command_id: int | None


class StormSummary(Answer):
    """A topology in Storm's summary."""

    id: str
    encodedId: str  # noqa: N815
    name: str
    status: str
    uptime: str
    uptimeSeconds: int  # noqa: N815
    workersTotal: int  # noqa: N815
    executorsTotal: int  # noqa: N815
    tasksTotal: int  # noqa: N815


class StormSummaries(Answer):
    """Storm's summary of topologies."""

    topologies: list[StormSummary]


class StormTopology(StormSummary):
    """Storm's page of a topology."""

    window: str
    windowHint: str  # noqa: N815
    topologyStats: list[Figures]  # noqa: N815
    spouts: list[Document]
    bolts: list[Document]
    configuration: list[str]


class StormComponent(Answer):
    """Storm's page of a component."""

    id: str
    encodedId: str  # noqa: N815
    name: str
    topologyId: str  # noqa: N815
    topologyStatus: str  # noqa: N815
    componentType: str  # noqa: N815
    windowHint: str  # noqa: N815
    executors: int
    tasks: int
    spoutSummary: list[Document]  # noqa: N815
    boltStats: list[Document]  # noqa: N815
    inputStats: list[Figures]  # noqa: N815
    outputStats: list[Figures]  # noqa: N815
    executorStats: list[Figures]  # noqa: N815
    componentErrors: list[Document]  # noqa: N815
