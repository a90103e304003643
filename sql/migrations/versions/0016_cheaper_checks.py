"""The same CHECKs and trigger conditions of runs and attempts in a form that costs less to parse.

PostgreSQL parses the tree of each of them for each statement that writes a row. A list of codes is
a node for each code there, an array is one. The names stay, and what they allow.

`task_instance_index` goes: no query names a definition's attempts, and each attempt wrote it four
times.
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"

_CODES: dict[str, dict[str, int]] = {
    # Each from 0 to the number, without it.
    "t_ds_process_instance": {
        "state": 18,
        "recovery": 2,
        "command_type": 14,
        "task_depend_type": 3,
        "failure_strategy": 2,
        "warning_type": 5,
        "flag": 2,
        "is_sub_process": 2,
        "process_instance_priority": 5,
        "timeout_strategy": 3,
        "timeout_flag": 2,
        "execution_type": 4,
    },
    "t_ds_task_instance": {
        "state": 18,
        "alert_flag": 2,
        "flag": 2,
        "task_instance_priority": 5,
        "timeout_strategy": 3,
    },
}
_ENDED = "state = ANY ('{3,5,6,7,9,13}'::smallint[])"
_FINISHED = "state = ANY ('{3,5,6,7,8,9,13}'::smallint[])"
_OTHERS = {
    "t_ds_process_instance": {
        "wanted_state": "wanted_state = ANY ('{3,5,6}'::smallint[])",
        "ended_has_end_time": f"NOT {_ENDED} OR end_time IS NOT NULL",
    },
    "t_ds_task_instance": {
        "wanted_state": "wanted_state = ANY ('{3,9}'::smallint[])",
        "finished_has_end_time": f"NOT {_FINISHED} OR end_time IS NOT NULL",
        "superseded_is_finished": f"flag = 1 OR {_FINISHED}",
        "settled_is_finished": f"NOT settled OR {_FINISHED}",
    },
}
_TRIGGERS = (
    "DROP TRIGGER orcaflow_task_finished ON t_ds_task_instance",
    f"""
    CREATE TRIGGER orcaflow_task_finished
        AFTER UPDATE OF state ON t_ds_task_instance
        FOR EACH ROW
        WHEN (NEW.{_FINISHED} AND NEW.state <> OLD.state AND NOT NEW.settled)
        EXECUTE FUNCTION orcaflow_notify_task('orcaflow_task')
    """,
    "DROP TRIGGER orcaflow_process_ended ON t_ds_process_instance",
    f"""
    CREATE TRIGGER orcaflow_process_ended
        AFTER UPDATE OF state ON t_ds_process_instance
        FOR EACH ROW
        WHEN (NEW.{_ENDED} AND NEW.state <> OLD.state)
        EXECUTE FUNCTION orcaflow_notify_id('orcaflow_process')
    """,
)


def upgrade() -> None:
    for table, codes in _CODES.items():
        checks = {
            column: f"{column} = ANY ('{{{','.join(map(str, range(number)))}}}'::smallint[])"
            for column, number in codes.items()
        } | _OTHERS[table]
        # In one statement, which reads the table once.
        op.execute(
            f"ALTER TABLE {table} "
            + ", ".join(
                f"DROP CONSTRAINT {table}_{name}_check,"
                f" ADD CONSTRAINT {table}_{name}_check CHECK ({condition})"
                for name, condition in checks.items()
            )
        )
    for statement in _TRIGGERS:
        op.execute(statement)
    op.execute("DROP INDEX task_instance_index")
