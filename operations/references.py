"""References that lead out of a definition: to others, to data sources, worker groups, tenants.

The 1.2 JSON refers to all of these by the ids of the database that it was written in, so a file
from another database (an *export*) would point at other rows (trap T90). Hence two steps:
`name_references` gives each reference a name, from the export itself or from a person, and
`number_references` turns names into the ids of the database that takes the definition. A name goes
before an id. Both steps change the document that they are given, in place, and yield findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from common.model.codes import code_in
from common.model.datasource_references import SparkSource, replace_sources, spark_sources
from common.model.reach import Target
from common.model.task_type import DatasourceUse
from common.task_types import task_type_spec
from operations.definition_document import (
    DEPENDENT_TASK_CODE,
    PROJECT_KEYS,
    DefinitionReference,
    definition_references,
    depend_items,
    id_in,
    listed,
    name_of,
    nodes_of,
    object_in,
    text_in,
    type_of,
)
from operations.definition_reach import Reach, name_definition, number_definition
from operations.environment_references import (
    environment_wanted,
    name_environment,
    number_environment,
)
from operations.findings import Finding, Severity

DEFAULT_WORKER_GROUP: Final = "default"


class Kind(StrEnum):
    """The kinds of things that an id of another database names; the values are typed by people."""

    DEFINITION = "definition"
    DATASOURCE = "datasource"
    WORKER_GROUP = "worker-group"
    ENVIRONMENT = "environment"
    RESOURCE = "resource"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of foreign ids: `given` by a person, `labels` of definitions in the exports.

    `exported` holds the names of the projects that the exports come from.
    """

    given: Mapping[tuple[Kind, int], str] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()

    def of(self, kind: Kind, foreign_id: int) -> str | None:
        name = self.given.get((kind, foreign_id))
        if name is None and kind is Kind.DEFINITION:
            return self.labels.get(foreign_id)
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The references of a document: the names, ids and codes that have to be looked up."""

    definition_names: frozenset[str]
    definition_ids: frozenset[int]
    definition_codes: frozenset[int]
    datasource_names: frozenset[str]
    datasource_ids: frozenset[int]
    worker_group_names: frozenset[str]
    tenant_codes: frozenset[str]
    environment_names: frozenset[str] = frozenset()
    environment_codes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The contents of the database that takes the definitions, the same import's included.

    A data source's name may stand for several rows: none has to be unique.
    """

    reach: Reach = field(default_factory=Reach)
    datasources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    datasource_ids: frozenset[int] = frozenset()
    worker_groups: Mapping[str, int] = field(default_factory=dict)
    tenants: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)
    """The codes of environments."""


def labels_in(document: Mapping[str, Any]) -> dict[int, str]:
    """Names of definitions by their foreign ids, as the dependent items of an export name them.

    The original writes `definitionName` beside `definitionId` when it exports, and its front end
    keeps a list of labels there; the former is surer, since labels are copies that may be old.
    """
    labels: dict[int, str] = {}
    sure: dict[int, str] = {}
    for _, _, item, _ in depend_items(document):
        listed = item.get("definitionList")
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                number, label = id_in(each.get("value")), each.get("label")
                if number is not None and isinstance(label, str) and label:
                    labels[number] = label
        number, name = id_in(item.get("definitionId")), item.get("definitionName")
        if number is not None and isinstance(name, str) and name:
            sure[number] = name
    return {**labels, **sure}


