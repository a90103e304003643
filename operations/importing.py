"""Brings definitions from files into the database: all of them or, if anything is wrong, none.

References by name are given this database's ids here; those to definitions of the same import too,
whose ids are drawn before any row is written: dependents may look at each other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from common.errors import NotAllowedError
from common.model.codes import code_in
from common.model.grants import GrantKind
from common.model.reach import Target
from common.model.rights import Principal
from common.model.states import ReleaseState
from common.store.connect import Connection
from common.store.people.datasources import datasources
from common.store.people.definitions import (
    DefinitionRow,
    NamedDefinition,
    definition_by_name,
    definitions_of_codes,
    definitions_with_codes,
    definitions_with_ids,
    insert_definition,
    keep_code,
    keep_drawing,
    lock_imports,
    new_definition_id,
    save_definition,
    set_date_rule,
    set_execution_type,
    set_release_state,
)
from common.store.people.schedule_requests import take_schedules_offline
from common.store.people.shares import (
    name_of_project,
    seen_among,
    targets_named,
    targets_with_ids,
)
from common.tenant_accounts import AccountRules
from operations.awaited import dependent_items
from operations.bindings import bound_ids
from operations.definition_document import (
    DEPENDENT_TASK_CODE,
    asks_for_all,
    name_of,
    nodes_of,
)
from operations.definition_files import DefinitionDocument, InvalidFilesError, Mistake
from operations.definition_reach import Reach
from operations.exported_schedule import ImportedSchedule, save_schedule
from operations.findings import Finding, Severity
from operations.granted_imports import (
    group_of_schedule,
    make_group_for,
    of_new_group,
    without_unknown_tenant,
)
from operations.granted_references import granted_catalog, lacking, without_stale_numbers
from operations.grants import Granted
from operations.import_cycles import waits_for_itself
from operations.imported_secrets import with_secrets
from operations.leniency import unmapped_reference
from operations.references import (
    Catalog,
    Wanted,
    name_tasks_awaited,
    number_references,
    wanted,
)
from operations.stored_documents import stored_document
from operations.tenant_checks import check_accounts, tenant_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One document as it was imported.

    `is_kept_offline` is True if it stays OFFLINE because of a part that the findings name.
    `rebound` describes each reference that now means another definition than before.
    """

    document: DefinitionDocument
    id: int
    version: int
    release_state: ReleaseState
    changed: bool
    is_kept_offline: bool
    findings: tuple[Finding, ...]
    schedules: tuple[ImportedSchedule, ...] = ()
    project: str | None = None
    """The name of the project of the import."""
    rebound: tuple[str, ...] = ()


