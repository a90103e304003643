"""Checks the shared objects that a definition names against the grants of its project.

An object without a grant gives the same finding as a missing object, so a definition reveals no
objects of other projects. The checks run when a definition is saved, proposed, put in force or
brought ONLINE.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from common.errors import NotAllowedError
from common.model.datasource_references import spark_sources
from common.model.grants import GrantKind
from common.model.task_type import DatasourceUse
from common.model.user_resources import not_lent, owners_in
from common.store.people.definitions import DefinitionRow, resolve_references
from common.task_types import task_type_spec
from operations.definition_document import (
    id_in,
    listed,
    name_of,
    nodes_of,
    object_in,
    object_of,
    text_in,
    type_of,
)
from operations.environment_references import environment_wanted
from operations.findings import Finding, Severity
from operations.grants import Granted
from operations.references import DEFAULT_WORKER_GROUP, Catalog, number_shared

if TYPE_CHECKING:
    from common.store.connect import Connection

_SHOWN = 20


class NamedObject(NamedTuple):
    """A shared object in a definition, by its name or its number."""

    kind: GrantKind
    node: str | None
    key: str
    given: str | int


def named_objects(document: Mapping[str, Any]) -> Iterator[NamedObject]:
    """Yield each shared object that a definition names.

    A number takes precedence over a name, except for environments.
    """
    tenant: int | str | None = id_in(document.get("tenantId"))
    tenant = tenant or text_in(document, "tenantCode")
    if tenant is not None:
        yield NamedObject(GrantKind.TENANT, None, "tenantCode", tenant)
    for node in nodes_of(document):
        yield from _of_node(node, name_of(node))


def _of_node(node: dict[str, Any], name: str) -> Iterator[NamedObject]:
    params = object_in(node, "params") or {}
    match task_type_spec(type_of(node)).datasources:
        case DatasourceUse.ONE:
            source = id_in(params.get("datasource"))
            if source is not None:
                yield NamedObject(GrantKind.DATASOURCE, name, "params.datasource", source)
            elif (called := text_in(params, "datasourceName")) is not None:
                yield NamedObject(GrantKind.DATASOURCE, name, "params.datasourceName", called)
        case DatasourceUse.NAMED:
            for each in spark_sources(params):
                if not each.problem:
                    yield NamedObject(GrantKind.DATASOURCE, name, f"params.{each.key}", each.source)
        case DatasourceUse.NONE:
            pass
    number, group = id_in(node.get("workerGroupId")), text_in(node, "workerGroup")
    if number is not None and number > 0:
        yield NamedObject(GrantKind.WORKER_GROUP, name, "workerGroup", number)
    elif group is not None and group != DEFAULT_WORKER_GROUP:
        yield NamedObject(GrantKind.WORKER_GROUP, name, "workerGroup", group)
    environment, code = environment_wanted(node)
    if environment is not None:
        yield NamedObject(GrantKind.ENVIRONMENT, name, "environmentName", environment)
    elif code is not None:
        yield NamedObject(GrantKind.ENVIRONMENT, name, "environmentCode", code)
    pool = id_in(node.get("taskGroupId"))
    if pool is not None:
        yield NamedObject(GrantKind.POOL, name, "taskGroupId", pool)
    yield from (NamedObject(GrantKind.POOL, name, "taskGroups", each) for each in _pools(node))


def _pools(node: Mapping[str, Any]) -> Iterator[str | int]:
    groups = node.get("taskGroups")
    if isinstance(groups, str):
        try:
            groups = json.loads(groups)
        except (ValueError, RecursionError):
            return
    for group in listed(groups):
        given: object = group if isinstance(group, str) else None
        if isinstance(group, dict):
            given = id_in(group.get("id")) or group.get("name")
        if given and isinstance(given, str | int) and not isinstance(given, bool):
            yield given


def lacking(document: Mapping[str, Any], granted: Granted) -> Iterator[Finding]:
    """Yield a finding for each object without a grant; it keeps the definition OFFLINE."""
    for kind, node, key, given in named_objects(document):
        is_known = (
            granted.has(kind, given)
            if isinstance(given, int)
            else bool(granted.numbers_of(kind, given))
        )
        if not is_known:
            yield Finding(
                severity=Severity.UNMAPPED,
                node=node,
                key=key,
                problem=granted.problem(kind, given),
                cure=granted.cure(kind, given) + _of_code(kind, given),
                keeps_offline=True,
                of_grant=True,
            )
    yield from _not_lent(document, granted)


def _not_lent(document: Mapping[str, Any], granted: Granted) -> Iterator[Finding]:
    """Yield a finding for each node with resources of a user whom the project may not use."""
    for node in nodes_of(document):
        for owner in sorted(owners_in([json.dumps(node)])):
            if not granted.lends(owner):
                problem, cure = not_lent(owner, granted.project)
                yield Finding(
                    severity=Severity.UNMAPPED,
                    node=name_of(node),
                    key="params",
                    problem=problem,
                    cure=cure,
                    keeps_offline=True,
                    of_grant=True,
                )


def _of_code(kind: GrantKind, given: str | int) -> str:
    """Return a further remedy for an environment's code, which may be from another system."""
    if kind is not GrantKind.ENVIRONMENT or isinstance(given, str):
        return ""
    return (
        f"; one of another system is made by `orcaflow environment create NAME --code {given}`,"
        f" or named by --map environment:{given}=NAME"
    )


