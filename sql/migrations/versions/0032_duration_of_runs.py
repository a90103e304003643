"""The moment from which the duration of a run counts, without its idle time before a restart.

Existing runs that were restarted get it from their attempts: the time before the last restart
counts as far as an attempt was at work.
"""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"

_FILL = """
    UPDATE t_ds_process_instance AS run
    SET duration_from = run.restart_time - coalesce((
        SELECT sum(upper(span) - lower(span))
        FROM (
            SELECT unnest(range_agg(tstzrange(start_time, least(end_time, run.restart_time))))
                AS span
            FROM t_ds_task_instance
            WHERE process_instance_id = run.id
            AND start_time >= run.start_time
            AND least(end_time, run.restart_time) > start_time
        ) AS former
    ), interval '0')
    WHERE run.restart_time > run.start_time
"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE t_ds_process_instance ADD COLUMN duration_from TIMESTAMP WITH TIME ZONE"
    )
    op.execute(_FILL)