def import_documents(
    db: Connection,
    documents: Sequence[DefinitionDocument],
    *,
    principal: Principal,
    project_id: int,
    at: datetime,
    online: bool | None,
    zone: ZoneInfo,
    environment: Mapping[str, str],
    data_dir: str,
    accounts: AccountRules | None,
    own_codes: bool = False,
) -> list[Imported]:
    """Save the documents within the caller's transaction; `InvalidFilesError` if any is wrong.

    `online` is the release state afterwards; without it a new definition is ONLINE and a known one
    stays as it is. One that goes OFFLINE takes its schedules along, and so does one that lacks what
    it needs, whatever `online` says. Schedules of files are always made OFFLINE, with times that
    name no zone read in `zone`. References to secrets get these from `environment`, else from the
    definition that is there. With `own_codes`, a code first means a definition of this database.
    `accounts` holds the rules for tenants' accounts; None if tasks do not use accounts.
    """
    lock_imports(db)
    before = {
        each.name: definition_by_name(db, each.name, project_id=project_id) for each in documents
    }
    documents = with_secrets(db, documents, before, environment)
    ids = {
        name: new_definition_id(db) if known is None else known.id for name, known in before.items()
    }
    needed = [wanted(each.document) for each in documents]
    granted = Granted(db, project_id)
    reach = _reach(
        db,
        principal,
        needed,
        before=before,
        ids=ids,
        project_id=project_id,
        own_codes=own_codes,
    )
    catalog, made_groups = _catalog(db, principal, needed, reach, granted)
    mistakes: list[Mistake] = []
    numbered: dict[str, dict[str, Any]] = {}
    lost: dict[str, list[Finding]] = {}
    with_tenant: list[DefinitionDocument] = []
    for document in documents:
        inner: dict[str, Any] = copy.deepcopy(dict(document.document))
        without_stale_numbers(inner)
        about = list(number_references(inner, catalog, referring=document.name))
        found = [each for each in about if each.is_mistake]
        lost[document.name] = [each for each in about if not each.is_mistake]
        if document.is_later:
            found.extend(_unknown_tasks(db, inner))
            lost[document.name] += [unmapped_reference(each) for each in found]
            lost[document.name].extend(without_unknown_tenant(inner, granted))
        elif document.is_export:
            lost[document.name] += [unmapped_reference(each) for each in found]
        else:
            mistakes.extend(Mistake(place=document.place, text=str(each)) for each in found)
        lacks = list(lacking({**inner, "tenantId": tenant_of(document, inner)}, granted))
        lost[document.name].extend(lacks)
        if all(each.key != "tenantCode" for each in lacks):
            # The check of accounts would reveal facts about a tenant without a grant.
            with_tenant.append(document)
        numbered[document.name] = inner
    mistakes.extend(check_accounts(db, with_tenant, numbered, accounts, warnings=lost))
    if not mistakes:
        mistakes.extend(
            waits_for_itself(db, principal, documents, numbered, ids=ids, project_id=project_id)
        )
    if mistakes:
        raise InvalidFilesError(mistakes)
    doubts = _doubts(db, numbered, ids)
    for name, refused in _refused_sources(db, numbered, granted, data_dir).items():
        doubts[name].extend(refused)
    return [
        _saved(
            db,
            document,
            numbered[document.name],
            before[document.name],
            ids[document.name],
            granted=granted,
            principal=principal,
            project_id=project_id,
            at=at,
            online=online,
            zone=zone,
            made_groups=made_groups,
            doubts=[*lost[document.name], *doubts[document.name]],
        )
        for document in documents
    ]


def _saved(
    db: Connection,
    document: DefinitionDocument,
    inner: Mapping[str, Any],
    before: DefinitionRow | None,
    definition_id: int,
    *,
    granted: Granted,
    principal: Principal,
    project_id: int,
    at: datetime,
    online: bool | None,
    zone: ZoneInfo,
    made_groups: Iterable[str],
    doubts: Sequence[Finding],
) -> Imported:
    values: dict[str, Any] = {
        # A code may lead to a definition of the files or of the database; sorted, the text is the
        # same either way.
        "process_definition_json": json.dumps(
            inner, ensure_ascii=False, sort_keys=document.is_later
        ),
        "description": document.description,
        "global_params": document.global_params,
        "timeout_minutes": document.timeout_minutes,
        "tenant_id": tenant_of(document, inner),
    }
    version, state = 1, ReleaseState.OFFLINE
    if before is None:
        fits = insert_definition(
            db,
            definition_id=definition_id,
            project_id=project_id,
            user_id=principal.user_id,
            name=document.name,
            at=at,
            **values,
        )
        if not fits:
            raise NotAllowedError(
                f"{document.name!r} was made by somebody else just now; try again"
            )
    else:
        saved = save_definition(db, name=document.name, project_id=project_id, at=at, **values)
        version, state = saved.version, saved.release_state
    code = code_in(inner.get("code"))
    if code is not None:
        keep_code(db, definition_id, code)
    keep_drawing(db, definition_id, locations=document.locations, connects=document.connects)
    if document.execution_type is not None:
        set_execution_type(db, definition_id, wanted=int(document.execution_type), at=at)
    is_kept_offline = any(each.keeps_offline for each in (*document.findings, *doubts))
    if online is not None or before is None or is_kept_offline:
        goes_offline = online is False or is_kept_offline
        state = ReleaseState.OFFLINE if goes_offline else ReleaseState.ONLINE
        set_release_state(db, definition_id, wanted=state, at=at)
        if state is ReleaseState.OFFLINE:
            take_schedules_offline(db, [definition_id], at=at)
    rule = document.date_rule or (document.former_date_rule if before is None else None)
    if rule is not None:
        set_date_rule(db, definition_id, wanted=rule, at=at)
    groups = wanted(inner).worker_group_names
    made, about_them = _schedules(
        db,
        document,
        definition_id,
        granted,
        principal=principal,
        project_id=project_id,
        zone=zone,
        at=at,
    )
    return Imported(
        document=document,
        id=definition_id,
        version=version,
        release_state=state,
        changed=before is None or before.version != version,
        findings=(
            *(each for each in document.findings if not each.of_database),
            *(of_new_group(name) for name in made_groups if name in groups),
            *about_them,
            *doubts,
        ),
        schedules=made,
        is_kept_offline=is_kept_offline,
    )


