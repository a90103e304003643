"""The rule of complements' dates, for definitions and complements, and the moment of each run.

Until this revision a setting of the cluster decided, and the first command of a run gave its
moment. Existing rows keep the rule of that setting (`complement_uses_chosen_date`). Daemons of the
former version still follow it. They write no moment into the row of a run that they start for a
complement, so newer workers count from its schedule time. Pause complements during the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from alembic import context, op
from sqlalchemy import Connection, text

revision = "0031"
down_revision = "0030"

_WORDS = "('schedule_time', 'business_date')"
_STATEMENTS = (
    "ALTER TABLE t_ds_process_definition ADD COLUMN complement_date_rule VARCHAR(16)",
    f"""
    ALTER TABLE t_ds_process_definition
    ADD CONSTRAINT t_ds_process_definition_complement_date_rule_check
    CHECK (complement_date_rule IN {_WORDS})
    """,
    """
    ALTER TABLE t_ds_complement
    ADD COLUMN date_rule VARCHAR(16) DEFAULT 'business_date' NOT NULL
    """,
    f"""
    ALTER TABLE t_ds_complement
    ADD CONSTRAINT t_ds_complement_date_rule_check CHECK (date_rule IN {_WORDS})
    """,
    "ALTER TABLE t_ds_process_instance ADD COLUMN business_time TIMESTAMP WITH TIME ZONE",
)
# During the update, queries of the former version use the table's other index by definition.
_INDEXES = (
    "DROP INDEX t_ds_process_instance_moment_idx",
    """
    CREATE INDEX t_ds_process_instance_business_idx ON t_ds_process_instance
    (process_definition_id, coalesce(business_time, schedule_time, start_time))
    """,
)
_DATES = """
    SELECT DISTINCT schedule_time, timezone_id FROM t_ds_process_instance
    WHERE split_part(coalesce(history_cmd, ''), ',', 1) = 'COMPLEMENT_DATA'
    AND schedule_time IS NOT NULL
"""
_MOVE = """
    UPDATE t_ds_process_instance AS run SET business_time = dated.business_time
    FROM unnest(
        CAST(:schedule_times AS timestamptz[]),
        CAST(:zones AS text[]),
        CAST(:business_times AS timestamptz[])
    ) AS dated (schedule_time, timezone_id, business_time)
    WHERE split_part(coalesce(run.history_cmd, ''), ',', 1) = 'COMPLEMENT_DATA'
    AND run.schedule_time = dated.schedule_time
    AND run.timezone_id IS NOT DISTINCT FROM dated.timezone_id
"""


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
    attributes = context.config.attributes
    chosen = attributes.get("complement_uses_chosen_date", True)
    db = op.get_bind()
    rule = {"rule": "business_date" if chosen else "schedule_time"}
    db.execute(text("UPDATE t_ds_process_definition SET complement_date_rule = :rule"), rule)
    db.execute(text("UPDATE t_ds_complement SET date_rule = :rule"), rule)
    if chosen:
        _give_moments(db, attributes.get("time_zone") or ZoneInfo("UTC"))
    for statement in _INDEXES:
        op.execute(statement)


def _give_moments(db: Connection, cluster: ZoneInfo) -> None:
    moved = list(_moved(db, cluster))
    if moved:
        schedule_times, zones, business_times = zip(*moved, strict=True)
        db.execute(
            text(_MOVE),
            {
                "schedule_times": list(schedule_times),
                "zones": list(zones),
                "business_times": list(business_times),
            },
        )


def _moved(db: Connection, cluster: ZoneInfo) -> Iterator[tuple[datetime, str | None, datetime]]:
    """Yield the dates of complements by zone, and the same time on the clock a day later."""
    for row in db.execute(text(_DATES)):
        try:
            zone = cluster if row.timezone_id is None else ZoneInfo(row.timezone_id)
            local = row.schedule_time.astimezone(zone)
            wall = (local.replace(tzinfo=None) + timedelta(days=1)).replace(tzinfo=zone)
            shown = wall.astimezone(ZoneInfo("UTC")).astimezone(zone)
        except (KeyError, ValueError, OSError, OverflowError):
            continue  # No worker could have run a task of it.
        yield row.schedule_time, row.timezone_id, shown if shown.date() == wall.date() else wall
