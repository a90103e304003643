"""Commands about worker groups, tenants and alerts, and runs that raise alerts, on a real database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select

from common.model.complement_states import ComplementState
from common.model.states import ProcessState, TaskState, WarningType
from common.store import tables as t
from common.store.worker.tasks import PostgresTaskStore
from tests.granting import grant_all
from tests.integration.cli_rows import a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.unit.later_definitions import a_later_export, a_later_task

SHELL = {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}}


def a_row(db: Engine, table: Any, **values: Any) -> None:
    with db.begin() as connection:
        connection.execute(insert(table).values(**values))
        grant_all(connection)


def one(db: Engine, *columns: Any) -> tuple[Any, ...]:
    with db.connect() as connection:
        return tuple(connection.execute(select(*columns)).one())


def test_a_worker_group_is_made_shown_and_deleted(cli: Cli) -> None:
    made = parsed(cli("worker-group", "create", "etl", "--address", "10.0.0.7", "-o", "json"))
    assert made == {"id": 1, "name": "etl", "addresses": ["10.0.0.7"]}
    code, _, err = cli("worker-group", "create", "etl")
    assert code == 4
    assert "orcaflow worker-group show etl" in err
    (row,) = parsed(cli("worker-group", "list", "-o", "json"))
    # ZooKeeper is away, so nobody is known to be alive.
    assert (row["name"], row["workers"], row["members"]) == ("etl", None, None)
    code, _, err = cli("worker-group", "show", "elt")
    assert code == 3
    assert "did you mean 'etl'?" in err
    for name in ("default", "12", "a,b", " x", ""):
        assert cli("worker-group", "create", name)[0] == 2, name
    assert cli("worker-group", "delete", "etl")[0] == 0
    assert cli("worker-group", "delete", "etl")[0] == 3


def test_workers_are_taken_out_of_service_one_by_one_and_by_host(cli: Cli, db: Engine) -> None:
    def modes(*ports: int) -> list[str]:
        store = PostgresTaskStore(db)
        return [store.mode(f"w:{port}").value for port in ports]

    for port in (1, 2):
        a_row(db, t.worker_server, host="w", port=port)
    code, _, err = cli("worker", "disable", "w:3")
    assert (code, "did you mean w:" in err) == (3, True)
    for name in ("", "w:", "w:x", "a b"):
        assert cli("worker", "disable", "--", name)[0] == 2, name
    assert cli("worker", "disable", "w:1", "--reason", "a\nb")[0] == 2
    assert cli("worker", "enable", "w:1")[0] == 4
    made = parsed(cli("worker", "disable", "w:1", "--reason", "new disk", "-o", "json"))
    assert (made["worker"], made["mode"], made["reason"]) == ("w:1", "disabled", "new disk")
    assert modes(1, 2) == ["disabled", "enabled"]
    # The host takes the place of what was said of one of its workers.
    assert cli("worker", "lazy", "w")[0] == 0
    assert modes(1, 2, 3) == ["lazy"] * 3
    assert cli("worker", "enable", "w:2")[0] == 0
    assert modes(1, 2) == ["lazy", "enabled"]
    assert cli("worker", "enable", "w")[0] == 0
    assert modes(1, 2) == ["enabled", "enabled"]
    assert one(db, func.count(t.worker_mode.c.worker)) == (0,)
    with db.connect() as connection:
        lines = connection.execute(
            select(t.audit_log.c.action, t.audit_log.c.object_name, t.audit_log.c.outcome)
            .where(t.audit_log.c.action.startswith("worker."))
            .where(t.audit_log.c.outcome == "done")
            .order_by(t.audit_log.c.id)
        )
        assert [(row.action, row.object_name) for row in lines] == [
            ("worker.disable", "w:1"),
            ("worker.lazy", "w"),
            ("worker.enable", "w:2"),
            ("worker.enable", "w"),
        ]


def test_the_strategy_of_the_choice_of_workers_has_versions(cli: Cli, tmp_path: Path) -> None:
    def given(document: object, *more: str) -> tuple[int, str, str]:
        file = tmp_path / "strategy.json"
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return cli("worker", "set-strategy", str(file), *more)

    (default,) = parsed(cli("worker", "strategy", "-o", "json"))
    assert (default["version"], default["document"]) == (
        0,
        {"selectStrategy": {"type": "equalDistribution"}},
    )
    fill = {"selectStrategy": {"type": "fillCapacity"}}
    made = parsed(given(fill, "--note", "fewer hosts", "-o", "json"))
    assert (made["version"], made["document"], made["note"]) == (1, fill, "fewer hosts")
    assert parsed(given(fill, "-o", "json"))["version"] == 1
    code, _, err = given({"selectStrategy": {"type": "javascript"}, "x": 1})
    assert code == 2
    assert "has no key x" in err
    assert "must be one of fillCapacity" in err
    for spoilt in ("{", '"' + "\\ud800" + '"', "[" * 100_000):
        assert given(spoilt)[0] == 2
    assert given(default["document"])[0] == 0
    told = parsed(cli("worker", "strategy", "--history", "-o", "json"))
    assert [row["version"] for row in told] == [2, 1]
    (now,) = parsed(cli("worker", "strategy", "-o", "json"))
    assert now["version"] == 2


def test_a_worker_group_is_kept_while_anything_needs_it_and_leaves_the_past(
    cli: Cli, db: Engine
) -> None:
    cli("worker-group", "create", "etl")
    ended = an_instance(db, ProcessState.SUCCESS, worker_group_id=1)
    live = an_instance(db, ProcessState.RUNNING, worker_group_id=1)
    by_task = an_instance(db, ProcessState.RUNNING)
    an_attempt(db, by_task, TaskState.SUBMITTED, worker_group_id=1)
    a_row(db, t.command, command_type=0, process_definition_id=1, worker_group_id=1)
    a_row(db, t.schedule, process_definition_id=1, crontab="0 0 3 * * ? *", worker_group_id=1)
    a_row(db, t.complement, process_definition_id=1, timezone_id="UTC", worker_group_id=1)
    node = json.dumps({"tasks": [SHELL | {"workerGroupId": 1}]})
    a_definition(db, name="needs", process_definition_json=node)
    code, _, err = cli("worker-group", "delete", "etl")
    assert code == 4
    for cure in (
        "orcaflow instance why --command 1",
        f"orcaflow instance stop {live} --wait",
        f"orcaflow instance stop {by_task} --wait",
        "orcaflow schedule edit 1 --worker-group default",
        "orcaflow complement cancel 1",
        "orcaflow definition delete needs",
    ):
        assert cure in err
    with db.begin() as connection:
        for table in (t.command, t.schedule, t.complement, t.process_definition):
            connection.execute(table.delete())
        connection.execute(t.process_instance.delete().where(t.process_instance.c.id != ended))
    assert parsed(cli("worker-group", "delete", "etl", "-o", "json"))["instances"] == 1
    assert one(db, t.process_instance.c.worker_group_id) == (-1,)


def test_an_environment_is_made_of_a_file_shown_without_its_secrets_changed_and_deleted(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "e.env"
    file.write_text("export PLACE=moon A_TOKEN=t0ps3cret\n", encoding="utf-8")
    made = parsed(
        cli(
            *("environment", "create", "etl", "--config", str(file)),
            *("--project", "default", "-o", "json"),
        )
    )
    assert (made["code"], made["config"]) == (1, "export PLACE=moon A_TOKEN=******\n")
    assert one(db, t.environment.c.config)[0].startswith("export PLACE=moon A_TOKEN=aes256gcm:")
    code, out, _ = cli("environment", "show", "etl")
    assert (code, "  export PLACE=moon A_TOKEN=******" in out) == (0, True)
    file.write_text("export PLACE=`id`", encoding="utf-8")
    code, _, err = cli("environment", "set", "etl", "--config", str(file))
    assert (code, "line 1: ` would run a program" in err) == (2, True)
    missing = cli("environment", "set", "etl", "--config", str(tmp_path / "none"))
    assert (missing[0], "No such file" in missing[2]) == (2, True)
    assert cli("environment", "set", "etl", "--name", "elt", "--description", "d")[0] == 0
    a_definition(db, name="nightly", process_definition_json=json.dumps({"tasks": [SHELL]}))
    code, _, err = cli("run", "nightly", "--environment", "etl")
    assert (code, "did you mean 'elt'?" in err) == (3, True)
    (row,) = parsed(cli("environment", "list", "-o", "json"))
    assert (row["name"], row["description"]) == ("elt", "d")
    # The secrets of environments are encrypted anew with those of data sources.
    before = one(db, t.environment.c.config)
    assert cli("datasource", "encrypt", "--new-key")[0] == 0
    assert one(db, t.environment.c.config) != before
    a_row(db, t.schedule, process_definition_id=1, crontab="0 0 3 * * ?", environment_code=1)
    dates = {"process_definition_id": 1, "timezone_id": "UTC", "environment_code": 1}
    a_row(db, t.complement, **dates)
    a_row(db, t.complement, **dates, state=int(ComplementState.SUCCESS))
    code, _, err = cli("environment", "delete", "elt")
    assert code == 4
    for cure in ("orcaflow schedule edit 1 --environment none", "orcaflow complement cancel 1"):
        assert cure in err
    assert "complement cancel 2" not in err
    with db.begin() as connection:
        connection.execute(t.schedule.delete())
        connection.execute(t.complement.update().values(state=int(ComplementState.STOP)))
    gone = parsed(cli("environment", "delete", "elt", "-o", "json"))
    assert gone == {"name": "elt", "code": 1, "deleted": True}


def test_a_definition_names_an_environment_that_is_there_and_keeps_its_code(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    a_row(db, t.environment, name="java", code=2**40)
    file = tmp_path / "etl.json"

    def imported(**keys: Any) -> tuple[int, str, str]:
        node = SHELL | keys
        document = {"name": "etl", "processDefinitionJson": {"tasks": [node]}}
        file.write_text(json.dumps(document), encoding="utf-8")
        return cli("definition", "import", str(file))

    for keys, cause, wanted in (
        ({"environmentName": "jav"}, "has no environment 'jav' (did you mean 'java'?", 0),
        ({"environmentCode": 7}, "has no environment 7", 0),
        ({"environmentCode": "x"}, "environmentCode: must be a whole number", 1),
    ):
        code, _, err = imported(**keys)
        assert (code, cause in err) == (wanted, True), err
    assert imported(environmentName="java")[0] == 0
    (stored,) = one(db, t.process_definition.c.process_definition_json)
    assert json.loads(stored)["tasks"][0]["environmentCode"] == 2**40
    exported = parsed(cli("definition", "export", "etl"))
    assert exported["processDefinitionJson"]["tasks"][0]["environmentName"] == "java"
    later = a_later_export(a_later_task(1, "a", environmentCode=2**40), name="kept")
    lost = a_later_export(a_later_task(1, "a", environmentCode=2**41), name="lost")
    for each, state in ((later, "ONLINE"), (lost, "OFFLINE")):
        file.write_text(json.dumps([each]), encoding="utf-8")
        code, out, err = cli("definition", "import", str(file))
        assert (code, state in out) == (0, True), out + err
    assert f"orcaflow environment create NAME --code {2**41}" in out + err
    mapped = cli(
        "definition", "import", str(file), "--online", "--map", f"environment:{2**41}=java"
    )
    assert (mapped[0], "ONLINE" in mapped[1]) == (0, True), mapped


def test_a_tenant_is_made_with_its_queue_and_deleted_once_nothing_needs_it(
    cli: Cli, db: Engine
) -> None:
    answer = cli("tenant", "create", "no_such_account", "--queue", "root.etl", "-o", "json")
    made = parsed(answer)
    assert (made["code"], made["queue"], made["has_account"]) == (
        "no_such_account",
        "root.etl",
        False,
    )
    assert "has no account 'no_such_account'" in answer[2]
    assert cli("tenant", "create", "no_such_account")[0] == 4
    for code in (";rm", "Root", "a b", "", "-x", "a" * 33):
        assert cli("tenant", "create", "--", code)[0] == 2, code
    number = made["id"]
    a_definition(db, name="needs", tenant_id=number)
    live = an_instance(db, ProcessState.RUNNING, tenant_id=number)
    a_row(db, t.user, user_name="ann", tenant_id=number)
    code, _, err = cli("tenant", "delete", "no_such_account")
    assert code == 4
    assert f"orcaflow instance stop {live} --wait" in err
    assert "orcaflow definition delete needs" in err
    assert "orcaflow user set ann --tenant CODE" in err
    # The tenant that every database has is the administrator's.
    first = parsed(cli("tenant", "list", "-o", "json"))[0]
    assert cli("tenant", "delete", first["code"])[0] == 4
    with db.begin() as connection:
        connection.execute(t.process_definition.delete())
        connection.execute(t.user.delete().where(t.user.c.user_name == "ann"))
        connection.execute(t.process_instance.update().values(state=7, end_time="now"))
    assert parsed(cli("tenant", "delete", "no_such_account", "-o", "json"))["instances"] == 1
    assert one(db, t.process_instance.c.tenant_id) == (-1,)


def test_a_tenant_whose_account_is_unfit_is_refused_wherever_it_is_saved_x50(
    cli: Cli, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nightly.json"

    def imported(tenant: str) -> tuple[int, str, str]:
        document = {"name": "nightly", "tenantCode": tenant, "tasks": [SHELL]}
        file.write_text(json.dumps(document))
        return cli("definition", "import", str(file))

    for code in ("root", "daemon", "no_such_account"):
        a_row(db, t.tenant, tenant_code=code)
    assert cli("user", "create", "ann")[0] == 0
    # In mode `single` tasks use no accounts, so nothing is checked.
    assert imported("root")[0] == 0
    assert cli("user", "set", "ann", "--tenant", "root")[0] == 0
    monkeypatch.setenv("ORCAFLOW_WORKER__TENANT_MODE", "tenant")
    for code, reason in (("root", "uid 0 is root"), ("daemon", "is a system account")):
        answers = [imported(code), cli("user", "set", "ann", "--tenant", code)]
        assert [answer[0] for answer in answers] == [1, 2]
        assert all(reason in answer[2] for answer in answers), answers
    assert "uid 0 is root" in cli("tenant", "create", "root")[2]
    answer = imported("no_such_account")
    assert answer[0] == 0
    assert "this computer lacks the account 'no_such_account'" in answer[1] + answer[2]
    monkeypatch.setenv("ORCAFLOW_WORKER__TENANT_MIN_UID", "1")
    assert imported("daemon")[0] == 0


def test_alerts_are_listed_newest_first_with_their_status(cli: Cli, db: Engine) -> None:
    code, out, err = cli("alert", "list")
    assert (code, out, err) == (0, "", "There are no such alerts.\n")
    for title, status in (("start process failed", 0), ("scheduler success", 1)):
        a_row(db, t.alert, title=title, alert_status=status, alertgroup_id=1, content="[{}]")
    rows = parsed(cli("alert", "list", "-o", "json"))
    assert [(row["title"], row["status"]) for row in rows] == [
        ("scheduler success", "EXECUTION_SUCCESS"),
        ("start process failed", "WAIT_EXECUTION"),
    ]
    assert rows[0]["alertgroup"] == "default admin warning group"
    assert len(parsed(cli("alert", "list", "--status", "waiting", "-o", "json"))) == 1
    assert len(parsed(cli("alert", "list", "--status", "execution-success", "-o", "json"))) == 1
    code, _, err = cli("alert", "list", "--status", "lost")
    assert code == 2
    assert "known are waiting, sent, failed" in err


def test_the_warning_type_of_a_run_a_complement_and_a_schedule_is_stored_with_its_group(
    cli: Cli, db: Engine
) -> None:
    document = json.dumps({"tasks": [SHELL]})
    number = a_definition(db, process_definition_json=document)
    cli("run", "nightly", "--warning-type", "failure")
    columns = (t.command.c.warning_type, t.command.c.warning_group_id)
    assert one(db, *columns) == (WarningType.FAILURE, 1)
    dates = ("--date", "2026-01-01")
    assert cli("complement", "nightly", *dates, "--warning-type", "all")[0] == 0
    columns = (t.complement.c.warning_type, t.complement.c.warning_group_id)
    assert one(db, *columns) == (WarningType.ALL, 1)
    cron = ("--cron", "0 0 3 * * ? *")
    made = parsed(cli("schedule", "create", "nightly", *cron, "-o", "json"))
    columns = (t.schedule.c.warning_type, t.schedule.c.warning_group_id)
    assert (made["warning_type"], one(db, *columns)) == ("NONE", (WarningType.NONE, 0))
    cli("schedule", "edit", "1", "--warning-type", "success")
    assert one(db, *columns) == (WarningType.SUCCESS, 1)
    # A group that somebody has chosen stays.
    with db.begin() as connection:
        connection.execute(t.schedule.update().values(warning_group_id=5))
    cli("schedule", "edit", "1", "--warning-type", "all")
    assert one(db, *columns) == (WarningType.ALL, 5)
    cli("schedule", "edit", "1", "--to", "never")
    assert one(db, *columns) == (WarningType.ALL, 5)
    assert number == 1
