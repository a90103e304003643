"""Shares of definitions with other projects; existing references between projects get one each.

Before this revision a definition could name any definition of the cluster. Since this revision it
needs a share to name a definition of another project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from alembic import op
from sqlalchemy import Connection, text

revision = "0027"
down_revision = "0026"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_share (
        object_type VARCHAR(16) NOT NULL,
        object_id INTEGER NOT NULL,
        project_id INTEGER NOT NULL,
        user_id INTEGER NOT NULL,
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_share_pk PRIMARY KEY (object_type, object_id, project_id),
        CONSTRAINT t_ds_share_project_id_fk FOREIGN KEY(project_id)
        REFERENCES t_ds_project (id) ON DELETE CASCADE,
        CONSTRAINT t_ds_share_object_type_check CHECK (object_type IN ('definition', 'dataset'))
    )
    """,
    "CREATE INDEX t_ds_share_project_index ON t_ds_share (project_id, object_type)",
)
_PAGE = 200
# Live runs have separate copies of their definitions.
_DOCUMENTS = (
    """
    SELECT id, project_id, process_definition_json AS document
    FROM t_ds_process_definition
    WHERE id > :after AND process_definition_json ~ '"(SUB_PROCESS|DEPENDENT)"'
    ORDER BY id LIMIT :page
    """,
    """
    SELECT run.id, definition.project_id, run.process_instance_json AS document
    FROM t_ds_process_instance AS run
    JOIN t_ds_process_definition AS definition ON definition.id = run.process_definition_id
    WHERE run.id > :after AND run.end_time IS NULL
    AND run.process_instance_json ~ '"(SUB_PROCESS|DEPENDENT)"'
    ORDER BY run.id LIMIT :page
    """,
)
# A definition of the referring project needs no share. A name refers to the project's definition
# with that name or, if it does not exist, to the definition with the lowest id and that name.
_SHARE = """
    INSERT INTO t_ds_share (object_type, object_id, project_id, user_id)
    SELECT 'definition', target.id, asking.id, 0
    FROM t_ds_process_definition AS target
    JOIN t_ds_project AS asking ON asking.id = :project
    WHERE target.project_id <> asking.id
    AND (
        target.id = ANY (:ids)
        OR target.id IN (
            SELECT min(id) FROM t_ds_process_definition
            WHERE name = ANY (:names)
            GROUP BY name
            HAVING NOT bool_or(project_id = :project)
        )
    )
    ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
    db = op.get_bind()
    for query in _DOCUMENTS:
        _share(db, query)


def _share(db: Connection, query: str) -> None:
    after = 0
    while rows := db.execute(text(query), {"after": after, "page": _PAGE}).all():
        after = rows[-1].id
        for row in rows:
            found = list(_references(row.document))
            ids = sorted({each for each in found if isinstance(each, int)})
            names = sorted({each for each in found if isinstance(each, str)})
            if ids or names:
                values = {"project": row.project_id, "ids": ids, "names": names}
                db.execute(text(_SHARE), values)


def _references(document: str) -> Iterator[int | str]:
    """Yield the ids and names of definitions in a document; nothing from unreadable parts."""
    for node in _list(_object(document).get("tasks")):
        node = _object(node)
        kind = str(node.get("type", "")).upper()
        if kind == "SUB_PROCESS":
            params = _object(node.get("params"))
            yield from _named(params, "processDefinitionId", "processDefinitionName")
        elif kind == "DEPENDENT":
            for group in _list(_object(node.get("dependence")).get("dependTaskList")):
                for item in _list(_object(group).get("dependItemList")):
                    yield from _named(_object(item), "definitionId", "definitionName")


def _named(holder: dict[str, Any], id_key: str, name_key: str) -> Iterator[int | str]:
    number, name = holder.get(id_key), holder.get(name_key)
    if isinstance(number, str) and number.strip().isascii() and number.strip().isdigit():
        number = int(number)
    if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**31:
        yield number
    elif isinstance(name, str) and name and "\0" not in name:
        yield name


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