def _schedules(
    db: Connection,
    document: DefinitionDocument,
    definition_id: int,
    granted: Granted,
    *,
    principal: Principal,
    project_id: int,
    zone: ZoneInfo,
    at: datetime,
) -> tuple[tuple[ImportedSchedule, ...], list[Finding]]:
    """Save the schedules of a file, and return them with findings."""
    findings: list[Finding] = []
    saved: list[ImportedSchedule] = []
    for schedule in document.schedules:
        name = schedule.worker_group
        if name is not None and make_group_for(db, principal, name, project_id, granted):
            findings.append(of_new_group(name))
        group, about_group = group_of_schedule(name, granted)
        findings.extend(about_group)
        made, about_it = save_schedule(
            db,
            schedule,
            definition_id=definition_id,
            worker_group_id=group,
            granted=granted,
            zone=zone,
            at=at,
        )
        findings.extend(about_it)
        if made is not None:
            saved.append(made)
    return tuple(saved), findings


def _unknown_tasks(db: Connection, inner: Mapping[str, Any]) -> list[Finding]:
    """Name the tasks of other definitions that are known by code; return findings for the rest."""
    ids = {
        number
        for _, _, number, item in dependent_items(inner)
        if isinstance(number, int) and DEPENDENT_TASK_CODE in item
    }
    names: dict[int, str] = {}
    for row in definitions_with_ids(db, sorted(ids)):
        names |= _names_of_codes(stored_document(row))
    return [
        Finding(
            severity=Severity.MISTAKE,
            node=node,
            key=f"dependence.{DEPENDENT_TASK_CODE}",
            problem="it looks at a task of another definition by a code that nobody has here",
            cure="import the export of that definition before this one or with it",
        )
        for node in name_tasks_awaited(inner, names)
    ]