def name_references(document: dict[str, Any], *, names: Names, foreign: bool) -> Iterator[Finding]:
    """Give each reference its name. `foreign` says that ids are those of another database.

    An id that is not foreign and has no name stays, as an id of this database.
    """
    yield from _name_tenant(document, names, foreign=foreign)
    for reference in definition_references(document):
        yield from _name_definition(reference, names, foreign=foreign)
    for node in nodes_of(document):
        name = name_of(node)
        if _datasource_use(node) is DatasourceUse.ONE:
            yield from _name_datasource(node, name, names, foreign=foreign)
        if _datasource_use(node) is DatasourceUse.NAMED:
            yield from _name_sources(node, name, names, foreign=foreign)
        yield from _name_worker_group(node, name, names, foreign=foreign)
        name_environment(node, lambda code: names.of(Kind.ENVIRONMENT, code))
        yield from _name_resources(node, name, names)
        wait = object_in(node, "waitStartTimeout") or {}
        if foreign and wait.get("enable") in (True, "true"):
            yield Finding(
                severity=Severity.UNMAPPED,
                node=name,
                key="waitStartTimeout",
                problem="a limit on waiting for the upstream is not known here",
                cure="give the task or the process a timeout instead",
            )
    if foreign:
        for _, _, item, _ in depend_items(document):
            # The front end's copies of ids and labels, which mean nothing in this database.
            item.pop("definitionList", None)


def name_tasks_awaited(document: Mapping[str, Any], names: Mapping[int, str]) -> list[str]:
    """Name the tasks that dependent items look at by code; return the nodes where none is known."""
    unknown: list[str] = []
    for node, _, item, _ in depend_items(document):
        if DEPENDENT_TASK_CODE not in item:
            continue
        name = names.get(code_in(item[DEPENDENT_TASK_CODE]) or 0)
        if name is None:
            unknown.append(node)
        else:
            del item[DEPENDENT_TASK_CODE]
            item["depTasks"] = name
    return unknown


def wanted(document: Mapping[str, Any]) -> Wanted:
    """Return the references that `number_references` will look up."""
    definition_names: set[str] = set()
    definition_ids: set[int] = set()
    definition_codes: set[int] = set()
    datasource_names: set[str] = set()
    datasource_ids: set[int] = set()
    groups: set[str] = set()
    environments: set[str] = set()
    environment_codes: set[int] = set()

    for reference in definition_references(document):
        if reference.name is not None:
            definition_names.add(reference.name)
        elif reference.number is not None:
            definition_ids.add(reference.number)
        elif reference.code is not None:
            definition_codes.add(reference.code)
    for node in nodes_of(document):
        if _datasource_use(node) is DatasourceUse.ONE:
            params = object_in(node, "params") or {}
            source, number = text_in(params, "datasourceName"), id_in(params.get("datasource"))
            if source is not None:
                datasource_names.add(source)
            elif number is not None:
                datasource_ids.add(number)
        if _datasource_use(node) is DatasourceUse.NAMED:
            for each in spark_sources(object_in(node, "params") or {}):
                if isinstance(each.source, str):
                    datasource_names.add(each.source)
                elif not each.problem:
                    datasource_ids.add(each.source)
        group = text_in(node, "workerGroup")
        if group is not None and group != DEFAULT_WORKER_GROUP:
            groups.add(group)
        environment, code = environment_wanted(node)
        environments |= set() if environment is None else {environment}
        environment_codes |= set() if code is None else {code}
    tenant = text_in(document, "tenantCode")
    return Wanted(
        definition_names=frozenset(definition_names),
        definition_ids=frozenset(definition_ids),
        definition_codes=frozenset(definition_codes),
        datasource_names=frozenset(datasource_names),
        datasource_ids=frozenset(datasource_ids),
        worker_group_names=frozenset(groups),
        tenant_codes=frozenset() if tenant is None else frozenset({tenant}),
        environment_names=frozenset(environments),
        environment_codes=frozenset(environment_codes),
    )


def number_references(
    document: dict[str, Any], catalog: Catalog, *, referring: str | None = None
) -> Iterator[Finding]:
    """Replace each name by its id in this database.

    A missing definition is a mistake. A shared object that the catalog lacks keeps its name, and
    `operations.granted_references` reports it. `referring` is the name of this definition.
    """
    for reference in definition_references(document):
        yield from number_definition(reference, catalog.reach, referring=referring)
    yield from number_shared(document, catalog)


