"""Exports of DolphinScheduler 1.x: what is imported, and the warnings about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.model.states import FailureStrategy, Priority, WarningType
from operations.definition_files import (
    DefinitionDocument,
    InvalidFilesError,
    Mistake,
    read_definition_files,
)
from operations.exported_schedule import ExportedSchedule
from operations.findings import Finding, Severity
from operations.references import Kind
from tests.unit.definition_documents import a_child, a_dependent, a_task, an_export
from tests.unit.later_definitions import a_later_export, a_later_task


def read(folder: Path, *content: object, **given: str) -> list[DefinitionDocument]:
    paths = []
    for index, each in enumerate(content):
        path = folder / f"{index}.json"
        path.write_text(json.dumps(each))
        paths.append(path)
    mapping = {}
    for key, name in given.items():
        kind, _, number = key.rpartition("_")
        mapping[Kind(kind.replace("_", "-")), int(number)] = name
    return read_definition_files(paths, resources=folder / "resources", given=mapping)


def mistakes(folder: Path, *content: object) -> tuple[Mistake, ...]:
    with pytest.raises(InvalidFilesError) as caught:
        read(folder, *content)
    return caught.value.found


def unmapped(document: DefinitionDocument) -> dict[str, Finding]:
    return {each.key: each for each in document.findings if each.severity is Severity.UNMAPPED}


def node(document: DefinitionDocument, name: str) -> dict[str, Any]:
    (found,) = [each for each in document.document["tasks"] if each["name"] == name]
    return dict(found)


def test_the_object_and_the_list_of_the_original_are_both_read(tmp_path: Path) -> None:
    one, two = an_export(a_task("a"), name="one"), an_export(a_task("a"), name="two")
    found = read(tmp_path, one, [two])
    assert [each.name for each in found] == ["one", "two"]
    assert (found[0].description, found[0].timeout_minutes) == ("each night", 30)
    assert (found[0].locations, found[0].connects) == ('{"tasks-1":{"x":1}}', "[]")


@pytest.mark.parametrize("is_later", [False, True])
def test_a_service_that_a_script_starts_stays_alive(tmp_path: Path, is_later: bool) -> None:
    script = {"rawScript": "nohup java -jar app.jar > out 2>&1 &"}
    export = (
        a_later_export(a_later_task(1, "a", params=script))
        if is_later
        else an_export(a_task("a", params=script))
    )
    (found,) = read(tmp_path, export)
    assert node(found, "a")["params"]["keepChildren"] is True
    (own,) = read(tmp_path, {"name": "own", "tasks": [a_task("a", params=script)]})
    assert "keepChildren" not in node(own, "a")["params"]


def test_a_schedule_is_read_with_its_words(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        an_export(
            a_task("a"),
            scheduleCrontab="0 0 3 * * ? *",
            scheduleStartTime="2020-01-01 00:00:00",
            scheduleEndTime="2100-01-01 00:00:00",
            scheduleReleaseState="ONLINE",
            scheduleFailureStrategy="END",
            scheduleProcessInstancePriority="HIGH",
            scheduleWarningType="FAILURE",
            scheduleWarningGroupName="on call",
            scheduleWorkerGroupName="etl",
        ),
    )
    assert found.schedule == ExportedSchedule(
        crontab="0 0 3 * * ? *",
        start="2020-01-01 00:00:00",
        end="2100-01-01 00:00:00",
        failure_strategy=FailureStrategy.END,
        priority=Priority.HIGH,
        warning_type=WarningType.FAILURE,
        worker_group="etl",
    )
    assert "'on call' is not kept" in unmapped(found)["scheduleWarningGroupName"].problem


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"scheduleCrontab": "0 0 3 * *"}, "6 or 7 fields"),
        ({"scheduleStartTime": "soon"}, "'soon' is no time"),
        ({"scheduleStartTime": "2030-01-01", "scheduleEndTime": "2029-01-01"}, "it ends"),
    ],
)
def test_a_schedule_that_can_not_be_read_is_reported_and_its_cron_line_not_lost(
    tmp_path: Path, changes: dict[str, str], cause: str
) -> None:
    (found,) = read(
        tmp_path, an_export(a_task("a"), **{"scheduleCrontab": "0 0 3 * * ?"} | changes)
    )
    assert found.schedule is None
    problem = unmapped(found)["scheduleCrontab"].problem
    assert "'0 0 3 * *" in problem
    assert cause in problem


def test_a_foreign_tenant_is_reported_and_no_tenant_of_this_database_takes_its_place(
    tmp_path: Path,
) -> None:
    (found,) = read(tmp_path, an_export(a_task("a")))
    assert found.tenant_id == -1
    assert "--map tenant:3=CODE" in unmapped(found)["tenantId"].cure


def test_a_sub_process_without_a_name_keeps_its_definition_offline_with_the_cure(
    tmp_path: Path,
) -> None:
    (found,) = read(tmp_path, an_export(a_child("run it", processDefinitionId="42")))
    finding = unmapped(found)["params.processDefinitionId"]
    assert (finding.node, finding.keeps_offline) == ("run it", True)
    assert "--map definition:42=NAME" in finding.cure
    # Here that id is another definition's (trap T90).
    assert "processDefinitionId" not in node(found, "run it")["params"]


def test_one_foreign_id_refuses_none_of_the_definitions_of_a_file(tmp_path: Path) -> None:
    query = a_task("q", type="SQL", params={"type": "MYSQL", "datasource": 7, "sql": "select 1"})
    found = read(tmp_path, [an_export(query, name="one"), an_export(a_task("a"), name="two")])
    assert [any(each.keeps_offline for each in one.findings) for one in found] == [True, False]


def test_a_sub_process_follows_the_id_that_a_definition_of_the_file_has(tmp_path: Path) -> None:
    """An export of 1.3 names sub processes by id alone."""
    child = {**an_export(a_task("a"), name="child"), "processDefinitionId": 42}
    parent = an_export(a_child("run it", processDefinitionId=42), name="parent")
    found = read(tmp_path, [parent, child])
    assert node(found[0], "run it")["params"] == {"processDefinitionName": "child"}


def test_a_person_gives_the_name_of_a_foreign_id(tmp_path: Path) -> None:
    export = an_export(
        a_child("c", processDefinitionId=42),
        a_task("q", type="SQL", params={"type": "MYSQL", "datasource": 7, "sql": "select 1"}),
        a_task("g", workerGroupId=2),
        a_task("r", params={"rawScript": "true", "resourceList": [{"id": 5}]}),
    )
    (tmp_path / "lib.sh").write_text("")
    (found,) = read(
        tmp_path,
        export,
        definition_42="child",
        datasource_7="warehouse",
        worker_group_2="etl",
        resource_5="lib.sh",
        tenant_3="hive",
    )
    assert node(found, "c")["params"] == {"processDefinitionName": "child"}
    assert node(found, "q")["params"]["datasourceName"] == "warehouse"
    assert node(found, "g")["workerGroup"] == "etl"
    assert node(found, "r")["params"]["resourceList"] == [{"res": str(tmp_path / "lib.sh")}]
    assert found.document["tenantCode"] == "hive"


def test_every_foreign_id_without_a_name_is_reported_at_once(tmp_path: Path) -> None:
    export = an_export(
        a_child("c", processDefinitionId=42),
        a_dependent("d", projectId=1, definitionId=9),
        a_task("q", type="SQL", params={"type": "MYSQL", "datasource": 7, "sql": "select 1"}),
        a_task("g", workerGroupId=2),
        a_task("r", params={"rawScript": "true", "resourceList": [{"id": 5}]}),
        a_task("f", type="FLINK"),
    )
    (found,) = read(tmp_path, export)
    keys = {(each.node, each.key) for each in found.findings if each.keeps_offline}
    assert keys == {
        ("f", "type"),
        ("c", "params.processDefinitionId"),
        ("d", "dependence.dependTaskList[0].dependItemList[0].definitionId"),
        ("q", "params.datasource"),
        ("g", "workerGroupId"),
        ("r", "params.resourceList[0].id"),
    }


@pytest.mark.parametrize("kind", ["FLINK", "MR", "DATAX", "SQOOP", "CONJURE"])
def test_a_type_that_is_not_run_keeps_an_export_offline_and_refuses_no_file(
    tmp_path: Path, kind: str
) -> None:
    params = {"mainClass": "a.B", "mainJar": {"id": 5}, "localParams": [], "dsType": "MYSQL"}
    export = an_export(
        a_task("work"),
        a_task("foreign", type=kind, params=params, workerGroupId=2, preTasks=["work"]),
        a_task("after", preTasks=["foreign"]),
    )
    (found,) = read(tmp_path, export)
    offline = {(each.node, each.key) for each in found.findings if each.keeps_offline}
    assert offline == {
        ("foreign", "type"),
        ("foreign", "params.mainJar.id"),
        ("foreign", "workerGroupId"),
    }
    assert kind in unmapped(found)["type"].problem
    assert node(found, "foreign")["params"] == params
    assert (found.task_count, found.timeout_minutes, found.tenant_id) == (3, 30, -1)


def test_a_task_of_an_export_that_can_not_run_keeps_it_offline_beside_others(
    tmp_path: Path,
) -> None:
    (found,) = read(
        tmp_path,
        an_export(
            a_task("work"),
            a_task("ask", type="HTTP", params={"url": "ftp://h"}),
            a_task("flow", type="FLINK"),
        ),
    )
    offline = {(each.node, each.key) for each in found.findings if each.keeps_offline}
    assert offline == {("ask", "params.url"), ("flow", "type")}


@pytest.mark.parametrize("kind", [None, 7, "", ["SHELL"]])
def test_an_export_with_a_type_that_is_no_text_is_refused(tmp_path: Path, kind: object) -> None:
    (mistake,) = mistakes(tmp_path, an_export(a_task("a", type=kind)))
    assert (mistake.row()["node"], mistake.row()["key"]) == ("a", "type")


def test_a_file_of_our_own_with_an_unknown_type_is_refused(tmp_path: Path) -> None:
    (mistake,) = mistakes(tmp_path, {"name": "n", "tasks": [a_task("f", type="FLINK")]})
    assert (mistake.row()["node"], mistake.row()["key"]) == ("f", "type")


def test_t90_a_dependent_follows_the_name_and_not_the_foreign_id(tmp_path: Path) -> None:
    item = {
        "projectId": 8,
        "projectName": "etl",
        "definitionId": 9,
        "definitionName": "load",
        "definitionList": [{"value": 9, "label": "an older name"}],
    }
    (found,) = read(tmp_path, an_export(a_dependent("d", **item)))
    (stored,) = node(found, "d")["dependence"]["dependTaskList"][0]["dependItemList"]
    assert stored["definitionName"] == "load"
    assert "definitionId" not in stored
    assert "definitionList" not in stored


def test_names_in_dependents_of_one_file_name_the_sub_processes_of_another(tmp_path: Path) -> None:
    first = an_export(a_dependent("d", definitionId=42, definitionName="load"), name="first")
    second = an_export(a_child("c", processDefinitionId=42), name="second")
    _, found = read(tmp_path, first, second)
    assert node(found, "c")["params"] == {"processDefinitionName": "load"}


def test_the_groups_of_1_3_are_taken_by_name(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path,
        an_export(a_task("a", workerGroup="default"), a_task("b", workerGroup="etl")),
    )
    assert node(found, "b")["workerGroup"] == "etl"


def test_an_id_in_a_file_of_our_own_is_one_of_this_database(tmp_path: Path) -> None:
    own = {"name": "n", "tasks": [a_child("c", processDefinitionId=42)]}
    (found,) = read(tmp_path, own)
    assert node(found, "c")["params"] == {"processDefinitionId": 42}


def test_t36e_definitions_that_start_each_other_are_refused_across_files(tmp_path: Path) -> None:
    def starts(name: str, child: str) -> dict[str, Any]:
        return {"name": name, "tasks": [a_child(f"to {child}", processDefinitionName=child)]}

    found = mistakes(tmp_path, starts("a", "b"), starts("b", "c"), starts("c", "a"))
    assert [each.row()["node"] for each in found] == ["to b", "to c", "to a"]
    assert "'a' → 'b' → 'c' → 'a'" in str(found[0])


def test_t36e_a_definition_that_starts_itself_is_refused(tmp_path: Path) -> None:
    (found,) = mistakes(
        tmp_path, {"name": "a", "tasks": [a_child("again", processDefinitionName="a")]}
    )
    assert "'a' → 'a'" in str(found)


def test_dependents_that_wait_for_each_other_today_are_refused(tmp_path: Path) -> None:
    def waits(name: str, other: str, **item: Any) -> dict[str, Any]:
        return {"name": name, "tasks": [a_dependent("wait", definitionName=other, **item)]}

    found = mistakes(tmp_path, waits("a", "b"), waits("b", "a"))
    assert [each.row()["definition"] for each in found] == ["a", "b"]
    assert "'a' → 'b' → 'a'" in str(found[0])
    assert str(found[0].row()["key"]).endswith("dependItemList[0].definitionName")
    # Yesterday's run can be waited for, and so can a task that comes before the other DEPENDENT.
    read(tmp_path, waits("a", "b"), waits("b", "a", dateValue="last1Days"))
    read(tmp_path, waits("a", "b", depTasks="wait"), waits("b", "a"))


def test_a_child_that_waits_for_its_parent_today_is_refused(tmp_path: Path) -> None:
    parent = {"name": "a", "tasks": [a_child("child", processDefinitionName="b")]}
    child = {"name": "b", "tasks": [a_dependent("wait", definitionName="a")]}
    assert len(mistakes(tmp_path, parent, child)) == 2


def test_a_warning_has_its_place_and_keeps_nothing_out(tmp_path: Path) -> None:
    query = {"type": "POSTGRESQL", "datasource": 1, "sql": "select '${day}', '${known}'"}
    (found,) = read(
        tmp_path,
        {
            "name": "nightly",
            "tasks": [
                a_task("a", params={"rawScript": " "}),
                a_task("b", maxRetryTimes=3, retryInterval=0),
                a_task("q", type="SQL", params=query),
                a_dependent("d", definitionName="nightly"),
                a_task("e", conditionResult={"successNode": ["a"], "failedNode": []}),
            ],
            "timeout": 10,
            "globalParams": [{"prop": "known", "value": "1"}, {"prop": "known", "value": "2"}],
        },
    )
    texts = {(each.node, each.key): str(each) for each in found.findings}
    assert set(texts) == {
        (None, "globalParams[1].prop"),
        ("a", "params.rawScript"),
        ("b", "retryInterval"),
        ("q", "params.sql"),
        ("d", "dependence.dependTaskList[0].dependItemList[0]"),
        ("e", "conditionResult"),
    }
    assert "${day}" in texts["q", "params.sql"]


def test_a_plain_definition_has_no_warnings(tmp_path: Path) -> None:
    tail = {
        "runFlag": "NORMAL",
        "dependence": {},
        "conditionResult": {"successNode": [""], "failedNode": [""]},
        "maxRetryTimes": "0",
        "retryInterval": "1",
        "timeout": {"strategy": "", "interval": None, "enable": False},
        "taskInstancePriority": "MEDIUM",
        "workerGroupId": -1,
        "description": "",
        "id": "tasks-1",
    }
    (found,) = read(tmp_path, {"name": "n", "tasks": [a_task("a", **tail)]})
    assert found.findings == ()
