"""The project of a command after the root of its tree was deleted."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"

_FUNCTION = """\
CREATE OR REPLACE FUNCTION orcaflow_find_project() RETURNS trigger LANGUAGE plpgsql AS $$
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
            WHERE i.id = run), (
            SELECT d.project_id FROM t_ds_process_instance i
            JOIN t_ds_process_definition d ON d.id = i.process_definition_id
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
_FILL = """\
UPDATE t_ds_command c SET project_id = found.project_id
FROM (
    SELECT waiting.id, d.project_id FROM t_ds_command waiting
    LEFT JOIN t_ds_task_instance task ON task.id = NULLIF(waiting.parent_task_instance_id, 0)
    JOIN t_ds_process_instance i ON i.root_id <> 0 AND i.id = CASE waiting.parent_task_instance_id
        WHEN 0 THEN waiting.process_instance_id ELSE task.process_instance_id END
    JOIN t_ds_process_definition d ON d.id = i.process_definition_id
    WHERE NOT EXISTS (
        SELECT FROM t_ds_process_instance root
        JOIN t_ds_process_definition top ON top.id = root.process_definition_id
        WHERE root.id = i.root_id)
) found
WHERE c.id = found.id AND c.project_id <> found.project_id"""


def upgrade() -> None:
    op.execute(_FUNCTION)
    op.execute(_FILL)