def number_shared(document: dict[str, Any], catalog: Catalog) -> Iterator[Finding]:
    """Replace the names of shared objects in the catalog by their ids."""
    tenant = text_in(document, "tenantCode")
    if tenant is not None and tenant in catalog.tenants:
        document["tenantId"] = catalog.tenants[tenant]
    for node in nodes_of(document):
        name = name_of(node)
        if _datasource_use(node) is DatasourceUse.ONE:
            yield from _number_datasource(object_in(node, "params") or {}, name, catalog)
        if _datasource_use(node) is DatasourceUse.NAMED:
            yield from _number_sources(object_in(node, "params") or {}, name, catalog)
        group = text_in(node, "workerGroup")
        if group == DEFAULT_WORKER_GROUP:
            node["workerGroupId"] = -1
        elif group is not None and group in catalog.worker_groups:
            node["workerGroupId"] = catalog.worker_groups[group]
        number_environment(node, catalog.environments)


def provisional(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which every reference by name has some id, so that the rest can be checked.

    For the reader of definitions, which requires ids before any database has been read.
    """
    copied: dict[str, Any] = json.loads(json.dumps(document))
    for _, _, item, _ in depend_items(copied):
        if item.pop(DEPENDENT_TASK_CODE, None) is not None:
            item["depTasks"] = "a task"
    names = wanted(copied)
    for reference in definition_references(copied):
        for key in PROJECT_KEYS:
            reference.holder.pop(key, None)
    target = Target(id=1, project_id=1, name="")
    for _ in number_references(
        copied,
        Catalog(
            reach=Reach(
                names=dict.fromkeys(names.definition_names, (target,)),
                ids=dict.fromkeys(names.definition_ids, target),
                codes=dict.fromkeys(names.definition_codes, target),
            ),
            datasources=dict.fromkeys(names.datasource_names, (1,)),
            datasource_ids=names.datasource_ids,
            worker_groups=dict.fromkeys(names.worker_group_names, 1),
            tenants=dict.fromkeys(names.tenant_codes, 1),
            environments=dict.fromkeys(names.environment_names, 1),
        ),
    ):
        pass
    return copied


def pool_names(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each node with each pool that it names, rather than numbers."""
    for node in nodes_of(document):
        groups = node.get("taskGroups")
        if isinstance(groups, str):
            try:
                groups = json.loads(groups)
            except (ValueError, RecursionError):
                continue
        for group in listed(groups):
            name = group.get("name") if isinstance(group, dict) else group
            if isinstance(name, str) and name and not (isinstance(group, dict) and group.get("id")):
                yield name_of(node), name


def add_names(
    document: dict[str, Any],
    *,
    project_id: int,
    definitions: Mapping[int, Target],
    datasources: Mapping[int, str],
    worker_groups: Mapping[int, str],
    environments: Mapping[int, str],
) -> None:
    """Name what the ids stand for now, so that the document means the same in another database.

    `definitions` holds the definitions that the document's project, `project_id`, reaches. Other
    ids are not changed.
    """
    for reference in definition_references(document):
        found = definitions.get(reference.number or 0)
        if found is not None and reference.name is None:
            name_definition(reference, found, own_project=project_id)
    for node in nodes_of(document):
        if _datasource_use(node) is DatasourceUse.ONE:
            params = object_in(node, "params") or {}
            source = datasources.get(id_in(params.get("datasource")) or 0)
            if source is not None:
                params["datasourceName"] = source
                params.pop("datasource", None)
        if _datasource_use(node) is DatasourceUse.NAMED:
            replace_sources(
                object_in(node, "params") or {},
                lambda each: replace(each, source=datasources.get(_number(each), each.source)),
            )
        group = worker_groups.get(id_in(node.get("workerGroupId")) or 0)
        if group is not None:
            node["workerGroup"] = group
            node.pop("workerGroupId", None)
        name_environment(node, environments.get)


def _name_tenant(document: dict[str, Any], names: Names, *, foreign: bool) -> Iterator[Finding]:
    number = id_in(document.get("tenantId"))
    if number is None or text_in(document, "tenantCode") is not None:
        return
    code = names.of(Kind.TENANT, number)
    if code is not None:
        document["tenantCode"] = code
    elif foreign:
        document["tenantId"] = -1
        yield Finding(
            severity=Severity.UNMAPPED,
            key="tenantId",
            problem=f"tenant {number} of the other database is not known here, so the tasks run as"
            " the tenant of the definition's owner",
            cure=_map_option(Kind.TENANT, number, "CODE"),
        )


def _name_definition(
    reference: DefinitionReference, names: Names, *, foreign: bool
) -> Iterator[Finding]:
    number = reference.number
    given = None if number is None else names.given.get((Kind.DEFINITION, number))
    name = given or reference.name
    foreign_id = reference.code if number is None else number
    if name is None and foreign_id is not None and foreign:
        name = names.of(Kind.DEFINITION, foreign_id)
    if name is not None:
        reference.holder[reference.name_key] = name
        for key in (reference.id_key, *reference.code_keys):
            reference.holder.pop(key, None)
        if foreign:
            _name_project(reference, names, is_given=given is not None)
    elif foreign and number is not None:
        yield Finding(
            severity=Severity.MISTAKE,
            node=reference.node,
            key=f"{reference.where}.{reference.id_key}",
            problem=f"definition {number} of the other database has no name in this file",
            cure=f"say which one it is: {_map_option(Kind.DEFINITION, number, 'NAME')}",
        )
    elif foreign and reference.code is not None:
        yield Finding(
            severity=Severity.WARNING,
            node=reference.node,
            key=f"{reference.where}.{reference.code_key}",
            problem=f"the definition with the code {reference.code} is in none of these files:"
            " without it in the database the definition stays OFFLINE",
            cure="import its export before this one or with it",
            of_database=True,
        )


def _name_project(reference: DefinitionReference, names: Names, *, is_given: bool) -> None:
    """Remove foreign projects' ids, and the names of projects in the same import.

    The import puts all exports into one project, where the definition's name alone is enough. The
    rule ignores the projects of this database: a mistake must not reveal which of them exist.
    """
    for key in PROJECT_KEYS:
        comes_too = reference.holder.get(key) in names.exported
        if key != "projectName" or is_given or comes_too:
            reference.holder.pop(key, None)


def _name_datasource(
    node: dict[str, Any], name: str, names: Names, *, foreign: bool
) -> Iterator[Finding]:
    params = object_in(node, "params")
    if params is None:
        return
    number = id_in(params.get("datasource"))
    given = None if number is None else names.of(Kind.DATASOURCE, number)
    source = given or text_in(params, "datasourceName")
    if source is not None:
        params["datasourceName"] = source
        params.pop("datasource", None)
    elif foreign and number is not None:
        yield Finding(
            severity=Severity.MISTAKE,
            node=name,
            key="params.datasource",
            problem=f"data source {number} of the other database has no name in this file",
            cure=f"say which one it is: {_map_option(Kind.DATASOURCE, number, 'NAME')}",
        )
    udfs = params.get("udfs")
    if foreign and udfs:
        yield Finding(
            severity=Severity.UNMAPPED,
            node=name,
            key="params.udfs",
            problem=f"functions {str(udfs)[:80]!r} are not registered before the statement",
            cure="create them in preStatements",
        )
        params["udfs"] = ""


def _name_sources(
    node: dict[str, Any], name: str, names: Names, *, foreign: bool
) -> Iterator[Finding]:
    """As `_name_datasource`, for those that a Spark task names."""

    def named(each: SparkSource) -> SparkSource:
        number = _number(each)
        given = names.of(Kind.DATASOURCE, number) if number else None
        if given is not None:
            return replace(each, source=given)
        unknown = f"data source {number} of the other database has no name in this file"
        return replace(each, problem=unknown) if foreign and number else each

    for each in replace_sources(object_in(node, "params") or {}, named):
        number = _number(each)
        cure = f"say which one it is: {_map_option(Kind.DATASOURCE, number, 'NAME')}"
        yield _missing(name, f"params.{each.key}", each.problem, cure if number else "")


def _name_worker_group(
    node: dict[str, Any], name: str, names: Names, *, foreign: bool
) -> Iterator[Finding]:
    number = id_in(node.get("workerGroupId"))
    given = None if number is None else names.of(Kind.WORKER_GROUP, number)
    if given is not None:
        node["workerGroup"] = given
    if text_in(node, "workerGroup") is not None:
        node.pop("workerGroupId", None)
    elif foreign and number is not None:
        yield Finding(
            severity=Severity.MISTAKE,
            node=name,
            key="workerGroupId",
            problem=f"worker group {number} of the other database has no name in this file",
            cure="say which one it is, or 'default': "
            + _map_option(Kind.WORKER_GROUP, number, "NAME"),
        )


def _name_resources(node: dict[str, Any], name: str, names: Names) -> Iterator[Finding]:
    params = object_in(node, "params")
    if params is None:
        return
    entries: list[tuple[str, dict[str, Any]]] = []
    jar = params.get("mainJar")
    if isinstance(jar, dict):
        entries.append(("params.mainJar", jar))
    listed = params.get("resourceList")
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(entry, dict):
            entries.append((f"params.resourceList[{index}]", entry))
    for where, entry in entries:
        if text_in(entry, "res") or text_in(entry, "resourceName"):
            continue
        number = id_in(entry.get("id"))
        given = None if number is None else names.of(Kind.RESOURCE, number)
        path = given or text_in(entry, "fullName") or text_in(entry, "name")
        if path is not None:
            # The original's full names begin at its own root of resources.
            entry["res"] = path if given else path.lstrip("/")
            entry.pop("id", None)
        elif number is not None:
            yield Finding(
                severity=Severity.MISTAKE,
                node=name,
                key=f"{where}.id",
                problem=f"resource {number} is named by its id alone, which is no file",
                cure="give its path as 'res', or " + _map_option(Kind.RESOURCE, number, "PATH"),
            )


def _number_datasource(params: dict[str, Any], node: str, catalog: Catalog) -> Iterator[Finding]:
    name = text_in(params, "datasourceName")
    found = () if name is None else catalog.datasources.get(name, ())
    if len(found) == 1:
        params["datasource"] = found[0]
    elif found:
        ids = ", ".join(map(str, found))
        yield _missing(
            node,
            "params.datasourceName",
            f"{name!r:.200} is ambiguous: data sources {ids}",
            "give the id as 'datasource' and leave the name out",
        )


def _number_sources(params: dict[str, Any], node: str, catalog: Catalog) -> Iterator[Finding]:
    """As `_number_datasource`, for those that a Spark task names."""

    def numbered(each: SparkSource) -> SparkSource:
        if isinstance(each.source, int):
            return each
        found = catalog.datasources.get(each.source, ())
        if len(found) == 1:
            return replace(each, source=found[0])
        if found:
            ids = ", ".join(map(str, found))
            problem = f"{each.source!r:.200} is ambiguous: data sources {ids}; give the id"
            return replace(each, problem=problem)
        return each

    for each in replace_sources(params, numbered):
        yield _missing(node, f"params.{each.key}", each.problem)


def _number(source: SparkSource) -> int:
    """Return the id, 0 if it is a name."""
    return source.source if isinstance(source.source, int) else 0


def _missing(node: str | None, key: str, problem: str, cure: str = "") -> Finding:
    return Finding(severity=Severity.MISTAKE, node=node, key=key, problem=problem, cure=cure)


def _map_option(kind: Kind, number: int, what: str) -> str:
    return f"--map {kind.value}:{number}={what}"


def _datasource_use(node: Mapping[str, Any]) -> DatasourceUse:
    return task_type_spec(type_of(node)).datasources
