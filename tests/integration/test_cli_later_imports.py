"""Exports of DolphinScheduler 2.x and 3.x in a real database, and exports of ours with schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert, select, update

from common.store.tables import environment, process_definition, schedule, tenant
from tests.granting import grant_all
from tests.integration.conftest import Cli
from tests.unit.definition_documents import a_task, an_export
from tests.unit.later_definitions import (
    DEFINITION,
    a_later_export,
    a_later_schedule,
    a_later_task,
    task_code,
)

Import = Callable[..., list[dict[str, Any]]]

CHILD = DEFINITION + 1


@pytest.fixture
def imports(cli: Cli, tmp_path: Path) -> Import:
    """Imports one file, which has to get in; returns the rows that are printed."""

    def run(*documents: object, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        path = tmp_path / "file.json"
        path.write_text(json.dumps(documents))
        code, out, err = cli("definition", "import", str(path), *options, "-o", "json")
        assert code == 0, err
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    return run


def nodes(db: Engine, name: str) -> dict[str, dict[str, Any]]:
    with db.connect() as connection:
        text = connection.scalar(
            select(process_definition.c.process_definition_json).where(
                process_definition.c.name == name
            )
        )
    return {node["name"]: node for node in json.loads(text or "")["tasks"]}


def id_of(db: Engine, name: str) -> int | None:
    with db.connect() as connection:
        return connection.scalar(
            select(process_definition.c.id).where(process_definition.c.name == name)
        )


def a_parent() -> dict[str, Any]:
    item = {"definitionCode": CHILD, "depTaskCode": task_code(9), "cycle": "day"}
    items = [item | {"dateValue": "last1Days"}]
    groups = [{"relation": "AND", "dependItemList": items}]
    return a_later_export(
        a_later_task(1, "run", "SUB_PROCESS", params={"processDefinitionCode": CHILD}),
        a_later_task(
            2,
            "wait",
            "DEPENDENT",
            params={"dependence": {"relation": "AND", "dependTaskList": groups}},
        ),
        a_later_task(3, "work"),
        edges=((1, 3), (2, 3)),
        schedule=a_later_schedule(),
    )


def a_child() -> dict[str, Any]:
    return a_later_export(a_later_task(9, "load"), name="child", code=CHILD, line=3)


def test_a_later_export_gets_in_and_says_unchanged_when_it_comes_again(
    imports: Import, db: Engine
) -> None:
    parent, child = imports(a_parent(), a_child())
    assert (parent["release_state"], parent["kept_offline"], parent["unmapped"]) == (
        "ONLINE",
        False,
        [],
    )
    assert child["release_state"] == "ONLINE"
    stored = nodes(db, "nightly")
    assert stored["run"]["params"] == {"processDefinitionId": id_of(db, "child")}
    (item,) = stored["wait"]["dependence"]["dependTaskList"][0]["dependItemList"]
    assert (item["definitionId"], item["depTasks"]) == (id_of(db, "child"), "load")
    with db.connect() as connection:
        (made,) = connection.execute(select(schedule)).all()
    assert (made.release_state, made.timezone_id, made.warning_group_id) == (
        0,
        "Asia/Shanghai",
        4,
    )
    assert made.start_time.isoformat() == "2023-12-31T16:00:00+00:00"
    again = imports(a_parent(), a_child())
    assert [(row["version"], row["changed"]) for row in again] == [(1, False), (1, False)]
    assert again[0]["schedules"] == [{"id": made.id, "crontab": made.crontab, "new": False}]
    # The codes that are kept lead from one file to another, whenever each of them comes.
    (alone,) = imports(a_parent())
    assert (alone["changed"], alone["kept_offline"]) == (False, False)


def test_codes_that_nobody_has_keep_a_definition_offline_until_they_come(
    imports: Import, db: Engine
) -> None:
    (parent,) = imports(a_parent(), options=("--online",))
    assert (parent["release_state"], parent["kept_offline"]) == ("OFFLINE", True)
    assert [(each["node"], each["key"]) for each in parent["unmapped"]] == [
        ("run", "params.processDefinitionCode"),
        ("wait", "dependence.dependTaskList[0].dependItemList[0].definitionCode"),
        ("wait", "dependence.depTaskCode"),
    ]
    own = {"name": "own", "tasks": [{"name": "load", "type": "SHELL", "params": {}}]}
    _, parent = imports(own, a_parent(), options=("--map", f"definition:{CHILD}=own"))
    assert [each["key"] for each in parent["unmapped"]] == ["dependence.depTaskCode"]
    assert nodes(db, "nightly")["run"]["params"] == {"processDefinitionId": id_of(db, "own")}
    imports(a_child())
    (parent,) = imports(a_parent())
    assert (parent["release_state"], parent["kept_offline"]) == ("OFFLINE", False)
    assert nodes(db, "nightly")["run"]["params"] == {"processDefinitionId": id_of(db, "child")}


def test_a_type_that_is_not_run_takes_the_definition_and_its_schedule_offline(
    imports: Import, cli: Cli, db: Engine
) -> None:
    plain = a_later_export(a_later_task(1, "work"), schedule=a_later_schedule())
    imports(plain)
    assert cli("schedule", "online", "--definition", "nightly")[0] == 0
    flink = a_later_export(a_later_task(1, "work"), a_later_task(2, "flow", "FLINK"))
    (row,) = imports(flink)
    assert (row["release_state"], row["changed"]) == ("OFFLINE", True)
    assert [(each["node"], each["key"]) for each in row["unmapped"]] == [("flow", "type")]
    assert imports(flink)[0]["changed"] is False
    with db.connect() as connection:
        assert connection.scalars(select(schedule.c.release_state)).all() == [0]
    code, _, err = cli("definition", "online", "nightly")
    assert code == 4
    assert "'FLINK'" in err
    (row,) = imports(plain, options=("--online",))
    assert row["release_state"] == "ONLINE"
    params = {"mainJar": {"id": 5}, "mainClass": "a.B"}
    (row,) = imports(an_export(a_task("flow", type="FLINK", params=params), name="nightly"))
    assert (row["release_state"], row["kept_offline"]) == ("OFFLINE", True)
    offline = [each["key"] for each in row["unmapped"] if each["keeps_offline"]]
    assert offline == ["type", "params.mainJar.id"]
    assert nodes(db, "nightly")["flow"]["params"] == params
    assert cli("definition", "online", "nightly")[0] == 4


def test_a_later_export_is_imported_offline_on_demand(imports: Import) -> None:
    (row,) = imports(a_later_export(a_later_task(1, "work")), options=("--offline",))
    assert (row["release_state"], row["kept_offline"]) == ("OFFLINE", False)


def test_a_tenant_is_found_by_its_code_or_left_out(imports: Import, db: Engine) -> None:
    with db.begin() as connection:
        known = connection.execute(
            tenant.insert().values(tenant_code="hive", tenant_name="hive").returning(tenant.c.id)
        ).scalar_one()
        grant_all(connection)
    here, gone = (
        a_later_export(a_later_task(1, "a"), name=code, code=DEFINITION + 5, tenantCode=code)
        for code in ("hive", "gone")
    )
    first, second = imports(here, gone | {"schedule": None})
    assert (first["unmapped"], first["release_state"]) == ([], "ONLINE")
    assert [each["key"] for each in second["unmapped"]] == ["tenantCode"]
    assert second["release_state"] == "ONLINE"
    with db.connect() as connection:
        rows = select(process_definition.c.tenant_id).order_by(process_definition.c.name)
        assert connection.scalars(rows).all() == [-1, known]


def test_an_export_of_ours_takes_its_schedules_along(
    imports: Import,
    cli: Cli,
    db: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with db.begin() as connection:
        connection.execute(insert(environment).values(name="java", code=2**40))
        grant_all(connection)
    named = a_later_schedule(environmentCode=2**41)
    (made,) = imports(
        a_later_export(a_later_task(1, "work"), schedule=named),
        options=("--map", f"environment:{2**41}=java"),
    )
    assert made["unmapped"] == []
    options = ("--cron", "0 30 4 * * ?", "--misfire", "skip", "--zone", "Europe/Paris")
    secrets = ("--param", "db_password=hunter2", "--param", "day=x")
    code, _, err = cli("schedule", "create", "nightly", *options, *secrets)
    assert code == 0, err
    text = cli("definition", "export", "nightly")[1]
    assert "hunter2" not in text
    document = json.loads(text)
    first, second = document["schedules"]
    assert (first["timezoneId"], first["startTime"], first["warningGroupId"]) == (
        "Asia/Shanghai",
        "2024-01-01 00:00:00+08:00",
        4,
    )
    assert (first["environmentName"], second.get("environmentName")) == ("java", None)
    reference = "$ENV{ORCAFLOW_SECRET_DB_PASSWORD}"
    assert second["misfirePolicy"] == "skip"
    assert second["startParams"] == {"db_password": reference, "day": "x"}
    assert "hunter2" in cli("definition", "export", "nightly", "--with-secrets")[1]
    again = imports(document)
    assert (again[0]["changed"], [each["new"] for each in again[0]["schedules"]]) == (
        False,
        [False, False],
    )
    with db.begin() as connection:
        before = connection.execute(select(schedule).order_by(schedule.c.id)).all()
        connection.execute(delete(schedule))
        connection.execute(update(process_definition).values(release_state=0))
    path = tmp_path / "exported.json"
    path.write_text(text)
    code, _, err = cli("definition", "import", str(path))
    assert code != 0
    assert f"{reference}: the secret is neither in the environment nor in" in err
    monkeypatch.setenv("ORCAFLOW_SECRET_DB_PASSWORD", "hunter3")
    assert [each["new"] for each in imports(document)[0]["schedules"]] == [True, True]
    with db.connect() as connection:
        after = connection.execute(select(schedule).order_by(schedule.c.id)).all()
    assert json.loads(after[1].start_params) == {"db_password": "hunter3", "day": "x"}
    assert [row.environment_code for row in after] == [2**40, -1]
    kept = ("crontab", "start_time", "end_time", "timezone_id", "misfire_policy", "warning_type")
    assert [[getattr(row, key) for key in kept] for row in after] == [
        [getattr(row, key) for key in kept] for row in before
    ]


def test_a_schedule_keeps_its_environment_by_code_and_says_if_there_is_none_such(
    imports: Import, db: Engine
) -> None:
    with db.begin() as connection:
        connection.execute(insert(environment).values(name="java", code=2**40))
        grant_all(connection)

    def imported(name: str, **keys: Any) -> Any:
        given = a_later_schedule(**keys)
        return imports(a_later_export(a_later_task(1, "work"), name=name, schedule=given))[0]

    assert imported("kept", environmentCode=2**40)["unmapped"] == []
    lost = imported("lost", environmentCode=2**41)
    assert [each["key"] for each in lost["unmapped"]] == ["environmentCode"]
    assert f"orcaflow environment create NAME --code {2**41}" in lost["unmapped"][0]["cure"]
    (named,) = imported("named", environmentName="ja va")["unmapped"]
    assert "orcaflow environment create 'ja va' --config" in named["cure"]
    with db.connect() as connection:
        codes = connection.scalars(select(schedule.c.environment_code).order_by(schedule.c.id))
        assert codes.all() == [2**40, -1, -1]
