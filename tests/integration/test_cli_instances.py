"""Commands about instances and their tasks, on a real database."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Engine, select, update

from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.store.tables import command, process_definition, task_instance
from operations.checks import Result, lost_tasks_finding
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance, commands, parsed
from tests.integration.conftest import Cli

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
    a_definition(db)
    for verb, state, kind in VERBS:
        number = an_instance(db, state)
        assert cli("instance", *verb.split(), str(number))[0] == 0, verb
        found, param, _ = commands(db)[-1]
        assert (found, param) == (kind, {"ProcessInstanceId": str(number)}), verb


FORBIDDEN = (
    ("pause", ProcessState.SUCCESS, "has ended already: SUCCESS"),
    ("stop", ProcessState.STOP, "has ended already: STOP"),
    ("pause", ProcessState.SERIAL_WAIT, "it waits for its turn, and can be stopped but not paused"),
    ("resume", ProcessState.RUNNING, "stop it first: orcaflow instance stop"),
    ("resume", ProcessState.FAILURE, "go on where it ended: orcaflow instance recover"),
    ("recover", ProcessState.SUCCESS, "run all of it again: orcaflow instance rerun"),
    ("rerun", ProcessState.RUNNING, "only one that has ended"),
    (
        "rerun --failed",
        ProcessState.STOP,
        "or never began: orcaflow instance resume {} --wait; what",
    ),
    ("rerun --failed", ProcessState.PAUSE, "fails then: orcaflow instance rerun {} --failed"),
    ("resume", ProcessState.READY_PAUSE, "instance watch {}; orcaflow instance recover {}"),
    ("rerun", ProcessState.READY_STOP, "orcaflow instance watch {}; orcaflow instance rerun {}"),
    ("resume", ProcessState.SERIAL_WAIT, "begins by itself: orcaflow instance why {}"),
)


def test_a_command_that_the_state_forbids_is_refused_with_the_cure(cli: Cli, db: Engine) -> None:
    for verb, state, cure in FORBIDDEN:
        number = str(an_instance(db, state))
        code, out, err = cli("instance", *verb.split(), number)
        assert (code, out) == (4, ""), verb
        assert cure.replace("{}", number) in err, verb
    assert commands(db) == []


def test_of_two_recoveries_the_second_is_refused_and_the_first_named(cli: Cli, db: Engine) -> None:
    a_definition(db)
    an_instance(db, ProcessState.FAILURE)
    assert cli("instance", "recover", "1")[0] == 0
    code, _, err = cli("instance", "rerun", "1")
    assert code == 4
    assert "is being recovered already: command 1 (START_FAILURE_TASK_PROCESS)" in err
    assert len(commands(db)) == 1


def test_a_command_to_a_sub_process_goes_to_the_root_and_says_so(cli: Cli, db: Engine) -> None:
    a_definition(db)
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
    a_definition(db)
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
    a_definition(db)
    an_instance(db, ProcessState.FAILURE)
    code, _, err = cli("instance", "recover", "1", "--wait", "--timeout", "0.1s")
    assert code == 124
    assert "no master has taken command 1" in err


def test_no_screen_shows_a_secret_of_a_run(cli: Cli, db: Engine) -> None:
    start = json.dumps({"db_password": "hunter2", "day": "2026-11-20"})
    number = an_instance(
        db,
        ProcessState.FAILURE,
        command_param=json.dumps({"StartParams": start, "note": "for hunter2"}),
        global_params=json.dumps(
            [
                {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"},
                {"prop": "url", "direct": "IN", "type": "VARCHAR", "value": "x://hunter2/"},
            ]
        ),
        state_reason="a failed: jdbc:mysql://db/x?user=me&pwd=hunter2",
    )
    node = {"params": {"rawScript": "login ${db_password}"}}
    attempt = an_attempt(
        db, number, TaskState.FAILURE, task_json=json.dumps(node), reason="access_key=hunter2"
    )
    screens = (
        f"instance show {number}",
        "instance list",
        f"instance why {number}",
        f"task list --instance {number}",
        f"task render {attempt}",
        f"task why {attempt}",
    )
    for screen in screens:
        for form in ("table", "json"):
            code, out, err = cli(*screen.split(), "-o", form)
            assert code == 0, (screen, err)
            assert "hunter2" not in out + err, (screen, form)
    shown = parsed(cli("instance", "show", str(number), "-o", "json"))
    param = json.loads(shown["command_param"])
    assert json.loads(param["StartParams"]) == {"db_password": "******", "day": "2026-11-20"}
    assert "******" in shown["reason"]


def test_a_failed_attempt_of_an_ended_run_is_declared_good(cli: Cli, db: Engine) -> None:
    an_instance(db, ProcessState.FAILURE)
    an_attempt(db, 1, TaskState.FAILURE, reason="exit code 3")
    row = parsed(cli("task", "force-success", "1", "-o", "json"))
    assert (row["state"], row["state_code"]) == ("FORCED_SUCCESS", 13)
    assert "it was FAILURE: exit code 3" in row["reason"]


def a_waiting_dependent(db: Engine, state: ProcessState, **of_run: object) -> int:
    return an_attempt(
        db,
        an_instance(db, state, **of_run),
        TaskState.RUNNING,
        task_type="DEPENDENT",
        host=None,
        worker_incarnation=None,
    )


def test_a_dependent_that_waits_is_passed_and_reported_to_its_run(cli: Cli, db: Engine) -> None:
    attempt = a_waiting_dependent(db, ProcessState.RUNNING)
    code, out, _ = cli("task", "force-success", str(attempt))
    assert (code, "orcaflow instance watch 1" in out) == (0, True)
    with db.connect() as connection:
        row = connection.execute(select(task_instance)).one()
    assert (row.state, row.settled, row.end_time is None) == (13, False, False)
    assert row.reason == "declared a success by hand; it waited for others"


def test_a_dependent_of_a_run_that_is_ended_or_paused_is_not_passed(cli: Cli, db: Engine) -> None:
    for state, of_run in (
        (ProcessState.RUNNING, {"wanted_state": 5}),
        (ProcessState.RUNNING, {"wanted_state": 3}),
        (ProcessState.READY_STOP, {}),
        (ProcessState.READY_PAUSE, {}),
        (ProcessState.FAILURE, {}),
    ):
        attempt = a_waiting_dependent(db, state, **of_run)
        code, _, err = cli("task", "force-success", str(attempt))
        assert (code, "is being paused or stopped" in err) == (4, True), (state, of_run)
    with db.connect() as connection:
        assert set(connection.scalars(select(task_instance.c.state))) == {1}


def a_run_of_a_later_definition(db: Engine, state: ProcessState = ProcessState.FAILURE) -> int:
    """A run of version 1 of which `a` succeeded and `b` failed; version 3 has another `b`."""
    later = json.dumps(
        {
            "tasks": [
                {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": []},
                {"name": "b", "type": "SHELL", "params": {"rawScript": "id"}, "preTasks": ["a"]},
            ]
        }
    )
    number = a_definition(db, name="later", version=3, process_definition_json=later)
    run = an_instance(db, state, process_definition_id=number, name="later-1-1357027200000")
    an_attempt(db, run, TaskState.SUCCESS)
    an_attempt(db, run, TaskState.FAILURE, name="b")
    return run


def test_a_restart_says_which_version_it_runs_and_that_a_later_one_exists(
    cli: Cli, db: Engine
) -> None:
    run = str(a_run_of_a_later_definition(db))
    shown = parsed(cli("instance", "show", run, "-o", "json"))
    assert (shown["version"], shown["latest_version"]) == (1, 3)
    code, _, err = cli("instance", "recover", run)
    assert code == 0
    assert f"instance {run} runs version 1 of its definition; version 3 exists" in err
    assert f"orcaflow instance diff {run}" in err
    assert commands(db)[-1][1] == {"ProcessInstanceId": run}
    with db.begin() as connection:
        connection.execute(command.delete())
    # Single tasks run as the copy has them, so another command takes the later version.
    code, _, err = cli("instance", "execute", run, "--tasks", "b")
    assert code == 0
    assert f"instance {run} runs version 1 of its definition; version 3 exists" in err
    assert f"`orcaflow instance recover {run} --with-version latest` takes it (`rerun` in" in err


def test_the_latest_version_is_taken_after_its_difference_is_printed(cli: Cli, db: Engine) -> None:
    part, whole = ("a", "b"), ("none", "a, b")
    for verb, state, (kept, runs) in (
        ("recover", ProcessState.FAILURE, part),
        ("rerun --failed", ProcessState.FAILURE, part),
        ("rerun", ProcessState.FAILURE, whole),
        ("rerun --all", ProcessState.SUCCESS, whole),
        ("resume", ProcessState.STOP, part),
    ):
        with db.begin() as connection:
            connection.execute(command.delete())
            connection.execute(
                update(process_definition).values(name=process_definition.c.name + "-old")
            )
        run = str(a_run_of_a_later_definition(db, state))
        code, out, err = cli("instance", *verb.split(), run, "--with-version", "latest")
        assert code == 0, err
        assert "version 1 → 3" in out
        assert f"results that stay: {kept}\ntasks that run: {runs}" in out
        assert f"instance {run} runs version 3 of its definition\n" in err
        assert commands(db)[-1][1] == {"ProcessInstanceId": run, "definitionVersion": "latest"}
    assert cli("instance", "recover", run, "--with-version", "3")[0] == 2


def test_a_run_is_compared_with_the_latest_version(cli: Cli, db: Engine) -> None:
    run = str(a_run_of_a_later_definition(db))
    found = parsed(cli("instance", "diff", run, "-o", "json"))
    assert (found["version"], found["latest_version"]) == (1, 3)
    assert (found["kept"], found["runs"], found["removed_tasks"]) == (["a"], ["b"], [])
    assert [each["name"] for each in found["changed"]] == ["b"]


def test_the_latest_version_is_refused_where_no_new_run_may_begin(cli: Cli, db: Engine) -> None:
    run = str(a_run_of_a_later_definition(db))
    with db.begin() as connection:
        connection.execute(update(process_definition).values(release_state=0))
    code, _, err = cli("instance", "recover", run, "--with-version", "latest")
    assert (code, "'later' is OFFLINE" in err) == (4, True)
    assert cli("instance", "recover", run)[0] == 0


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


def test_attempts_that_may_still_run_beside_their_successors_are_listed(
    cli: Cli, db: Engine
) -> None:
    run = an_instance(db, ProcessState.RUNNING)
    lost = an_attempt(
        db,
        run,
        TaskState.NEED_FAULT_TOLERANCE,
        host="127.0.0.1:1234",
        flag=0,
        lost_at=NOW,
    )
    now = an_attempt(db, run, TaskState.RUNNING, attempt=2)
    rows = parsed(cli("task", "list", "-o", "json"))
    assert {row["id"]: row["lost_at"] is not None for row in rows} == {lost: True, now: False}
    assert "LOST AT" in cli("task", "list")[1]
    found = lost_tasks_finding(db)
    assert (found.result, "127.0.0.1:1234" in found.detail) == (Result.WARNING, True)
    with db.begin() as connection:
        connection.execute(update(task_instance).values(lost_at=None))
    assert [row["id"] for row in parsed(cli("task", "list", "-o", "json"))] == [now]
    assert "LOST AT" not in cli("task", "list")[1]
    assert lost_tasks_finding(db).result is Result.OK
