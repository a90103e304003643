"""Submits topologies: code and graph become a version, and the version a run.

The code is checked for its names and sizes and never imported: `operations.topology_packing` does
that, on its author's machine. A process definition with one task is made for each topology.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action
from common.model.states import ExecutionType, ReleaseState
from common.model.task_type import ValueFaultError, read_size
from common.model.topologies import TASK_NAME, TASK_TYPE, Code, Wanted
from common.model.topology_code import mistakes_of
from common.model.topology_graphs import TopologyGraph
from common.model.topology_verdicts import shape_of
from common.store.connect import Connection
from common.store.people import topologies as store
from common.store.people.definitions import (
    definition_by_name,
    save_definition,
    set_execution_type,
    set_release_state,
)
from common.store.people.rights import Thing
from common.store.people.topologies import TopologyView
from common.topology.config import notes_of_config
from operations.errors import NameTakenError, UsageError
from operations.lookup import worker_group_named
from operations.projects import authored_project, project_given
from operations.reviewing import check_submitter
from operations.rights import Change, change, seen
from operations.session import Session, operation
from operations.topologies import (
    MOST_CORES,
    begin,
    begin_unless_live,
    changed_meanwhile,
    put_wanted,
)
from operations.topology_views import is_live

_RETRIES: Final = 100
_RETRY_MINUTES: Final = 1
_RESERVED: Final = frozenset({"summary", "submit"})
"""Names that are paths of the HTTP API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A topology's code and graph, as they are submitted."""

    code: Code
    graph: TopologyGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedTopology:
    """A submission. `outcome` is created, changed, restarted (a run starts again) or unchanged.

    `command_id` is the command that starts a run; None if a run is live. `notes` lists settings
    that have a different effect than in Storm, each with a remedy.
    """

    name: str
    version: int
    generation: int
    outcome: str
    command_id: int | None
    notes: tuple[str, ...] = ()


