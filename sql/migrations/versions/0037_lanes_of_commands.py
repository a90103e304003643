"""The project of each waiting command, and indexes by which the projects take turns."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"

_ABOUT_RUNS = "2, 8, 9"
_TURN = (
    "((LEAST(update_time, TIMESTAMPTZ '9999-01-01 00:00:00+00') AT TIME ZONE 'UTC')"
    " + LEAST(GREATEST(COALESCE(process_instance_priority, 2), 0), 4) * INTERVAL '1 minute')"
)
_LANES = {
    "start": "parent_task_instance_id = 0 AND complement_date_id = 0",
    "child": "parent_task_instance_id <> 0",
    "date": "parent_task_instance_id = 0 AND complement_date_id <> 0",
}
_FUNCTION = """\
CREATE FUNCTION orcaflow_find_project() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run integer := NULLIF(NEW.process_instance_id, 0);
BEGIN
    NEW.project_id := 0;
    IF NEW.parent_task_instance_id <> 0 THEN
        run := (SELECT process_instance_id FROM t_ds_task_instance
            WHERE id = NEW.parent_task_instance_id);
    END IF;
    IF run IS NOT NULL THEN
        NEW.project_id := COALESCE((
            SELECT d.project_id FROM t_ds_process_instance i
            JOIN t_ds_process_instance root
                ON root.id = CASE i.root_id WHEN 0 THEN i.id ELSE i.root_id END
            JOIN t_ds_process_definition d ON d.id = root.process_definition_id
            WHERE i.id = run), 0);
    END IF;
    IF NEW.project_id = 0 THEN
        NEW.project_id := COALESCE((
            SELECT d.project_id FROM t_ds_process_definition d
            WHERE d.id = NEW.process_definition_id), 0);
    END IF;
    RETURN NEW;
EXCEPTION WHEN insufficient_privilege THEN
    NEW.project_id := 0;
    RETURN NEW;
END $$"""
_TRIGGER = """\
CREATE TRIGGER orcaflow_command_of_project
    BEFORE INSERT ON t_ds_command
    FOR EACH ROW
    EXECUTE FUNCTION orcaflow_find_project()"""
_FILL = """\
UPDATE t_ds_command c SET project_id = COALESCE(
    (
        SELECT d.project_id FROM t_ds_process_instance i
        JOIN t_ds_process_instance root
            ON root.id = CASE i.root_id WHEN 0 THEN i.id ELSE i.root_id END
        JOIN t_ds_process_definition d ON d.id = root.process_definition_id
        WHERE i.id = CASE c.parent_task_instance_id
            WHEN 0 THEN NULLIF(c.process_instance_id, 0)
            ELSE (SELECT process_instance_id FROM t_ds_task_instance
                WHERE id = c.parent_task_instance_id)
        END
    ),
    (SELECT d.project_id FROM t_ds_process_definition d WHERE d.id = c.process_definition_id),
    0)"""


def upgrade() -> None:
    op.execute("ALTER TABLE t_ds_command ADD COLUMN project_id INTEGER DEFAULT 0 NOT NULL")
    op.execute(_FUNCTION)
    op.execute(_TRIGGER)
    op.execute(_FILL)
    for name, condition in _LANES.items():
        op.execute(
            f"CREATE INDEX t_ds_command_{name}_lane_idx ON t_ds_command"
            f" (project_id, {_TURN}, process_instance_priority, id)"
            f" WHERE {condition} AND COALESCE(command_type, -1) NOT IN ({_ABOUT_RUNS})"
        )
