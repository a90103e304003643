"""Complements planned and made: from the words of a request to dates, and to rows.

Dates come from `common.complementing`, as they do when a master plans a row typed into
`t_ds_command`. A plan and the making go the same way, so that what is shown beforehand is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from common.complementing import (
    UTMOST_DATES,
    UTMOST_DATES_OF_ROW,
    plan_complements,
    zone_of_dates,
)
from common.config import cluster_zone
from common.errors import BadCommandError, NotAllowedError, SchedulerError
from common.model.alerts import warning_group_of
from common.model.complement_states import Downstream, OnFailure, Reprocess, RunOrder
from common.model.complements import ComplementRequest, NewComplement, RunSettings
from common.model.date_rules import DateRule
from common.model.definitions import ProcessGraph, read_process_json
from common.model.plans import DefinitionSnapshot
from common.model.rights import Action
from common.model.schedules import Schedule
from common.model.states import (
    FailureStrategy,
    Priority,
    ReleaseState,
    TaskDependType,
    WarningType,
)
from common.store.complements import create_complements, date_command_param, read_dependents
from common.store.connect import Connection
from common.store.people.complement_views import (
    ComplementView,
    complements_after,
    complements_with_ids,
)
from common.store.people.definitions import DefinitionRow
from common.store.people.rights import may_in
from common.store.schedules import read_schedules
from common.task_types import known_task_types
from common.zones import zone_named
from operations.complement_orders import check_order
from operations.complement_plans import ComplementPlan, look_ahead
from operations.errors import UsageError
from operations.lookup import (
    definition_given,
    environment_named,
    nodes_named,
    worker_group_named,
)
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import change
from operations.session import Session, operation
from operations.start_params import checked_params, marked_params, stored_params
from operations.times import read_moment, read_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementOptions:
    """The dates to complement and the way to run them. A text that names a date is read later.

    `zone` None is that of the definition's schedules, else the cluster's. `start_nodes` are lists
    of names joined by commas; without any, all tasks run. `confirmed` allows very many dates.
    `environment` is a name or a code.
    """

    first: str | None = None
    last: str | None = None
    dates: tuple[str, ...] = ()
    zone: str | None = None
    parallelism: int = 1
    order: RunOrder = RunOrder.ASCENDING
    on_failure: OnFailure = OnFailure.STOP
    reprocess: Reprocess = Reprocess.ALL
    date_rule: DateRule | None = None
    """The meaning of the dates; None leaves that to the definition."""
    downstream: Downstream = Downstream.NONE
    confirmed: bool = False
    start_nodes: tuple[str, ...] = ()
    task_depend_type: TaskDependType = TaskDependType.TASK_POST
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE
    priority: Priority = Priority.MEDIUM
    worker_group: str | None = None
    environment: str | int | None = None
    start_params: Mapping[str, str] = field(default_factory=dict)
    warning_type: WarningType = WarningType.NONE


@operation
def plan(
    session: Session, definition: str | int, options: ComplementOptions
) -> list[ComplementPlan]:
    """The plans of all complements that `create` would make; nothing is written."""
    with session.engine.begin() as db:
        return look_ahead(db, _planned(db, session, definition, options))


@operation
def create(
    session: Session,
    definition: str | int,
    options: ComplementOptions,
    *,
    now: datetime,
    once: Once | None = None,
) -> list[ComplementView]:
    """Make the complement of a definition that is ONLINE, then those downstream, or nothing.

    Raises a `UsageError` of a field of the options, `NotFoundError` and `NotAllowedError`. A
    request that was carried out before (`once`) makes nothing, and has those of then.
    """
    with change(session, "complement.create", "complement", object_name=str(definition)) as made:
        db = made.db
        row = definition_given(db, session.principal, Action.OPERATE, definition)
        made.object_name, made.project_id = row.name, row.project_id
        ids: Sequence[int] = ()
        if once is not None:
            answered = first_answer(db, session.principal, once)
            ids = () if answered is None else _with_followers(db, answered)
        if ids:
            made.detail = "as before"
        else:
            new = _planned(db, session, definition, options)
            ids = create_complements(db, new, command_id=0, now=now)
            if once is not None:
                keep_answer(db, session.principal, once, ids[0])
        made.object_id = ids[0]
    with session.engine.connect() as db:
        return complements_with_ids(db, list(ids))


def _with_followers(db: Connection, first: int) -> Sequence[int]:
    """Return the ids of a complement and of those that were made with it."""
    found, left = [first], [first]
    while left:
        behind = [each.id for number in left for each in complements_after(db, number)]
        left = [each for each in behind if each not in found]
        found += left
    return sorted(found)


def _planned(
    db: Connection, session: Session, definition: str | int, options: ComplementOptions
) -> tuple[NewComplement, ...]:
    row = definition_given(db, session.principal, Action.OPERATE, definition)
    _check_online(row)
    settings = _settings(db, row, options)
    new = _new_complements(db, session, row, options, settings)
    _check_size(new, session.config.command.param_limit_bytes)
    check_order(db, new)
    return new


def _check_online(definition: DefinitionRow) -> None:
    if not definition.usable or definition.release_state is not ReleaseState.ONLINE:
        raise NotAllowedError(
            f"{definition.name!r} is OFFLINE; release it first: "
            f"orcaflow definition online {definition.name!r}"
        )


def _settings(db: Connection, definition: DefinitionRow, options: ComplementOptions) -> RunSettings:
    names: list[str] = []
    if options.start_nodes:
        names = nodes_named(
            definition.process_definition_json or "",
            ",".join(options.start_nodes),
            owner=repr(definition.name),
            field="start_node",
        )
    group, wanted = options.worker_group, options.environment
    params = checked_params(options.start_params, definition)
    project = definition.project_id
    return RunSettings(
        task_depend_type=options.task_depend_type,
        failure_strategy=options.failure_strategy,
        priority=options.priority,
        worker_group_id=-1 if group is None else worker_group_named(db, group, project),
        environment_code=-1 if wanted is None else environment_named(db, wanted, project),
        start_node_names=tuple(dict.fromkeys(names)),
        start_params=stored_params(marked_params(params, definition)) if params else None,
        warning_type=options.warning_type,
        warning_group_id=warning_group_of(options.warning_type),
    )


def _check_size(complements: Sequence[NewComplement], limit: int) -> None:
    """Each date becomes a command: one that no master would read is refused now."""
    for each in complements:
        settings = each.settings
        text = date_command_param(
            each.timezone_id,
            ",".join(settings.start_node_names),
            settings.start_params,
            settings.environment_code,
            each.date_rule,
        )
        if len(text.encode("utf-8", "replace")) > limit:
            raise NotAllowedError(
                f"the parameters are larger than {limit} bytes (command.param_limit_bytes)"
            )


def _new_complements(
    db: Connection,
    session: Session,
    definition: DefinitionRow,
    options: ComplementOptions,
    settings: RunSettings,
) -> tuple[NewComplement, ...]:
    """Return the complements to create: for the definition, then for each one downstream.

    Definitions downstream are left out in projects where the principal may not start runs.
    """
    zone = cluster_zone(session.config)
    _graph(definition.process_definition_json or "")
    downstream = options.downstream is not Downstream.NONE
    try:
        schedules = read_schedules(db, [definition.id]).get(definition.id, ())
        may_start = partial(may_in, session.principal, Action.OPERATE)
        dependents = read_dependents(db, among=may_start) if downstream else ()
    except ValueError as error:
        raise SchedulerError(f"a row of t_ds_schedules can't be read: {error}") from error
    request = _request(definition.id, options, settings, schedules, zone=zone)
    try:
        return plan_complements(
            request,
            _snapshot(definition),
            schedules=schedules,
            dependents=dependents,
            zone=zone,
            graph=_graph,
            # A command-line process may run long; a thread of a server may not.
            utmost=UTMOST_DATES if session.principal.owns_database else UTMOST_DATES_OF_ROW,
            date_rule=DateRule(session.config.complement_date_rule),
        )
    except BadCommandError as error:
        raise NotAllowedError(str(error)) from error


def _request(
    definition_id: int,
    options: ComplementOptions,
    settings: RunSettings,
    schedules: Sequence[Schedule],
    *,
    zone: ZoneInfo,
) -> ComplementRequest:
    zone_name = _zone_name(options, schedules, zone)
    own_zone = zone_named(zone_name)
    first: datetime | None = None
    last: datetime | None = None
    if options.dates:
        if options.first is not None or options.last is not None:
            raise UsageError("dates", "give either --from and --to, or a list of dates")
    elif options.first is None or options.last is None:
        raise UsageError(
            "last" if options.first else "first",
            "give the range by --from and --to, or its dates by --date or --dates",
        )
    else:
        first = read_moment(options.first, own_zone, field="first")
        # Dates may lie at any time of a day, and a bare date means all of it.
        last = read_moment(options.last, own_zone, field="last", ends_day=True)
        if last < first:
            raise UsageError(
                "last",
                f"{options.last} is before --from {options.first}: nothing lies between them; put"
                " the earlier date first (--order descending runs the latest one first)",
            )
    return ComplementRequest(
        process_definition_id=definition_id,
        first=first,
        last=last,
        dates=read_dates(options.dates, own_zone),
        timezone_id=zone_name,
        parallelism=options.parallelism,
        order=options.order,
        on_failure=options.on_failure,
        reprocess=options.reprocess,
        date_rule=options.date_rule,
        downstream=options.downstream,
        confirmed=options.confirmed,
        settings=settings,
    )


def _zone_name(options: ComplementOptions, schedules: Sequence[Schedule], zone: ZoneInfo) -> str:
    """The zone asked for, else that of a schedule, else the cluster's: as for a typed row."""
    if options.zone is not None:
        return read_zone(options.zone).key
    try:
        return zone_of_dates(schedules, zone=zone).key
    except BadCommandError as error:
        raise NotAllowedError(f"{error}; name a zone by --zone") from error


def read_dates(texts: Sequence[str], zone: ZoneInfo) -> tuple[datetime, ...]:
    """The dates of a list; raises a `UsageError` of the field `dates` for a repeated one too."""
    places: dict[datetime, int] = {}
    for place, text in enumerate(texts, start=1):
        moment = read_moment(text, zone, field="dates", place=f"date {place}: ")
        if moment in places:
            raise UsageError(
                "dates",
                f"date {place} ({text.strip()[:40]}) is date {places[moment]} again; name each"
                " date once",
            )
        places[moment] = place
    return tuple(places)


def _graph(process_definition_json: str) -> ProcessGraph:
    return read_process_json(process_definition_json, task_types=known_task_types())


def _snapshot(row: DefinitionRow) -> DefinitionSnapshot:
    return DefinitionSnapshot(
        id=row.id,
        name=row.name,
        version=row.version,
        release_state=row.release_state,
        usable=row.usable,
        process_definition_json=row.process_definition_json or "",
        global_params=row.global_params,
        timeout_minutes=row.timeout_minutes,
        tenant_id=row.tenant_id,
        project_id=row.project_id,
        date_rule=row.date_rule,
    )