@operation
def submit_topology(
    session: Session,
    given: Submission,
    *,
    project: str | int | None = None,
    worker_group: str | None = None,
    cores: int | None = None,
    memory: str | None = None,
    active: bool = True,
) -> SubmittedTopology:
    """Make a topology and begin its run, or give one another version; the same changes nothing.

    One that was killed begins anew, with an empty folder. Without a live run, one begins. `cores`
    and `memory` are those of runs to come; None leaves them as they are.
    """
    graph = given.graph
    _check_submission(given, cores, memory)
    with change(session, "topology.submit", "topology", object_name=graph.name) as made:
        found = store.topology_named(made.db, graph.name, lock=True)
        if found is None:
            made.project_id = authored_project(made.db, session.principal, project)
        else:
            made.project_id = found.project_id
            _check_author(made.db, session, found, project)
            _check_project(made.db, session, found, project)
            _check_not_ending(found)
        check_submitter(made.db, session.principal, made.project_id)
        resources = _Resources(
            worker_group_id=None
            if worker_group is None
            else worker_group_named(made.db, worker_group, made.project_id),
            cores=cores,
            memory=memory,
        )
        definition_id, redefined = _definition(session, made, graph.name, found, resources)
        if found is not None:
            # Its former definition may be gone.
            found = replace(found, process_definition_id=definition_id)
        if found is None:
            done = _create(session, made, given, definition_id, active=active)
        elif found.wanted.killed:
            done = _restart(session, made, found, given, active=active)
        else:
            done = _change(session, made, found, given, redefined=redefined, active=active)
        made.detail = f"{done.outcome}, version {done.version}"
    return replace(done, notes=tuple(_notes(graph)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resources:
    """The resources of runs to come; None leaves what there is."""

    worker_group_id: int | None
    cores: int | None
    memory: str | None


def _create(
    session: Session,
    made: Change,
    given: Submission,
    definition_id: int,
    *,
    active: bool,
) -> SubmittedTopology:
    graph = given.graph
    assert made.project_id is not None
    if not store.make_topology(
        made.db,
        graph.name,
        project_id=made.project_id,
        process_definition_id=definition_id,
        wanted=Wanted(number=1, active=active),
    ):
        raise NotAllowedError(f"somebody else has just submitted {graph.name!r}; look, and repeat")
    _add_version(session, made, 1, given)
    return SubmittedTopology(
        name=graph.name,
        version=1,
        generation=1,
        outcome="created",
        command_id=begin(session, made, definition_id),
    )


def _restart(
    session: Session,
    made: Change,
    found: TopologyView,
    given: Submission,
    *,
    active: bool,
) -> SubmittedTopology:
    wanted = Wanted(number=found.wanted.number + 1, active=active)
    if not store.begin_anew(
        made.db,
        found.name,
        wanted,
        before=found.wanted.number,
        generation=found.generation,
    ):
        raise changed_meanwhile(found)
    version = found.version
    if _is_other(made.db, found, given):
        version += 1
        _add_version(session, made, version, given)
    return SubmittedTopology(
        name=found.name,
        version=version,
        generation=found.generation + 1,
        outcome="restarted",
        command_id=begin(session, made, found.process_definition_id),
    )


def _change(
    session: Session,
    made: Change,
    found: TopologyView,
    given: Submission,
    *,
    redefined: bool,
    active: bool,
) -> SubmittedTopology:
    version, wanted = found.version, found.wanted
    is_other = _is_other(made.db, found, given)
    if is_other:
        version += 1
        _add_version(session, made, version, given)
        wanted = _fitting(wanted, given.graph)
    if not active:
        wanted = replace(wanted, active=False)
    if is_other or wanted != found.wanted:
        # The running task sees by the number that there is something new.
        wanted = replace(wanted, number=found.wanted.number + 1)
        put_wanted(made, found, wanted)
    command_id = begin_unless_live(session, made, found)
    outcome = "unchanged"
    if is_other or redefined or wanted != found.wanted:
        outcome = "changed"
    elif command_id is not None:
        outcome = "restarted"
    return SubmittedTopology(
        name=found.name,
        version=version,
        generation=found.generation,
        outcome=outcome,
        command_id=command_id,
    )


def _is_other(db: Connection, found: TopologyView, given: Submission) -> bool:
    if found.graph != given.graph:
        return True
    return store.code_of(db, found.name, found.version) != given.code


def _fitting(wanted: Wanted, graph: TopologyGraph) -> Wanted:
    """Drop what rebalances have set for components that are gone, or that it does not suit."""
    tasks = {name: number for name, number in wanted.tasks.items() if graph.part(name)}
    shape = shape_of(replace(wanted, tasks=tasks), graph)
    executors = {
        name: number
        for name, number in wanted.executors.items()
        if name in shape and number <= shape[name][1]
    }
    shape = shape_of(replace(wanted, tasks=tasks, executors=executors), graph)
    tasks = {name: number for name, number in tasks.items() if shape[name][0] <= number}
    return replace(wanted, executors=executors, tasks=tasks)


def _add_version(session: Session, made: Change, version: int, given: Submission) -> None:
    name = given.graph.name
    if not store.add_version(
        made.db,
        name,
        version=version,
        code=given.code,
        graph=given.graph,
        user_id=session.principal.user_id,
    ):
        raise NotAllowedError(f"somebody else has just submitted {name!r}; look, and repeat")


def _notes(graph: TopologyGraph) -> Iterator[str]:
    yield from notes_of_config("config", graph.config)
    for part in graph.parts:
        yield from notes_of_config(f"{part.id}: config", part.config)


def _check_submission(given: Submission, cores: int | None, memory: str | None) -> None:
    graph = given.graph
    mistakes = list(mistakes_of(given.code))
    if mistakes:
        raise UsageError("code", "; ".join(mistakes))
    if graph.name in _RESERVED:
        raise UsageError("graph", f"no topology can be named {graph.name!r}; name it otherwise")
    if not graph.parts:
        raise UsageError("graph", "a topology has a spout at least")
    if cores is not None and not 1 <= cores <= MOST_CORES:
        raise UsageError("cores", f"must be a number from 1 to {MOST_CORES}")
    if memory is not None:
        try:
            size = read_size(memory)
        except ValueFaultError as error:
            raise UsageError("memory", str(error)) from error
        if not size:
            raise UsageError("memory", "must be like 512M or 2G")


def _check_author(
    db: Connection, session: Session, found: TopologyView, project: str | int | None
) -> None:
    try:
        seen(db, session.principal, Action.AUTHOR, Thing.PROJECT, found.project_id)
    except NotFoundError:
        # The name of a foreign object is shown only to users who could create one of that name.
        asked = authored_project(db, session.principal, project)
        check_submitter(db, session.principal, asked)
        raise NameTakenError(
            f"the name {found.name!r} is taken in a project that is not yours; name the topology"
            " otherwise"
        ) from None


def _check_project(
    db: Connection, session: Session, found: TopologyView, project: str | int | None
) -> None:
    if project is not None and found.project_id != project_given(
        db, session.principal, Action.VIEW, project
    ):
        raise UsageError(
            "project",
            f"topology {found.name!r} is in the project {found.project_id}, and stays there",
        )


def _check_not_ending(found: TopologyView) -> None:
    if found.wanted.killed and is_live(found):
        run = "a run" if found.run is None else f"run {found.run.id}"
        raise NotAllowedError(
            f"topology {found.name!r} is being killed, and {run} has not ended yet: wait for its"
            f" end, or hurry it: orcaflow topology kill {found.name} --now"
        )


def _definition(
    session: Session,
    made: Change,
    name: str,
    found: TopologyView | None,
    resources: _Resources,
) -> tuple[int, bool]:
    """Make or change the process definition whose runs run the topology; True if it is another."""
    assert made.project_id is not None
    label = f"topology {name}"
    at = SystemClock().now()
    there = definition_by_name(made.db, label, project_id=made.project_id)
    if found is None and there is not None:
        raise NameTakenError(
            f"there is a process definition {label!r}, and the topology needs one of that name:"
            " rename it, or name the topology otherwise"
        )
    if found is not None and there is None and is_live(found):
        raise NotAllowedError(
            f"the process definition of topology {name!r} has another name by now, and a run of it"
            f" is live: rename it to {label!r}"
        )
    if found is not None and there is not None and there.id != found.process_definition_id:
        raise NameTakenError(
            f"there is another process definition {label!r} by now: rename it, since the topology"
            " needs one of that name"
        )
    node = _node(name, {} if there is None else _node_of(there.process_definition_json), resources)
    row = save_definition(
        made.db,
        name=label,
        process_definition_json=json.dumps({"tasks": [node], "globalParams": [], "timeout": 0}),
        at=at,
        project_id=made.project_id,
        user_id=session.principal.user_id,
        description=f"Runs the topology {name}; made by its submission.",
        global_params="[]",
        tenant_id=-1 if there is None else there.tenant_id,
    )
    # A second run would find the topology held by the first.
    set_execution_type(made.db, row.id, wanted=ExecutionType.SERIAL_DISCARD, at=at)
    set_release_state(made.db, row.id, wanted=ReleaseState.ONLINE, at=at)
    if (
        found is not None
        and row.id != found.process_definition_id
        and not store.change_definition(
            made.db, name, before=found.process_definition_id, definition_id=row.id
        )
    ):
        raise changed_meanwhile(found)
    return row.id, there is None or row.version != there.version


def _node(name: str, former: Mapping[str, Any], resources: _Resources) -> dict[str, Any]:
    params = former.get("params")
    kept = dict(params) if isinstance(params, dict) else {}
    kept["topology"] = name
    if resources.cores is not None:
        kept["cores"] = resources.cores
    if resources.memory is not None:
        kept["driverMemory"] = resources.memory
    node = {
        "id": "tasks-1",
        "type": TASK_TYPE,
        "name": TASK_NAME,
        "runFlag": "NORMAL",
        "maxRetryTimes": str(_RETRIES),
        "retryInterval": str(_RETRY_MINUTES),
        "workerGroupId": -1,
        "preTasks": [],
        **former,
        "params": kept,
    }
    if resources.worker_group_id is not None:
        node["workerGroupId"] = resources.worker_group_id
    return node


def _node_of(text: str | None) -> Mapping[str, Any]:
    """Return the only node of a definition, which an author may have changed."""
    try:
        (node,) = json.loads(text or "")["tasks"]
    except (ValueError, KeyError, TypeError):
        return {}
    return node if isinstance(node, dict) else {}