def without_stale_numbers(document: dict[str, Any]) -> None:
    """Remove each number next to a name: the name takes precedence."""
    if text_in(document, "tenantCode") is not None:
        document.pop("tenantId", None)
    for node in nodes_of(document):
        if text_in(node, "workerGroup") is not None:
            node.pop("workerGroupId", None)
        if text_in(node, "environmentName") is not None:
            node.pop("environmentCode", None)
        params = object_in(node, "params")
        if params is not None and text_in(params, "datasourceName") is not None:
            params.pop("datasource", None)


def number_granted(document: dict[str, Any], granted: Granted) -> None:
    """Replace the names of shared objects that the project may use by their numbers."""
    without_stale_numbers(document)
    for _ in number_shared(document, Catalog(**granted_catalog(granted))):
        pass


def granted_catalog(granted: Granted) -> dict[str, Any]:
    """Return the fields of a `Catalog` for the shared objects that the project may use."""

    def oldest(kind: GrantKind) -> dict[str, int]:
        return {name: numbers[0] for name, numbers in granted.by_name(kind).items()}

    return {
        "datasources": granted.by_name(GrantKind.DATASOURCE),
        "datasource_ids": granted.numbers(GrantKind.DATASOURCE),
        "worker_groups": oldest(GrantKind.WORKER_GROUP),
        "tenants": oldest(GrantKind.TENANT),
        "environments": oldest(GrantKind.ENVIRONMENT),
    }


def check_proposed_granted(db: Connection, document: Mapping[str, Any], project_id: int) -> None:
    """Raise `NotAllowedError` if a document names objects that the project may not use."""
    given = document.get("processDefinitionJson")
    inner = copy.deepcopy(dict(object_of(given)))
    granted = Granted(db, project_id)
    number_granted(inner, granted)
    check_all_granted(lacking(inner, granted), "it is not proposed")


def check_definition_granted(db: Connection, row: DefinitionRow) -> None:
    """Raise `NotAllowedError` if a definition names objects without a grant, with their list.

    Otherwise, names of objects are replaced by their numbers in the stored definition.
    """
    stored = row.process_definition_json or ""
    document = dict(object_of(stored))
    granted = Granted(db, row.project_id)
    number_granted(document, granted)
    tenant = row.tenant_id
    if tenant <= 0 and text_in(document, "tenantCode") is not None:
        tenant = id_in(document.get("tenantId")) or -1
    findings = lacking({**document, "tenantId": tenant}, granted)
    check_all_granted(findings, f"process definition {row.name!r} stays OFFLINE")
    if document != dict(object_of(stored)) or tenant != row.tenant_id:
        resolve_references(
            db, row.id, version=row.version, document=json.dumps(document), tenant_id=tenant
        )


def definition_findings(row: DefinitionRow, granted: Granted) -> Iterator[Finding]:
    """Yield a finding for each object in a stored definition that the project may not use."""
    document = dict(object_of(row.process_definition_json or ""))
    number_granted(document, granted)
    yield from lacking({**document, "tenantId": row.tenant_id}, granted)


def check_all_granted(findings: Iterable[Finding], what: str) -> None:
    """Raise `NotAllowedError` with the list of objects if there are findings about grants."""
    lost = [str(each) for each in findings if each.of_grant]
    if lost:
        more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise NotAllowedError(f"{what}: {'; '.join(lost[:_SHOWN])}{more}")
