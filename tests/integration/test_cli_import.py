"""Importing into a real database: names become ids, and an import is all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert, select, update

from common.store.tables import (
    datasource,
    process_definition,
    process_definition_log,
    schedule,
    worker_group,
)
from tests.granting import grant_all
from tests.integration.conftest import Cli

Import = Callable[..., tuple[int, str, str]]


@pytest.fixture
def imports(cli: Cli, tmp_path: Path) -> Import:
    """Imports documents, each from a file of its own."""

    def run(*documents: object, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        paths = []
        for index, document in enumerate(documents):
            path = tmp_path / f"{index}.json"
            path.write_text(json.dumps(document))
            paths.append(str(path))
        return cli("definition", "import", *paths, *options, "-o", "json")

    return run


def a_shell(name: str = "work", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "SHELL",
        "params": {"rawScript": "true"},
        "preTasks": [],
    } | changes


def a_child(definition: str) -> dict[str, Any]:
    return a_shell("child", type="SUB_PROCESS", params={"processDefinitionName": definition})


def a_dependent(**item: Any) -> dict[str, Any]:
    full = {"depTasks": "ALL", "cycle": "day", "dateValue": "last1Days"} | item
    groups = [{"relation": "AND", "dependItemList": [full]}]
    return a_shell(
        "wait",
        type="DEPENDENT",
        params={},
        dependence={"relation": "AND", "dependTaskList": groups},
    )


def stored(db: Engine, name: str) -> tuple[int, dict[str, Any]]:
    with db.connect() as connection:
        row = connection.execute(
            select(process_definition).where(process_definition.c.name == name)
        ).one()
    return row.id, json.loads(row.process_definition_json)


def test_definitions_of_one_import_may_refer_to_each_other(imports: Import, db: Engine) -> None:
    code, out, _ = imports(
        {"name": "a", "tasks": [a_child("b")]},
        {"name": "b", "tasks": [a_shell(), a_dependent(definitionName="a")]},
    )
    assert code == 0
    assert [(row["version"], row["changed"]) for row in json.loads(out)] == [(1, True), (1, True)]
    a, a_json = stored(db, "a")
    b, b_json = stored(db, "b")
    assert a_json["tasks"][0]["params"] == {"processDefinitionId": b}
    (item,) = b_json["tasks"][1]["dependence"]["dependTaskList"][0]["dependItemList"]
    assert (item["definitionId"], item["projectId"]) == (a, 1)


def test_importing_references_again_changes_nothing(imports: Import) -> None:
    documents = (
        {"name": "a", "tasks": [a_child("b")]},
        {"name": "b", "tasks": [a_dependent(definitionName="b")]},
    )
    imports(*documents)
    code, out, _ = imports(*documents)
    assert code == 0
    assert [(row["version"], row["changed"]) for row in json.loads(out)] == [(1, False), (1, False)]


def test_what_is_referred_to_and_not_there_keeps_everything_out(imports: Import, cli: Cli) -> None:
    code, out, err = imports(
        {"name": "good", "tasks": [a_shell()]},
        {"name": "a", "tasks": [a_child("ghost"), a_dependent(definitionName="gone")]},
        {
            "name": "b",
            "tasks": [
                a_shell("q", type="SQL", params={"datasourceName": "dw", "sql": "select 1"}),
                a_shell("i", type="SUB_PROCESS", params={"processDefinitionId": 4711}),
            ],
        },
    )
    assert (code, out) == (1, "")
    for part in ("'a': task 'child'", "'ghost'", "'gone'", "the id 4711"):
        assert part in err
    assert json.loads(cli("definition", "list", "-o", "json")[1]) == []


def test_t36e_a_cycle_by_way_of_the_database_is_refused(imports: Import, db: Engine) -> None:
    assert imports({"name": "a", "tasks": [a_shell()]})[0] == 0
    assert imports({"name": "b", "tasks": [a_child("a")]})[0] == 0
    assert imports({"name": "c", "tasks": [a_child("b")]})[0] == 0
    code, _, err = imports({"name": "a", "tasks": [a_child("c")]})
    assert code == 1
    assert "'a' → 'c' → 'b' → 'a'" in err
    # A row typed by hand may name its start nodes instead of numbering them.
    text = json.dumps({"tasks": [a_child("c")]})
    with db.begin() as connection:
        connection.execute(
            insert(process_definition).values(name="d", process_definition_json=text)
        )
    assert imports({"name": "a", "tasks": [a_child("d")]})[0] == 1
    assert stored(db, "a")[1]["tasks"][0]["type"] == "SHELL"


def test_what_is_not_there_yet_and_may_come_is_reported(imports: Import, cli: Cli) -> None:
    imports({"name": "other", "tasks": [a_shell()]})
    cli("pool", "create", "known", "--size", "1", "--project", "default")
    tasks = [
        a_shell(taskGroups=["known", {"name": "new", "slots": 2}]),
        a_dependent(definitionName="other", depTasks="wrok"),
    ]
    code, out, _ = imports({"name": "a", "tasks": tasks})
    assert code == 0
    (row,) = json.loads(out)
    assert row["release_state"] == "OFFLINE"
    assert [(each["node"], each["problem"]) for each in row["unmapped"]] == [
        ("work", "project 'default' has no pool 'new'"),
    ]
    assert [(each["node"], each["problem"]) for each in row["warnings"]] == [
        ("wait", "the definition looked at has no task 'wrok'"),
    ]


def test_data_sources_and_worker_groups_are_found_by_name(imports: Import, db: Engine) -> None:
    with db.begin() as connection:
        source = connection.execute(
            insert(datasource)
            .values(name="dw", type=1, connection_params="{}")
            .returning(datasource.c.id)
        ).scalar_one()
        grant_all(connection)
    query = a_shell("q", type="SQL", params={"datasourceName": "dw", "sql": "select 1"})
    code, out, err = imports({"name": "a", "tasks": [query, a_shell(workerGroup="etl")]})
    assert code == 0
    (row,) = json.loads(out)
    assert [each["key"] for each in row["warnings"]] == ["workerGroup"]
    assert "--groups etl" in err
    with db.connect() as connection:
        group = connection.scalar(select(worker_group.c.id).where(worker_group.c.name == "etl"))
    tasks = stored(db, "a")[1]["tasks"]
    assert (tasks[0]["params"]["datasource"], tasks[1]["workerGroupId"]) == (source, group)


def test_an_import_that_fails_makes_no_worker_group(imports: Import, db: Engine) -> None:
    assert imports({"name": "a", "tasks": [a_shell(workerGroup="etl"), a_child("ghost")]})[0] == 1
    with db.connect() as connection:
        assert connection.scalars(select(worker_group.c.name)).all() == []


def test_an_export_of_the_original_gets_in_with_what_it_leaves_behind(
    imports: Import, db: Engine
) -> None:
    export = {
        "projectName": "etl",
        "processDefinitionName": "old",
        "processDefinitionJson": json.dumps(
            {"tasks": [a_shell("c", type="SUB_PROCESS", params={"processDefinitionId": 42})]}
        ),
        "processDefinitionLocations": '{"tasks-1":{"x":1}}',
        "scheduleCrontab": "0 0 3 * *",
    }
    child = {"name": "child", "tasks": [a_shell()]}
    code, out, err = imports([export], child, options=("--map", "definition:42=child"))
    assert code == 0
    row = json.loads(out)[0]
    assert [each["key"] for each in row["unmapped"]] == ["scheduleCrontab", "projectName"]
    assert "0 0 3 * *" in err
    assert stored(db, "old")[1]["tasks"][0]["params"] == {
        "processDefinitionId": stored(db, "child")[0]
    }
    with db.connect() as connection:
        query = select(process_definition.c.locations).where(process_definition.c.name == "old")
        assert connection.scalar(query) == '{"tasks-1":{"x":1}}'


def test_the_schedule_of_an_export_is_made_offline_and_only_once(
    imports: Import, db: Engine
) -> None:
    export = {
        "projectName": "default",
        "processDefinitionName": "old",
        "processDefinitionJson": json.dumps({"tasks": [a_shell()]}),
        "scheduleCrontab": "0 0 3 * * ? *",
        "scheduleStartTime": "2020-01-01 00:00:00",
        "scheduleEndTime": "9999-12-31 23:59:59",
        "scheduleReleaseState": "ONLINE",
        "scheduleWorkerGroupName": "etl",
    }
    for is_new in (True, False):
        code, out, err = imports([export], options=("--online",))
        assert code == 0
        (row,) = json.loads(out)
        assert row["schedule"] == {"id": 1, "crontab": "0 0 3 * * ? *", "new": is_new}
        assert ("OFFLINE" in err) is is_new
    with db.connect() as connection:
        (made,) = connection.execute(select(schedule)).all()
        group = connection.scalar(select(worker_group.c.id).where(worker_group.c.name == "etl"))
    assert (made.release_state, made.worker_group_id, made.end_time.year) == (0, group, 9999)
    # A definition that an import sets OFFLINE takes its schedules along.
    with db.begin() as connection:
        connection.execute(update(schedule).values(release_state=1))
    assert imports([export], options=("--offline",))[0] == 0
    with db.connect() as connection:
        assert connection.scalars(select(schedule.c.release_state)).all() == [0]


def test_an_export_of_ours_means_the_same_after_ids_have_changed(
    imports: Import, cli: Cli, db: Engine
) -> None:
    imports(
        {"name": "child", "tasks": [a_shell()]},
        {"name": "a", "tasks": [a_child("child"), a_dependent(definitionName="child")]},
    )
    text = cli("definition", "export", "a")[1]
    assert "processDefinitionId" not in text
    with db.begin() as connection:
        # Versions of before name their definition by its id, and stay in the former database.
        connection.execute(delete(process_definition_log))
        connection.execute(
            update(process_definition)
            .where(process_definition.c.name == "child")
            .values(id=process_definition.c.id + 1000)
        )
    assert imports(json.loads(text))[0] == 0
    child, _ = stored(db, "child")
    assert stored(db, "a")[1]["tasks"][0]["params"] == {"processDefinitionId": child}


def test_a_mapping_that_is_none_is_a_usage_error(imports: Import) -> None:
    for option in ("child", "definition:x=child", "planet:1=mars", "definition:1="):
        assert imports({"name": "a", "tasks": [a_shell()]}, options=("--map", option))[0] == 2


def test_lint_reports_mistakes_as_rows_with_their_places(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"name": "x", "tasks": [a_shell("a: b", maxRetryTimes="often")]}))
    code, out, _ = cli("definition", "lint", str(path), "-o", "json")
    (mistake,) = json.loads(out)["mistakes"]
    assert code == 1
    assert {key: mistake[key] for key in ("file", "definition", "node", "key")} == {
        "file": str(path),
        "definition": "x",
        "node": "a: b",
        "key": "maxRetryTimes",
    }


def test_an_export_holds_references_for_secrets_which_an_import_puts_back(
    cli: Cli, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"rawScript": "login ${db_password}"}
    tasks = [a_shell(params=script)]
    document: dict[str, Any] = {"name": "nightly", "processDefinitionJson": {"tasks": tasks}}
    parameter = {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"}
    document["processDefinitionJson"]["globalParams"] = [parameter]
    path = tmp_path / "nightly.json"
    path.write_text(json.dumps(document))
    assert cli("definition", "import", str(path))[0] == 0

    def row_of(name: str) -> str:
        with db.connect() as connection:
            row = connection.execute(
                select(process_definition).where(process_definition.c.name == name)
            ).one()
        return f"{row.process_definition_json} {row.global_params}"

    code, out, err = cli("definition", "export", "nightly")
    assert (code, "hunter2" in out) == (0, False)
    assert "1 secret left out: set ORCAFLOW_SECRET_DB_PASSWORD" in err
    assert "hunter2" in cli("definition", "export", "nightly", "--with-secrets")[1]
    path.write_text(out)
    before = row_of("nightly")
    (row,) = json.loads(cli("definition", "import", str(path), "-o", "json")[1])
    assert (row["changed"], row_of("nightly")) == (False, before)

    path.write_text(out.replace('"nightly"', '"elsewhere"'))
    code, _, err = cli("definition", "import", str(path))
    assert code != 0
    assert "$ENV{ORCAFLOW_SECRET_DB_PASSWORD}: the secret is neither in the environment" in err
    monkeypatch.setenv("ORCAFLOW_SECRET_DB_PASSWORD", 'hun"ter3')
    assert cli("definition", "import", str(path))[0] == 0
    assert row_of("elsewhere").count('hun\\"ter3') == 2
    assert "ENV{" not in row_of("elsewhere")


def test_an_edited_script_is_another_version_at_the_database_and_by_a_server_x68(
    cli: Cli, remote: Cli, tmp_path: Path, db: Engine
) -> None:
    script, file = tmp_path / "clean.py", tmp_path / "nightly.json"
    task = {"name": "a", "type": "PYTHON", "params": {"file": "clean.py"}, "preTasks": []}
    document = {"name": "nightly", "processDefinitionJson": {"tasks": [task]}}
    file.write_text(json.dumps(document), encoding="utf-8")
    for number, run in enumerate((cli, remote, cli), start=1):
        script.write_text(f"print({number})", encoding="utf-8")
        told = run("definition", "import", str(file))
        assert told[1].startswith(f"imported: nightly (version {number}"), told
        assert run("definition", "import", str(file))[1].startswith("unchanged: nightly")
        with db.connect() as connection:
            stored = connection.scalar(select(process_definition.c.process_definition_json))
        (node,) = json.loads(stored or "")["tasks"]
        if run is remote:
            assert node["params"] == {"file": "clean.py", "fileText": f"print({number})"}
        else:
            assert node["params"]["digests"].keys() == {str(script)}
    assert cli("definition", "import", str(file), "--inline")[0] == 0
    made = cli("definition", "propose", str(file))
    assert made[0] == 4, made  # It equals the definition in force.
