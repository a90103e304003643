"""Documents in rows are encrypted on every write path, and read back unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, Text, bindparam, cast, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY

from common.datasource_keys import DatasourceKeys
from common.parameter_keys import ParameterKeys
from common.sealed_tokens import MARK
from common.store.connect import engine
from common.store.fixed_statement import FixedStatement
from common.store.people.sealed_columns import sealed_columns
from common.store.tables import command, schedule, supervisor, supervisor_runtime
from common.store.yielding import YieldingConnection

SECRET = json.dumps({"password": "planted"})


@pytest.fixture
def keyed(migrated_url: str, tmp_path: Path) -> Engine:
    file = DatasourceKeys(tmp_path / "datasource.key")
    file.make(for_parameters=True)
    return engine(migrated_url, keys=ParameterKeys(file))


def stored(url: str, statement: str) -> list[str]:
    raw = engine(url)
    with raw.connect() as db:
        found = [each for (each,) in db.execute(text(statement))]
    raw.dispose()
    return found


def test_values_rows_lists_and_json_are_encrypted_and_read_back(
    keyed: Engine, migrated_url: str
) -> None:
    with keyed.begin() as db:
        db.execute(insert(command).values(command_type=0, command_param=SECRET))
        db.execute(insert(command), [{"command_type": 0, "command_param": SECRET}] * 3)
        db.execute(
            update(command).where(command.c.id == bindparam("key")).values(command_param=SECRET),
            [{"key": 1}, {"key": 2}],
        )
        lists = FixedStatement(
            insert(command).from_select(
                ["command_param"], select(func.unnest(cast(bindparam("texts"), ARRAY(Text))))
            )
        )
        lists.execute(db, {"texts": [None, SECRET, "plain"]})
        db.exec_driver_sql("UPDATE t_ds_command SET command_param = %s WHERE id = 1", (SECRET,))
        spec = {"consumerProperties": {"sasl.password": {"password": "planted", "n": 1}}}
        db.execute(insert(supervisor_runtime).values(id="s", process_definition_id=1))
        db.execute(insert(supervisor).values(id="s", version=1, spec=spec))
        read = db.scalars(select(command.c.command_param).order_by(command.c.id)).all()
        assert db.scalar(select(supervisor.c.spec)) == spec
        equal = select(func.count()).where(command.c.command_param == SECRET)
        assert db.scalar(equal) == 5
    assert read == [SECRET] * 4 + [None, SECRET, "plain"]
    written = stored(migrated_url, "SELECT each::text FROM t_ds_command each")
    written += stored(migrated_url, "SELECT spec::text FROM t_ds_supervisor")
    assert not [each for each in written if "planted" in each]
    assert sum(MARK in each for each in written) == 6
    keyed.dispose()


def test_connections_of_greenlets_and_of_single_statements_do_the_same(
    migrated_url: str, tmp_path: Path
) -> None:
    file = DatasourceKeys(tmp_path / "datasource.key")
    file.make(for_parameters=True)
    for options in ({"connection_factory": YieldingConnection}, {"by_statement": True}):
        made = engine(migrated_url, keys=ParameterKeys(file), **options)  # type: ignore[arg-type]
        with made.begin() as db:
            db.execute(insert(command).values(command_type=0, command_param=SECRET))
            query = FixedStatement(select(command.c.command_param), prepared=True)
            assert set(query.execute(db, {}).scalars()) == {SECRET}
        made.dispose()
    assert all(
        MARK in each for each in stored(migrated_url, "SELECT command_param FROM t_ds_command")
    )


def test_a_host_without_the_key_hands_on_what_it_can_not_read(
    keyed: Engine, migrated_url: str, tmp_path: Path
) -> None:
    with keyed.begin() as db:
        db.execute(insert(command).values(command_type=0, command_param=SECRET))
    other = engine(migrated_url, keys=ParameterKeys(DatasourceKeys(tmp_path / "none")))
    with other.begin() as db:
        param = db.scalar(select(command.c.command_param))
        assert MARK in (param or "")
        columns = {"process_definition_id": 1, "crontab": "0 0 0 * * ?", "start_params": param}
        db.execute(insert(schedule).values(columns))
    with keyed.connect() as db:
        assert db.scalar(select(schedule.c.start_params)) == SECRET
    other.dispose()
    keyed.dispose()


def test_every_column_with_documents_is_one_that_is_encrypted_later_too() -> None:
    names = {each.name for each in sealed_columns()}
    assert {
        "t_ds_command.command_param",
        "t_ds_complement.start_params",
        "t_ds_definition_draft_save.content",
        "t_ds_error_command.command_param",
        "t_ds_process_definition.global_params",
        "t_ds_process_definition.process_definition_json",
        "t_ds_process_instance.command_param",
        "t_ds_process_instance.global_params",
        "t_ds_process_instance.process_instance_json",
        "t_ds_schedules.start_params",
        "t_ds_stream_task.assignment",
        "t_ds_supervisor.spec",
        "t_ds_task_instance.input_pool",
        "t_ds_task_instance.task_json",
        "t_ds_task_instance.var_pool",
    } <= names
