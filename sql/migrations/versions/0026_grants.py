"""Grants of tenants, data sources, environments, pools and worker groups to projects.

The upgrade grants to each project the objects that its definitions, live runs, schedules,
complements and waiting commands name, and the data sources of its authors in
`t_ds_relation_datasource_user`. Project 1 gets tenant 1, so that rows inserted there by hand run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

_TENANT, _DATASOURCE, _ENVIRONMENT, _POOL, _WORKER_GROUP = range(1, 6)
_PAGE = 500
_LARGEST = 2**63 - 1

_TABLE = (
    """
    CREATE TABLE t_ds_grant (
        object_type SMALLINT NOT NULL,
        object_id BIGINT NOT NULL,
        project_id INTEGER NOT NULL,
        user_id INTEGER DEFAULT 1 NOT NULL,
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_grant_pk PRIMARY KEY (object_type, object_id, project_id),
        CONSTRAINT t_ds_grant_object_type_check CHECK (object_type IN (1, 2, 3, 4, 5)),
        CONSTRAINT t_ds_grant_project_id_fk FOREIGN KEY(project_id)
            REFERENCES t_ds_project (id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX t_ds_grant_project_idx ON t_ds_grant (project_id, object_type)",
    """
CREATE FUNCTION orcaflow_revoke_grants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM t_ds_grant
        WHERE object_type = TG_ARGV[0]::smallint
        AND object_id = (to_jsonb(OLD) ->> TG_ARGV[1])::bigint;
    RETURN NULL;
END $$""",
    *(
        f"""
CREATE TRIGGER orcaflow_grants_revoked
    AFTER DELETE ON {table}
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_revoke_grants('{kind}', '{key}')"""
        for kind, table, key in (
            (_TENANT, "t_ds_tenant", "id"),
            (_DATASOURCE, "t_ds_datasource", "id"),
            (_ENVIRONMENT, "t_ds_environment", "code"),
            (_POOL, "t_ds_task_group", "id"),
            (_WORKER_GROUP, "t_ds_worker_group", "id"),
        )
    ),
)

# The objects of each kind: the number in their grants, and their name. A name in a document grants
# all objects with that name.
_OBJECTS = {
    _TENANT: "SELECT id, tenant_code FROM t_ds_tenant ORDER BY id",
    _DATASOURCE: "SELECT id, name FROM t_ds_datasource ORDER BY id",
    _ENVIRONMENT: "SELECT code, name FROM t_ds_environment ORDER BY code",
    _POOL: "SELECT id, name FROM t_ds_task_group ORDER BY id",
    _WORKER_GROUP: "SELECT id, name FROM t_ds_worker_group ORDER BY id",
}
# A paused run can be resumed.
_IS_LIVE = "state IN (0, 1, 2, 3, 4, 10, 14)"

_IN_COLUMNS = f"""
    SELECT {_TENANT}, 1, 1
    UNION SELECT {_TENANT}, tenant_id, project_id FROM t_ds_process_definition
    -- A definition without a tenant runs as that of its creator.
    UNION SELECT {_TENANT}, creator.tenant_id, definition.project_id
        FROM t_ds_process_definition AS definition
        JOIN t_ds_user AS creator ON creator.id = definition.user_id
        WHERE NOT EXISTS (SELECT 1 FROM t_ds_tenant WHERE id = definition.tenant_id)
    UNION SELECT {_TENANT}, run.tenant_id, definition.project_id
        FROM t_ds_process_instance AS run
        JOIN t_ds_process_definition AS definition ON definition.id = run.process_definition_id
        WHERE run.{_IS_LIVE}
    UNION SELECT {_WORKER_GROUP}, run.worker_group_id, definition.project_id
        FROM t_ds_process_instance AS run
        JOIN t_ds_process_definition AS definition ON definition.id = run.process_definition_id
        WHERE run.{_IS_LIVE}
    UNION SELECT {_WORKER_GROUP}, one.worker_group_id, definition.project_id
        FROM t_ds_schedules AS one
        JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    UNION SELECT {_ENVIRONMENT}, one.environment_code, definition.project_id
        FROM t_ds_schedules AS one
        JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    UNION SELECT {_WORKER_GROUP}, one.worker_group_id, definition.project_id
        FROM t_ds_complement AS one
        JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    UNION SELECT {_ENVIRONMENT}, one.environment_code, definition.project_id
        FROM t_ds_complement AS one
        JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    UNION SELECT {_WORKER_GROUP}, one.worker_group_id, definition.project_id
        FROM t_ds_command AS one
        JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    UNION SELECT {_DATASOURCE}, given.datasource_id, role.project_id
        FROM t_ds_relation_datasource_user AS given
        JOIN t_ds_relation_project_user AS role ON role.user_id = given.user_id
        WHERE given.perm <> 0 AND role.perm & 4 <> 0
"""  # noqa: S608  # Constants, as below.
_DOCUMENTS = """
    SELECT id, project_id, process_definition_json AS document
    FROM t_ds_process_definition WHERE id > :after ORDER BY id LIMIT :page
"""
_LIVE_DOCUMENTS = f"""
    SELECT run.id, definition.project_id, run.process_instance_json AS document
    FROM t_ds_process_instance AS run
    JOIN t_ds_process_definition AS definition ON definition.id = run.process_definition_id
    WHERE run.{_IS_LIVE} AND run.id > :after ORDER BY run.id LIMIT :page
"""  # noqa: S608  # Constants.
_PARAMS = f"""
    SELECT definition.project_id, one.command_param
    FROM (
        SELECT process_definition_id, command_param FROM t_ds_command
        UNION ALL
        SELECT process_definition_id, command_param FROM t_ds_process_instance WHERE {_IS_LIVE}
    ) AS one
    JOIN t_ds_process_definition AS definition ON definition.id = one.process_definition_id
    WHERE one.command_param LIKE '%"environmentCode"%'
"""  # noqa: S608  # Constants.


def upgrade() -> None:
    for statement in _TABLE:
        op.execute(statement)
    db = op.get_bind()
    known: dict[int, dict[int, str]] = {
        kind: {row[0]: row[1] for row in db.execute(sa.text(query))}
        for kind, query in _OBJECTS.items()
    }
    projects = set(db.scalars(sa.text("SELECT id FROM t_ds_project")))
    used: set[tuple[int, int, int]] = {
        (kind, number, project)
        for kind, number, project in db.execute(sa.text(_IN_COLUMNS))
        if number in known[kind]
    }
    for query in (_DOCUMENTS, _LIVE_DOCUMENTS):
        after = 0
        while rows := db.execute(sa.text(query), {"after": after, "page": _PAGE}).all():
            after = rows[-1].id
            for row in rows:
                used |= {
                    (kind, number, row.project_id)
                    for kind, given in _named(_read(row.document))
                    for number in _numbers(given, known[kind])
                }
    for project, param in db.execute(sa.text(_PARAMS)):
        given = _object(_read(param)).get("environmentCode")
        used |= {(_ENVIRONMENT, number, project) for number in _numbers(given, known[_ENVIRONMENT])}
    granted = sorted(each for each in used if each[2] in projects)
    if granted:
        db.execute(
            sa.text(
                "INSERT INTO t_ds_grant (object_type, object_id, project_id)"
                " VALUES (:kind, :number, :project)"
            ),
            [{"kind": kind, "number": number, "project": each} for kind, number, each in granted],
        )


def _read(text: str | None) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _named(document: Any) -> Iterator[tuple[int, Any]]:
    """Yield the objects that the document of a definition names: the kind, and an id or a name."""
    whole = _object(document)
    yield _TENANT, whole.get("tenantId")
    yield _TENANT, whole.get("tenantCode")
    tasks = whole.get("tasks")
    for task in tasks if isinstance(tasks, list) else ():
        node, params = _object(task), _object(_object(task).get("params"))
        yield _WORKER_GROUP, node.get("workerGroupId")
        yield _WORKER_GROUP, node.get("workerGroup")
        yield _ENVIRONMENT, node.get("environmentCode")
        yield _ENVIRONMENT, node.get("environmentName")
        yield _DATASOURCE, params.get("datasource")
        yield _DATASOURCE, params.get("datasourceName")
        sources = params.get("datasources")
        if isinstance(sources, Mapping):
            sources = list(sources.values())
        for source in sources if isinstance(sources, list) else ():
            yield _DATASOURCE, source
        pools = node.get("taskGroups")
        pools = _read(pools) if isinstance(pools, str) else pools
        for pool in pools if isinstance(pools, list) else ():
            yield _POOL, _object(pool).get("id")
            yield _POOL, _object(pool).get("name") if isinstance(pool, Mapping) else pool
        yield _POOL, node.get("taskGroupId")


def _numbers(given: Any, known: Mapping[int, str]) -> Iterator[int]:
    """Yield the numbers of the objects with this id, as a number or as digits, or this name."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        return
    text = str(given).strip()
    if text.isascii() and text.isdecimal() and int(text[:20]) <= _LARGEST and int(text) in known:
        yield int(text)
    yield from (number for number, name in known.items() if name == text)
