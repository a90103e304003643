"""Deleting instances and definitions, on a real database: what is refused, and what goes along."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, update

from common.errors import NotAllowedError
from common.model.commands import CommandType
from common.model.complement_states import ComplementState
from common.model.plans import Reject
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.people import deletions as store
from operations.deleting import delete_definitions, delete_instances
from operations.session import opened
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.integration.store_races.racing import MASTER, a_begin, take, until_blocked

OFFLINE: dict[str, Any] = {"release_state": 0}


def a_row(db: Engine, table: Any, **values: Any) -> int:
    with db.begin() as connection:
        made: int = connection.execute(
            insert(table).values(**values).returning(table.c.id)
        ).scalar_one()
    return made


def count(db: Engine, table: Any) -> int:
    with db.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def a_sub_process(db: Engine, root: int, state: ProcessState) -> tuple[int, int]:
    """A child of the run, and the attempt that began it."""
    parent = an_attempt(db, root, TaskState.SUCCESS, name=f"sub-{state.name}")
    child = an_instance(db, state, is_sub_process=1, root_id=root, parent_task_instance_id=parent)
    a_row(
        db,
        t.relation_process_instance,
        parent_process_instance_id=root,
        parent_task_instance_id=parent,
        process_instance_id=child,
    )
    return child, parent


def test_an_ended_run_goes_with_its_tasks_sub_processes_slots_and_logs(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    kept = an_instance(db, ProcessState.SUCCESS)
    an_attempt(db, kept, TaskState.SUCCESS)
    run = an_instance(db, ProcessState.FAILURE)
    task = an_attempt(db, run, TaskState.FAILURE, host="127.0.0.1:1234")
    child, _ = a_sub_process(db, run, ProcessState.STOP)
    grandchild, _ = a_sub_process(db, child, ProcessState.SUCCESS)
    an_attempt(db, child, TaskState.KILL, host="elsewhere:1234")
    a_row(db, t.task_group_queue, task_id=task, group_id=1)
    ledger = a_row(db, t.command_ledger, command_id=9, process_instance_id=run, outcome=1)
    tasks = tmp_path / "home" / "tasks"
    for folder in (
        tasks / "1" / str(run),
        tasks / "logs" / "1" / str(run),
        tasks / "1" / str(kept),
    ):
        folder.mkdir(parents=True)
        (folder / "1.log").write_text("said", encoding="utf-8")
    (tasks / "1" / str(run) / "link").symlink_to(tasks / "1" / str(kept))
    assert parsed(cli("instance", "delete", str(run), "-o", "json")) == {
        "deleted": [run, child, grandchild],
        "task_instances": 4,
        "folders": 2,
        "left": [],
        "hosts": ["elsewhere:1234"],
    }
    assert (count(db, t.process_instance), count(db, t.task_instance)) == (1, 1)
    assert (count(db, t.relation_process_instance), count(db, t.task_group_queue)) == (0, 0)
    # A ledger is history: it stays.
    assert (ledger, count(db, t.command_ledger)) == (1, 1)
    left = sorted(path.relative_to(tasks).as_posix() for path in tasks.rglob("*.log"))
    assert left == [f"1/{kept}/1.log"]
    assert cli("instance", "delete", str(run))[0] == 3


REFUSED = (
    (ProcessState.RUNNING, "stop it first: orcaflow instance stop {} --wait"),
    (ProcessState.SERIAL_WAIT, "stop it first: orcaflow instance stop {} --wait"),
    (ProcessState.READY_STOP, "see it end first: orcaflow instance watch {}"),
    (ProcessState.READY_PAUSE, "see it end first: orcaflow instance watch {}"),
)


def test_t41b_a_live_run_is_refused_with_the_cure_and_nothing_else_goes(
    cli: Cli, db: Engine
) -> None:
    ended = str(an_instance(db, ProcessState.SUCCESS))
    for state, cure in REFUSED:
        live = str(an_instance(db, state))
        code, out, err = cli("instance", "delete", ended, live)
        assert (code, out) == (4, ""), state
        assert f"process instance {live} is {state.name}" in err
        assert cure.replace("{}", live) in err
    assert count(db, t.process_instance) == 1 + len(REFUSED)


def test_a_run_that_others_need_is_refused_with_every_cure(cli: Cli, db: Engine) -> None:
    run = an_instance(db, ProcessState.FAILURE)
    task = an_attempt(db, run, TaskState.FAILURE, host="10.0.0.9:1234", lost_at=NOW)
    child, _ = a_sub_process(db, run, ProcessState.READY_STOP)
    waits = a_row(db, t.command, command_type=7, process_instance_id=run)
    for state in (ComplementState.RUNNING, ComplementState.SUCCESS):
        made = a_row(db, t.complement, process_definition_id=1, state=int(state), timezone_id="UTC")
        a_row(
            db,
            t.complement_date,
            complement_id=made,
            position=0,
            schedule_time=NOW,
            process_instance_id=run,
        )
    code, _, err = cli("instance", "delete", str(run))
    assert code == 4
    assert err.splitlines()[0] == "orcaflow: refused:"
    assert f"orcaflow instance watch {child}" in err
    assert f"orcaflow instance why --command {waits}" in err
    assert "orcaflow complement cancel 1" in err
    assert "complement cancel 2" not in err
    assert f"processes of task instance {task} ('a') may still run on 10.0.0.9:1234" in err
    code, _, err = cli("instance", "delete", str(child))
    assert code == 4
    assert f"orcaflow instance delete {run}" in err


def test_processes_that_may_still_run_are_given_up_only_by_force(cli: Cli, db: Engine) -> None:
    run = str(an_instance(db, ProcessState.FAILURE))
    an_attempt(db, int(run), TaskState.FAILURE, host="10.0.0.9:1234", lost_at=NOW)
    assert cli("instance", "delete", run)[0] == 4
    assert cli("instance", "delete", run, "--force")[0] == 0


def test_a_definition_goes_with_its_schedules_and_its_runs_stay_unless_told_otherwise(
    cli: Cli, db: Engine
) -> None:
    first, second = (a_definition(db, name=name, **OFFLINE) for name in ("first", "second"))
    for number in (first, second):
        run = an_instance(db, ProcessState.SUCCESS, process_definition_id=number)
        an_attempt(db, run, TaskState.SUCCESS)
        a_row(db, t.schedule, process_definition_id=number, crontab="0 0 3 * * ? *")
    assert parsed(cli("definition", "delete", "first", "-o", "json")) == {
        "deleted": [{"id": first, "name": "first"}],
        "schedules": [1],
        "kept_instances": 1,
        "instances": None,
    }
    assert parsed(cli("definition", "delete", "second", "--instances", "-o", "json")) == {
        "deleted": [{"id": second, "name": "second"}],
        "schedules": [2],
        "kept_instances": 0,
        "instances": {
            "deleted": [2],
            "task_instances": 1,
            "folders": 0,
            "left": [],
            "hosts": [],
        },
    }
    assert (count(db, t.process_definition), count(db, t.schedule)) == (0, 0)
    (left,) = parsed(cli("instance", "list", "-o", "json"))
    assert (left["id"], left["definition"]) == (1, None)
    code, _, err = cli("instance", "rerun", "1")
    assert (code, count(db, t.command)) == (4, 0)
    assert f"process instance 1 can't run again: its definition {first} was deleted" in err
    assert cli("definition", "delete", "first")[0] == 3


def test_t41b_a_definition_that_is_in_use_is_refused_with_every_cure(cli: Cli, db: Engine) -> None:
    number = a_definition(db, name="the base")
    child = {"type": "SUB_PROCESS", "name": "sub", "params": {"processDefinitionId": number}}
    a_definition(db, name="above", process_definition_json=json.dumps({"tasks": [child]}))
    live = an_instance(db, ProcessState.RUNNING, process_definition_id=number)
    needs = an_instance(
        db, ProcessState.RUNNING, process_instance_json=json.dumps({"tasks": [child]})
    )
    a_row(db, t.schedule, process_definition_id=number, crontab="0 0 3 * * ? *", release_state=1)
    waits = a_row(db, t.command, command_type=0, process_definition_id=number)
    a_row(db, t.complement, process_definition_id=number, timezone_id="UTC")
    code, _, err = cli("definition", "delete", "the base")
    assert code == 4
    for cure in (
        "orcaflow definition offline 'the base'",
        "orcaflow schedule offline 1",
        "orcaflow definition delete above 'the base'",
        f"orcaflow instance stop {live} --wait",
        f"orcaflow instance stop {needs} --wait",
        f"orcaflow instance why --command {waits}",
        "orcaflow complement cancel 1",
    ):
        assert cure in err
    assert count(db, t.process_definition) == 2


def test_definitions_that_refer_to_each_other_are_deleted_together(cli: Cli, db: Engine) -> None:
    base = a_definition(db, name="base", **OFFLINE)
    item = {"definitionId": base, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    waiting = {
        "type": "DEPENDENT",
        "name": "wait",
        "dependence": json.dumps({"dependTaskList": [{"dependItemList": [item]}]}),
    }
    document = json.dumps({"tasks": [waiting]})
    a_definition(db, name="above", process_definition_json=document, **OFFLINE)
    assert cli("definition", "delete", "base")[0] == 4
    assert cli("definition", "delete", "above", "base")[0] == 0


def test_a_run_that_is_recovered_at_the_same_time_is_seen_and_kept(cli: Cli, db: Engine) -> None:
    del cli  # Its settings are those of the session.
    run = an_instance(db, ProcessState.FAILURE)
    with opened() as session, ThreadPoolExecutor(1) as pool, db.connect() as master:
        master.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == run)
            .values(state=int(ProcessState.RUNNING), end_time=None)
        )
        deleting = pool.submit(delete_instances, session, [run], force=False)
        until_blocked(db, "%")
        master.commit()
        with pytest.raises(NotAllowedError, match=f"process instance {run} is RUNNING"):
            deleting.result()
    assert count(db, t.process_instance) == 1


def test_a_run_that_a_master_begins_at_the_same_time_keeps_its_definition(
    cli: Cli, db: Engine
) -> None:
    del cli
    number = a_definition(db)
    waits = a_row(db, t.command, command_type=0, process_definition_id=number)
    refusals = []

    def planner(command: Any, snapshot: Any) -> Any:
        # The master has read the definition, which is ONLINE, and somebody takes it off.
        with db.begin() as person:
            person.execute(update(t.process_definition).values(release_state=0))
        with opened() as session, pytest.raises(NotAllowedError) as refused:
            delete_definitions(session, ["nightly"], with_instances=True, force=False)
        refusals.append(str(refused.value))
        return a_begin(command, snapshot)

    assert list(take(db, MASTER, planner)) == [waits]
    assert f"orcaflow instance why --command {waits}" in refusals[0]
    with opened() as session, pytest.raises(NotAllowedError, match="process instance 1 is RUNNING"):
        delete_definitions(session, ["nightly"], with_instances=False, force=False)


def test_a_command_that_comes_after_the_look_begins_nothing(cli: Cli, db: Engine) -> None:
    del cli
    number = a_definition(db, **OFFLINE)
    with ThreadPoolExecutor(1) as pool, db.connect() as person:
        store.lock_definitions_to_delete(person, [number])
        store.hold_commands(person)
        assert store.commands_for_definitions(person, [number]) == []
        coming = pool.submit(a_row, db, t.command, command_type=0, process_definition_id=number)
        until_blocked(db, "%")
        assert store.delete_definitions(person, [number]) == {number}
        person.commit()
        command_id = coming.result()
    seen = []

    def planner(command: Any, snapshot: Any) -> Any:
        seen.append((command.command_type, snapshot.definition))
        return Reject(reason="it is gone")

    assert list(take(db, MASTER, planner)) == [command_id]
    assert seen == [(CommandType.START_PROCESS, None)]


def test_purge_deletes_what_its_plan_has_told(cli: Cli, db: Engine, tmp_path: Path) -> None:
    definition = a_definition(db)
    long_ago = {"start_time": NOW - timedelta(days=100), "end_time": NOW - timedelta(days=99)}
    old = an_instance(db, ProcessState.FAILURE, process_definition_id=definition, **long_ago)
    an_attempt(db, old, TaskState.FAILURE)
    kept = an_instance(db, ProcessState.PAUSE, process_definition_id=definition, **long_ago)
    newest = an_instance(db, ProcessState.SUCCESS, process_definition_id=definition, **long_ago)
    a_row(db, t.alert, title="x", create_time=NOW - timedelta(days=91))
    for days in (366, 91):
        at = NOW - timedelta(days=days)
        a_row(db, t.audit_log, at=at, user_name="u", action="x", object_type="x", outcome="done")
    folder = tmp_path / "home" / "tasks" / "logs" / str(definition) / str(old)
    folder.mkdir(parents=True)
    asked = ("purge", "--older-than", "90d")
    found = parsed(cli(*asked, "--plan", "-o", "json"))
    rows = {"t_ds_process_instance": 1, "t_ds_task_instance": 1, "t_ds_alert": 1}
    rows |= {"t_ds_audit_log": 1}
    assert found["rows"] == rows
    assert found["definitions"] == [
        {"id": definition, "name": "nightly", "process_instances": 1, "task_instances": 1}
    ]
    assert "nightly" in cli(*asked, "--plan")[1]
    assert count(db, t.process_instance) == 3
    code, out, _ = cli(*asked)
    assert (code, out.partition(";")[0]) == (
        0,
        "deleted 1 process instance, 1 task instance, 1 of t_ds_alert, 1 of t_ds_audit_log",
    )
    assert not folder.exists()
    with db.connect() as connection:
        left = list(connection.scalars(select(t.process_instance.c.id)))
    assert (sorted(left), count(db, t.task_instance)) == ([kept, newest], 0)
    assert parsed(cli(*asked, "--definition", "nightly", "-o", "json"))["deleted"] == {}
    assert cli("purge", "--older-than", "soon")[0] == 2
