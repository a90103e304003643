"""Looks ahead to a run that somebody is about to begin: its tasks, and its parameters worked out.

Nothing is written. The master works the same out when it takes the command; a date that counts from
now is then that of its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from common.config import cluster_zone
from common.dag import select
from common.errors import InvalidDefinitionError, NotAllowedError
from common.masking import MASK, mask_text
from common.model.definitions import ProcessGraph, read_process_json
from common.model.rights import Action
from common.model.states import ReleaseState, TaskDependType
from common.params.errors import ParameterError
from common.params.properties import Property, parse_properties, secret_values
from common.params.scope import resolve_global_params
from common.store.people.definitions import DefinitionRow
from common.task_types import known_task_types
from operations.errors import UsageError
from operations.lookup import definition_given, nodes_named
from operations.session import Session, moment_of, operation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run to be: its tasks in the order of the DAG, its global parameters with their values.

    `declared` has them as the definition does. `held` is the reason that no run can begin now.
    """

    definition: DefinitionRow
    tasks: tuple[str, ...]
    declared: tuple[Property, ...]
    params: tuple[Property, ...]
    held: str | None


@operation
def plan_run(
    session: Session,
    definition_id: int,
    *,
    now: datetime,
    params: Mapping[str, str] | None = None,
    date: str | None = None,
    start_nodes: str | None = None,
    depend: TaskDependType = TaskDependType.TASK_POST,
) -> RunPlan:
    """Plan a run; the arguments are those of `operations.runs.begin_run`.

    Raises a `UsageError` of the field that is wrong.
    """
    with session.engine.connect() as db:
        row = definition_given(db, session.principal, Action.OPERATE, definition_id)
    try:
        graph = read_process_json(row.process_definition_json or "", task_types=known_task_types())
    except InvalidDefinitionError as error:
        raise NotAllowedError(f"{row.name!r} can't run: {error}") from error
    try:
        moment = now if date is None else moment_of(date, session.zone)
    except (ValueError, OverflowError) as error:
        raise UsageError("date", str(error)) from error
    declared = _declared(row, graph)
    try:
        resolved = resolve_global_params(
            declared,
            moment=moment,
            zone=cluster_zone(session.config),
            start_params=params or {},
        )
    except ParameterError as error:
        raise UsageError("param", str(error)) from error
    names: list[str] = []
    if start_nodes:
        owner, text = repr(row.name), row.process_definition_json or ""
        names = nodes_named(text, start_nodes, owner=owner, field="start_nodes")
    return RunPlan(
        definition=row,
        tasks=select(graph.dag, names, depend).names,
        declared=declared,
        params=resolved,
        held=_held(row),
    )


def shown_params(params: Sequence[Property]) -> tuple[Property, ...]:
    """Mask secret values, also where other values contain them."""
    secrets = secret_values(params)
    return tuple(
        replace(each, value=MASK)
        if each.value and secret_values([each])
        else replace(each, value=mask_text(each.value, secrets))
        for each in params
    )


def _declared(row: DefinitionRow, graph: ProcessGraph) -> tuple[Property, ...]:
    """Return the parameters that count, the last of each name: those of the row go first."""
    try:
        found = parse_properties(row.global_params) or parse_properties(graph.global_params)
    except ParameterError as error:
        raise NotAllowedError(f"{row.name!r} can't run: {error}") from error
    return tuple({each.prop: each for each in found}.values())


def _held(row: DefinitionRow) -> str | None:
    if row.usable and row.release_state is ReleaseState.ONLINE:
        return None
    return f"{row.name!r} is OFFLINE, so no run of it begins."
