"""Commands about instances, tasks, pools and data sources, on a real database."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select

from common.config import load
from common.model.cluster import NodeKind
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.store.tables import (
    command,
    datasource,
    process_definition,
    process_instance,
    relation_process_instance,
    task_group_queue,
    task_instance,
)
from operations.members import registry
from tests.conftest import ZookeeperRoot
from tests.integration.conftest import Cli

NOW = datetime.now(UTC)


def parsed(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


def a_definition(db: Engine, **values: Any) -> int:
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_definition)
            .values({"name": "nightly", "release_state": 1} | values)
            .returning(process_definition.c.id)
        ).scalar_one()
    return made


def an_instance(db: Engine, state: ProcessState, **values: Any) -> int:
    tasks = [
        {"name": name, "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": above}
        for name, above in (("a", []), ("b", ["a"]))
    ]
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_instance)
            .values(
                {
                    "name": "nightly-1",
                    "process_definition_id": 1,
                    "state": int(state),
                    "command_type": 0,
                    "executor_id": 1,
                    "process_instance_json": json.dumps({"tasks": tasks}),
                    "end_time": NOW if state.is_terminal else None,
                    "host": None if state.is_terminal else "127.0.0.1:5678",
                    "owner_incarnation": None if state.is_terminal else 1,
                }
                | values
            )
            .returning(process_instance.c.id)
        ).scalar_one()
    return made


def an_attempt(db: Engine, instance: int, state: TaskState, **values: Any) -> int:
    running = state is TaskState.RUNNING
    with db.begin() as connection:
        made: int = connection.execute(
            insert(task_instance)
            .values(
                {
                    "name": "a",
                    "task_type": "SHELL",
                    "process_definition_id": 1,
                    "process_instance_id": instance,
                    "task_json": "{}",
                    "state": int(state),
                    "submit_time": NOW,
                    "start_time": NOW,
                    "end_time": NOW if state.is_finished else None,
                    "host": "127.0.0.1:1234" if running else None,
                    "worker_incarnation": 7 if running else None,
                }
                | values
            )
            .returning(task_instance.c.id)
        ).scalar_one()
    return made


def commands(db: Engine) -> list[tuple[CommandType, dict[str, str], int]]:
    with db.connect() as connection:
        rows = connection.execute(select(command).order_by(command.c.id)).all()
    return [
        (CommandType(row.command_type), json.loads(row.command_param), row.process_instance_id)
        for row in rows
    ]


VERBS = (
    ("pause", ProcessState.RUNNING, CommandType.PAUSE),
    ("stop", ProcessState.SERIAL_WAIT, CommandType.STOP),
    ("resume", ProcessState.PAUSE, CommandType.RECOVER_SUSPENDED_PROCESS),
    ("resume", ProcessState.STOP, CommandType.RECOVER_SUSPENDED_PROCESS),
    ("recover", ProcessState.STOP, CommandType.RECOVER_SUSPENDED_PROCESS),
    ("recover", ProcessState.FAILURE, CommandType.START_FAILURE_TASK_PROCESS),
    ("rerun --failed", ProcessState.FAILURE, CommandType.START_FAILURE_TASK_PROCESS),
    ("rerun", ProcessState.SUCCESS, CommandType.REPEAT_RUNNING),
    ("rerun --all", ProcessState.FAILURE, CommandType.REPEAT_RUNNING),
)


def test_each_verb_is_a_command_row(cli: Cli, db: Engine) -> None:
    for verb, state, kind in VERBS:
        number = an_instance(db, state)
        assert cli("instance", *verb.split(), str(number))[0] == 0, verb
        found, param, _ = commands(db)[-1]
        assert (found, param) == (kind, {"ProcessInstanceId": str(number)}), verb


FORBIDDEN = (
    ("pause", ProcessState.SUCCESS, "has ended already: SUCCESS"),
    ("stop", ProcessState.STOP, "has ended already: STOP"),
    ("resume", ProcessState.RUNNING, "stop it first: orcaflow instance stop"),
    ("resume", ProcessState.FAILURE, "go on where it ended: orcaflow instance recover"),
    ("recover", ProcessState.SUCCESS, "run all of it again: orcaflow instance rerun"),
    ("rerun", ProcessState.RUNNING, "only one that has ended"),
)


def test_a_command_that_the_state_forbids_is_refused_with_the_cure(cli: Cli, db: Engine) -> None:
    for verb, state, cure in FORBIDDEN:
        code, out, err = cli("instance", verb, str(an_instance(db, state)))
        assert (code, out) == (4, ""), verb
        assert cure in err, verb
    assert commands(db) == []


def test_of_two_recoveries_the_second_is_refused_and_the_first_named(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.FAILURE)
    assert cli("instance", "recover", "1")[0] == 0
    code, _, err = cli("instance", "rerun", "1")
    assert code == 4
    assert "is being recovered already: command 1 (START_FAILURE_TASK_PROCESS)" in err
    assert len(commands(db)) == 1


def test_a_command_to_a_sub_process_goes_to_the_root_and_says_so(cli: Cli, db: Engine) -> None:
    root = an_instance(db, ProcessState.FAILURE)
    child = an_instance(db, ProcessState.STOP, is_sub_process=1, root_id=root)
    code, _, err = cli("instance", "recover", str(child))
    assert code == 0
    assert f"the root of its tree, {root}" in err
    assert commands(db) == [
        (CommandType.START_FAILURE_TASK_PROCESS, {"ProcessInstanceId": str(root)}, root)
    ]
    code, _, err = cli("instance", "execute", str(child), "--tasks", "a")
    assert code == 4
    assert "single tasks can be executed in the root of a tree only" in err


def test_chosen_tasks_are_executed_with_their_chosen_neighbours(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.SUCCESS)
    assert cli("instance", "execute", "1", "--tasks", "a, b", "--post")[0] == 0
    with db.connect() as connection:
        row = connection.execute(select(command)).one()
    assert (row.command_type, row.task_depend_type, row.process_instance_id) == (12, 2, 1)
    assert json.loads(row.command_param)["StartNodeNameList"] == "a,b"
    code, _, err = cli("instance", "execute", "1", "--tasks", "aa")
    assert code == 3
    assert "did you mean 'a'?" in err
    assert cli("instance", "execute", "1", "--tasks", "a", "--pre", "--post")[0] == 2
    assert cli("instance", "execute", "1", "--tasks", ",")[0] == 2


def test_waiting_for_a_recovery_that_nobody_takes_ends_with_the_time_out(
    cli: Cli, db: Engine
) -> None:
    an_instance(db, ProcessState.FAILURE)
    code, _, err = cli("instance", "recover", "1", "--wait", "--timeout", "0.1s")
    assert code == 124
    assert "no master has taken command 1" in err


def test_a_failed_attempt_of_an_ended_run_is_declared_good(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.FAILURE)
    an_attempt(db, 1, TaskState.FAILURE, reason="exit code 3")
    row = parsed(cli("task", "force-success", "1", "-o", "json"))
    assert (row["state"], row["state_code"]) == ("FORCED_SUCCESS", 13)
    assert "it was FAILURE: exit code 3" in row["reason"]


def test_no_other_attempt_is_declared_good(cli: Cli, db: Engine) -> None:
    for run, state, flag, cause in (
        (ProcessState.RUNNING, TaskState.FAILURE, 1, "is RUNNING"),
        (ProcessState.FAILURE, TaskState.SUCCESS, 1, "it is SUCCESS"),
        (ProcessState.FAILURE, TaskState.FAILURE, 0, "another attempt has taken its place"),
    ):
        attempt = an_attempt(db, an_instance(db, run), state, flag=flag)
        code, _, err = cli("task", "force-success", str(attempt))
        assert code == 4, cause
        assert cause in err


def test_the_execution_type_is_set_shown_and_exported(cli: Cli, db: Engine, tmp_path: Path) -> None:
    a_definition(db, process_definition_json='{"tasks": []}')
    (row,) = parsed(
        cli("definition", "set", "nightly", "--execution-type", "serial-wait", "-o", "json")
    )
    assert (row["execution_type"], row["changed"]) == ("SERIAL_WAIT", True)
    assert parsed(cli("definition", "show", "nightly", "-o", "json"))["execution_type"] == (
        "SERIAL_WAIT"
    )
    assert parsed(cli("definition", "export", "nightly"))["executionType"] == "SERIAL_WAIT"
    assert cli("definition", "set", "nightly", "--execution-type", "sometimes")[0] == 2
    assert cli("definition", "set", "nobody", "--execution-type", "parallel")[0] == 3


def test_a_pool_is_made_resized_and_removed(cli: Cli) -> None:
    assert parsed(cli("pool", "create", "db", "--size", "2", "-o", "json")) == {
        "id": 1,
        "name": "db",
        "size": 2,
    }
    code, _, err = cli("pool", "create", "db", "--size", "3")
    assert code == 4
    assert "orcaflow pool resize" in err
    assert parsed(cli("pool", "resize", "db", "--size", "5", "-o", "json"))["size"] == 5
    assert cli("pool", "resize", "bd", "--size", "5")[0] == 3
    assert cli("pool", "remove", "db")[0] == 0
    assert cli("pool", "remove", "db")[0] == 3


def test_a_pool_of_an_absurd_size_is_refused_with_the_limits(cli: Cli) -> None:
    for size in ("0", "-1", "1000001"):
        code, _, err = cli("pool", "create", "db", "--size", size)
        assert code == 2
        assert "from 1 to 1000000 slots" in err
    assert cli("pool", "create", "db", "--size", "many")[0] == 2
    assert cli("pool", "create", " db", "--size", "1")[0] == 2


def test_one_slot_is_no_slots(cli: Cli) -> None:
    assert cli("pool", "create", "db", "--size", "1")[1] == "pool db has 1 slot\n"
    assert cli("pool", "show", "db")[1] == "db: 0 of 1 slot is taken, 0 tasks wait\n"


def test_a_pool_lists_its_holders_and_waiters_and_is_not_removed_while_it_has_any(
    cli: Cli, db: Engine
) -> None:
    cli("pool", "create", "db", "--size", "3")
    an_instance(db, ProcessState.RUNNING)
    holder = an_attempt(db, 1, TaskState.RUNNING)
    waiter = an_attempt(db, 1, TaskState.WAITING_DEPEND, name="b")
    ended = an_attempt(db, 1, TaskState.SUCCESS, name="c")
    with db.begin() as connection:
        for task, status, weight in ((holder, 1, 2), (waiter, -1, 2), (ended, 1, 3)):
            connection.execute(
                insert(task_group_queue).values(
                    task_id=task, group_id=1, status=status, weight=weight, process_id=1
                )
            )
    (row,) = parsed(cli("pool", "list", "-o", "json"))
    # An ended attempt holds no slots, whatever its row says: slots can't leak.
    assert (row["used"], row["free"], row["waiting"]) == (2, 1, 1)
    shown = parsed(cli("pool", "show", "db", "-o", "json"))
    assert [each["task"] for each in shown["holders"]] == ["a"]
    assert [each["task"] for each in shown["waiters"]] == ["b"]
    code, _, err = cli("pool", "remove", "db")
    assert code == 4
    assert "task 'a' of process instance 1 holds" in err
    causes = parsed(cli("task", "why", str(waiter), "-o", "json"))
    assert [each["cause"] for each in causes][-3:] == ["pool", "pool", "running"]


def test_a_password_comes_from_standard_input_and_is_never_shown(
    cli: Cli, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hush hush\n"))
    where = ("--address", "db.local", "--database", "dw", "--user", "etl")
    more = ("--password-stdin", "--other", "sslmode=require")
    code, out, err = cli("datasource", "create", "dw", *where, *more)
    assert code == 0
    with db.connect() as connection:
        params = json.loads(connection.scalar(select(datasource.c.connection_params)) or "")
    assert params == {
        "address": "jdbc:postgresql://db.local:5432",
        "database": "dw",
        "jdbcUrl": "jdbc:postgresql://db.local:5432/dw",
        "user": "etl",
        "password": "hush hush",
        "other": "sslmode=require",
    }
    (row,) = parsed(cli("datasource", "list", "-o", "json"))
    assert (row["kind"], row["address"], row["has_password"]) == (
        "postgresql",
        "db.local:5432",
        True,
    )
    assert "hush" not in out + err + json.dumps(row)


def test_a_password_on_the_command_line_is_refused(cli: Cli) -> None:
    code, _, err = cli("datasource", "create", "dw", "--url", "mysql+pymysql://u:hush@h/d")
    assert code == 2
    assert "hush" not in err
    assert "--password-env" in err


def test_a_data_source_is_tried_from_here(
    cli: Cli, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = migrated_url.replace("postgresql+psycopg2", "postgresql")
    assert cli("datasource", "create", "own", "--url", plain)[0] == 0
    assert parsed(cli("datasource", "test", "own", "-o", "json"))["server"].startswith("postgresql")
    cli("datasource", "create", "gone", "--url", f"sqlite:///{tmp_path}/gone.db")
    code, _, err = cli("datasource", "test", "gone")
    assert code == 5
    assert "there is no file" in err
    # The place where a worker looks for it: the resources that tasks share.
    (tmp_path / "home" / "data").mkdir(parents=True)
    (tmp_path / "home" / "data" / "near.db").touch()
    cli("datasource", "create", "near", "--url", "sqlite:///near.db")
    assert cli("datasource", "test", "near")[0] == 0
    monkeypatch.setenv("PW", "hush")
    cli(
        "datasource",
        "create",
        "off",
        "--url",
        "postgresql://u@127.0.0.1:1/x",
        "--password-env",
        "PW",
    )
    code, out, err = cli("datasource", "test", "off")
    assert code == 5
    assert "hush" not in out + err
    assert "refused" in err


def test_a_data_source_that_a_definition_names_stays(cli: Cli, db: Engine) -> None:
    cli("datasource", "create", "own", "--url", "sqlite:////srv/x.db")
    task = {"name": "q", "type": "SQL", "params": {"datasource": 1, "sql": "select 1"}}
    a_definition(db, process_definition_json=json.dumps({"tasks": [task]}))
    code, _, err = cli("datasource", "remove", "own")
    assert code == 4
    assert "'nightly'" in err
    assert cli("datasource", "create", "own", "--url", "sqlite:////srv/y.db")[0] == 4
    assert cli("datasource", "create", "own", "--url", "sqlite:////srv/y.db", "--replace")[0] == 0
    assert parsed(cli("datasource", "list", "-o", "json"))[0]["database"] == "/srv/y.db"


def test_rendering_reports_where_values_come_from_and_masks_secrets(cli: Cli, db: Engine) -> None:
    an_instance(
        db,
        ProcessState.RUNNING,
        global_params=json.dumps([{"prop": "db_password", "value": "s3cret!"}]),
        command_param=json.dumps({"StartParams": json.dumps({"who": "me"})}),
    )
    local = [{"prop": "who", "value": "you"}, {"prop": "count", "value": ""}]
    params = {"rawScript": "${who} ${count} ${db_password}", "localParams": local}
    an_attempt(
        db,
        1,
        TaskState.SUCCESS,
        task_json=json.dumps({"params": params}),
        input_pool=json.dumps([{"prop": "count", "value": "12"}]),
        var_pool=json.dumps(
            [{"prop": "api_token", "value": "abcdef"}, {"prop": "n", "value": "1"}]
        ),
    )
    code, out, _ = cli("task", "render", "1", "-o", "json")
    document = json.loads(out)
    assert code == 0
    assert document["params"] == {"rawScript": "me 12 ******"}
    assert document["origins"]["who"] == "start-up"
    assert document["origins"]["count"] == "upstream"
    assert document["origins"]["system.datetime"] == "built-in"
    assert document["put_out"] == {"api_token": "******", "n": "1"}
    assert "s3cret!" not in out


def test_why_follows_sub_processes_and_reports_that_zookeeper_did_not_answer(
    cli: Cli, db: Engine
) -> None:
    a_definition(db)
    parent = an_instance(db, ProcessState.RUNNING)
    wants = an_attempt(db, parent, TaskState.RUNNING, task_type="SUB_PROCESS", host=None)
    child = an_instance(db, ProcessState.RUNNING, root_id=parent, parent_task_instance_id=wants)
    due = NOW + timedelta(minutes=5)
    an_attempt(db, child, TaskState.DELAY_EXECUTION, due_at=due)
    with db.begin() as connection:
        connection.execute(
            insert(relation_process_instance).values(
                parent_process_instance_id=parent,
                parent_task_instance_id=wants,
                process_instance_id=child,
            )
        )
    causes = parsed(cli("instance", "why", str(parent), "-o", "json"))
    assert [(each["cause"], each["depth"]) for each in causes] == [
        ("zookeeper_unreachable", 0),
        ("sub_process", 0),
        ("zookeeper_unreachable", 1),
        ("delay", 1),
        ("upstream", 1),
        ("upstream", 0),
    ]
    assert causes[3]["next_at"] == due.isoformat().replace("+00:00", "Z")
    code, out, _ = cli("instance", "why", str(parent), "--task", "b")
    assert code == 0
    assert "task 'b' waits for 'a'" in out
    assert "└─ " in out
    assert cli("instance", "why", str(parent), "--task", "nobody")[0] == 3


def test_why_explains_serial_runs_queued_tasks_and_commands(cli: Cli, db: Engine) -> None:
    a_definition(db, release_state=0)
    first = an_instance(db, ProcessState.RUNNING)
    an_attempt(db, first, TaskState.SUBMITTED)
    second = an_instance(db, ProcessState.SERIAL_WAIT)
    third = an_instance(db, ProcessState.SERIAL_WAIT)
    code, out, _ = cli("instance", "why", str(third))
    assert code == 0
    assert f"behind process instance {first}" in out
    assert f"process instance {second} is SERIAL_WAIT" in out
    later = an_attempt(db, first, TaskState.SUBMITTED, name="b")
    assert "before it: 1 task" in cli("task", "why", str(later))[1]
    with db.begin() as connection:
        connection.execute(insert(command).values(command_type=0, process_definition_id=1))
    causes = parsed(cli("instance", "why", "--command", "1", "-o", "json"))
    assert [each["cause"] for each in causes] == [
        "command_waits",
        "definition_offline",
        "zookeeper_unreachable",
    ]
    assert cli("instance", "why", "--command", "99")[0] == 3
    assert cli("instance", "why")[0] == 2
    assert cli("instance", "why", "99")[0] == 3


def test_why_of_a_superseded_attempt_explains_the_one_in_its_place(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.RUNNING)
    old = an_attempt(db, 1, TaskState.FAILURE, flag=0)
    an_attempt(db, 1, TaskState.RUNNING, attempt=2)
    causes = parsed(cli("task", "why", str(old), "-o", "json"))
    assert [each["cause"] for each in causes] == ["superseded", "zookeeper_unreachable", "running"]


def test_the_lists_show_the_new_states(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.SERIAL_WAIT)
    an_attempt(db, 1, TaskState.DELAY_EXECUTION, due_at=NOW)
    an_attempt(db, 1, TaskState.SUCCESS, name="s", task_type="SWITCH", branch='["x"]')
    assert parsed(cli("instance", "list", "--state", "serial-wait", "-o", "json"))[0]["id"] == 1
    rows = parsed(cli("task", "list", "-o", "json"))
    assert [row["branch"] for row in rows] == [None, ["x"]]
    assert rows[0]["due_at"] is not None
    assert len(parsed(cli("task", "list", "--state", "delay-execution", "-o", "json"))) == 1


def test_everything_known_of_a_spark_application_is_shown(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.RUNNING)
    said = {
        "app_link": "app-1",
        "ui_link": "http://driver:4040",
        "progress": '{"tasks": 40, "tasks_done": 12, "tasks_running": 3}',
    }
    an_attempt(db, 1, TaskState.RUNNING, task_type="PYSPARK", **said)
    an_attempt(
        db,
        1,
        TaskState.FAILURE,
        name="b",
        task_type="PYSPARK",
        failure_reason="OUT_OF_MEMORY",
        reason="the heap was too small",
        usage='{"core_seconds": 900}',
    )
    _, listed, _ = cli("task", "list")
    head, running, failed = listed.splitlines()
    assert head.split()[-3:] == ["PROGRESS", "FAILURE", "REASON"]
    assert "tasks 12/40 (3 running)" in running
    assert failed.split()[-1] == "OUT_OF_MEMORY"
    _, shown, _ = cli("instance", "show", "1")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "application app-1" in lines
    assert "UI http://driver:4040" in lines
    assert "cost 0.25 core-hours" in lines
    rows = parsed(cli("instance", "show", "1", "-o", "json"))["tasks"]
    assert rows[0]["progress"]["share"] == 0.3
    assert (rows[0]["app_link"], rows[0]["ui_link"]) == ("app-1", "http://driver:4040")
    assert (rows[1]["failure_reason"], rows[1]["usage"]["core_seconds"]) == ("OUT_OF_MEMORY", 900)


def test_a_table_of_other_tasks_says_nothing_of_spark(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.RUNNING)
    an_attempt(db, 1, TaskState.SUCCESS)
    assert "PROGRESS" not in cli("task", "list")[1]
    assert parsed(cli("task", "list", "-o", "json"))[0]["progress"] is None


def test_why_reads_the_living_daemons_from_zookeeper(
    cli: Cli, db: Engine, zk_root: ZookeeperRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", zk_root.hosts)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__ROOT", zk_root.root)
    monkeypatch.setattr("operations.explaining.PATIENCE", timedelta(seconds=10))
    with registry(load()) as opened:
        master = opened.membership.join(NodeKind.MASTER, "127.0.0.1:5678", "")
        a_definition(db)
        run = an_instance(db, ProcessState.RUNNING, owner_incarnation=master.incarnation)
        an_attempt(db, run, TaskState.RUNNING)
        queued = an_attempt(db, run, TaskState.SUBMITTED, name="b")
        causes = parsed(cli("instance", "why", str(run), "-o", "json"))
        assert [each["cause"] for each in causes] == ["worker_gone", "queued", "no_worker"]
    causes = parsed(cli("task", "why", str(queued), "-o", "json"))
    assert [each["cause"] for each in causes][:2] == ["owner_gone", "no_master"]
