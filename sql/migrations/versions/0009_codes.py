"""The codes of definitions and projects; definitions that were imported with one keep it."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_TABLES = ("t_ds_process_definition", "t_ds_project")
_LARGEST_ID = 2**31 - 1
_LARGEST_CODE = 2**63 - 1
_OWN_CODE = """\
CREATE FUNCTION orcaflow_own_code() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.code := NEW.id;
    RETURN NEW;
END $$"""
_CODED = """\
CREATE TRIGGER {name}
    BEFORE INSERT ON {table}
    FOR EACH ROW
    WHEN (NEW.code IS NULL)
    EXECUTE FUNCTION orcaflow_own_code()"""

_RENUMBERED = """\
CREATE TRIGGER orcaflow_definition_renumbered
    BEFORE UPDATE OF id ON t_ds_process_definition
    FOR EACH ROW
    WHEN (NEW.id <> OLD.id AND NEW.code = OLD.id)
    EXECUTE FUNCTION orcaflow_own_code()"""


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("code", sa.BigInteger(), nullable=True))
        coded = sa.table(table, sa.column("id"), sa.column("code"))
        op.execute(sa.update(coded).values(code=coded.c.id))
    _keep_codes()
    for table in _TABLES:
        op.alter_column(table, "code", nullable=False)
        op.create_unique_constraint(op.f(f"{table}_code_key"), table, ["code"])
        op.create_check_constraint(
            op.f(f"{table}_code_check"), table, "code = id OR code > 2147483647"
        )
    op.execute(_OWN_CODE)
    op.execute(_CODED.format(name="orcaflow_definition_coded", table=_TABLES[0]))
    op.execute(_RENUMBERED)
    op.execute(_CODED.format(name="orcaflow_project_coded", table=_TABLES[1]))


def _keep_codes() -> None:
    """Give definitions the codes that their exports had; of several with one, the first has it."""
    db = op.get_bind()
    definitions = sa.table(
        "t_ds_process_definition",
        sa.column("id"),
        sa.column("code"),
        sa.column("process_definition_json"),
    )
    kept: dict[int, int] = {}
    rows = db.execute(
        sa.select(definitions.c.id, definitions.c.process_definition_json)
        .where(definitions.c.process_definition_json.like('%"code": %'))
        .order_by(definitions.c.id)
    )
    for row in rows:
        code = _code_in(row.process_definition_json)
        if code is not None:
            kept.setdefault(code, row.id)
    for code, number in kept.items():
        db.execute(sa.update(definitions).where(definitions.c.id == number).values(code=code))


def _code_in(text: str) -> int | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    code = document.get("code") if isinstance(document, dict) else None
    if isinstance(code, bool) or not isinstance(code, int):
        return None
    return code if _LARGEST_ID < code <= _LARGEST_CODE else None