def _names_of_codes(document: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the tasks that keep their codes, by these."""
    coded = ((code_in(node.get("code")), name_of(node)) for node in nodes_of(document))
    return {code: name for code, name in coded if code is not None}


def _reach(
    db: Connection,
    principal: Principal,
    wanted: Sequence[Wanted],
    *,
    before: Mapping[str, DefinitionRow | None],
    ids: Mapping[str, int],
    project_id: int,
    own_codes: bool,
) -> Reach:
    """Return the definitions that the documents may refer to, including the same import."""
    names = sorted({name for each in wanted for name in each.definition_names})
    numbers = sorted({number for each in wanted for number in each.definition_ids})
    codes = sorted({code for each in wanted for code in each.definition_codes})
    own_name = name_of_project(db, project_id)
    named: dict[str, list[Target]] = {
        name: [Target(id=number, project_id=project_id, name=name, project_name=own_name)]
        for name, number in ids.items()
    }
    known = set(ids.values())
    for target in targets_named(db, project_id, names):
        if target.id not in known:
            named.setdefault(target.name, []).append(target)
    own = definitions_of_codes(db, codes if own_codes else ())
    rows = _by_code(definitions_with_codes(db, codes), own)
    coded = targets_with_ids(db, project_id, {each.id for those in rows.values() for each in those})
    return Reach(
        project_id=project_id,
        names=named,
        ids=targets_with_ids(db, project_id, numbers),
        codes={
            code: found[0]
            for code, those in rows.items()
            if (found := [coded[each.id] for each in those if each.id in coded])
        },
        own_codes=frozenset(own),
        bound={name: bound_ids(row) for name, row in before.items() if row is not None},
        visible=seen_among(
            db, principal, {each.project_id for those in named.values() for each in those}
        ),
    )


def _catalog(
    db: Connection,
    principal: Principal,
    wanted: Sequence[Wanted],
    reach: Reach,
    granted: Granted,
) -> tuple[Catalog, list[str]]:
    """Return the targets of the documents' references, and the worker groups made for them."""
    made = [
        name
        for name in sorted({name for each in wanted for name in each.worker_group_names})
        if make_group_for(db, principal, name, reach.project_id, granted)
    ]
    return (
        Catalog(
            reach=reach,
            **granted_catalog(granted),
        ),
        made,
    )


def _by_code(
    rows: Iterable[NamedDefinition], own: Mapping[int, NamedDefinition]
) -> dict[int, list[NamedDefinition]]:
    """Return the definitions of each code: `own` first, then definitions of other systems."""
    found = {code: [row] for code, row in own.items()}
    for row in rows:
        if (code := code_in(stored_document(row).get("code"))) is not None:
            found.setdefault(code, []).append(row)
    return found


def _doubts(
    db: Connection, numbered: Mapping[str, Mapping[str, Any]], ids: Mapping[str, int]
) -> dict[str, list[Finding]]:
    """Return a warning for each awaited task that its definition does not have yet."""
    doubts: dict[str, list[Finding]] = {name: [] for name in numbered}
    looked_at = {
        number
        for inner in numbered.values()
        for _, _, number, _ in dependent_items(inner)
        if isinstance(number, int)
    }
    names = {number: name for name, number in ids.items()}
    nodes = {
        row.id: _node_names(stored_document(row))
        for row in definitions_with_ids(db, sorted(looked_at))
    }
    nodes |= {number: _node_names(numbered[name]) for number, name in names.items()}
    for name, inner in numbered.items():
        doubts[name].extend(
            Finding(
                severity=Severity.WARNING,
                node=node,
                key=f"{where}.depTasks",
                problem=f"the definition looked at has no task {item['depTasks']!r:.200}",
            )
            for node, where, number, item in dependent_items(inner)
            if DEPENDENT_TASK_CODE not in item
            and not asks_for_all(item)
            and number in nodes
            and item["depTasks"] not in nodes[number]
        )
    return doubts


def _refused_sources(
    db: Connection,
    numbered: Mapping[str, Mapping[str, Any]],
    granted: Granted,
    data_dir: str,
) -> dict[str, list[Finding]]:
    """Return a warning for each data source that a definition names and that tasks can't use."""
    named = {name: wanted(inner) for name, inner in numbered.items()}
    if not any(each.datasource_ids or each.datasource_names for each in named.values()):
        return {}
    # Few imports name data sources, and the rule for URLs takes a while to import.
    from operations.datasource_params import fault_of

    faults = [
        (each, fault)
        for each in datasources(db)
        if granted.has(GrantKind.DATASOURCE, each.id)
        and (fault := fault_of(each.connection_params, data_dir=data_dir))
    ]
    return {
        name: [
            Finding(
                severity=Severity.WARNING,
                key="params.datasource",
                problem=f"the data source {source.name!r:.100} can't be used: {fault}",
                cure="orcaflow datasource create NAME --replace",
            )
            for source, fault in faults
            if source.id in each.datasource_ids or source.name in each.datasource_names
        ]
        for name, each in named.items()
    }


def _node_names(document: Mapping[str, Any]) -> frozenset[str]:
    tasks = document.get("tasks")
    return frozenset(
        str(node.get("name"))
        for node in (tasks if isinstance(tasks, list) else ())
        if isinstance(node, dict)
    )
