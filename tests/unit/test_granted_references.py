"""Every object that a definition can name is found, for every task type."""

from __future__ import annotations

from typing import Any

import pytest

from common.model.grants import GrantKind
from common.model.task_type import DATASOURCES, DatasourceUse
from common.task_types import known_task_types, task_type_spec
from operations.granted_references import named_objects, without_stale_numbers

TYPES = sorted(known_task_types())
OF_NODE: list[tuple[dict[str, Any], GrantKind, str | int]] = [
    ({"workerGroup": "etl"}, GrantKind.WORKER_GROUP, "etl"),
    ({"workerGroupId": 7}, GrantKind.WORKER_GROUP, 7),
    ({"workerGroupId": "7"}, GrantKind.WORKER_GROUP, 7),
    ({"environmentName": "java"}, GrantKind.ENVIRONMENT, "java"),
    ({"environmentCode": 2**40}, GrantKind.ENVIRONMENT, 2**40),
    ({"taskGroupId": 3}, GrantKind.POOL, 3),
    ({"taskGroups": ["db"]}, GrantKind.POOL, "db"),
    ({"taskGroups": '[{"name": "db", "slots": 2}]'}, GrantKind.POOL, "db"),
    ({"taskGroups": [{"id": 4, "name": "db"}]}, GrantKind.POOL, 4),
]
"""Keys that every node may have, with the object that each key names."""


def found(node: dict[str, Any], **document: Any) -> list[tuple[GrantKind, str | int]]:
    named = named_objects({"tasks": [{"name": "a", "params": {}, **node}], **document})
    return [(each.kind, each.given) for each in named]


@pytest.mark.parametrize("name", TYPES)
def test_each_key_of_a_task_type_that_names_a_data_source_is_seen(name: str) -> None:
    spec = task_type_spec(name)
    keys = {each.name for each in spec.keys if each.name.lower().startswith("datasource")}
    match spec.datasources:
        case DatasourceUse.NONE:
            # A type with such a key has to declare its use.
            assert keys == set()
        case DatasourceUse.ONE:
            assert keys <= {"datasource", "datasourceName"}
            for key, given in (("datasource", 7), ("datasource", "7"), ("datasourceName", "dw")):
                expected = 7 if key == "datasource" else given
                node = {"type": name, "params": {key: given}}
                assert found(node) == [(GrantKind.DATASOURCE, expected)]
        case DatasourceUse.NAMED:
            assert keys <= {DATASOURCES}
            for given in ({"a": 7, "b": "dw"}, [7, "dw"], ["7", "dw"]):
                node = {"type": name, "params": {DATASOURCES: given}}
                assert found(node) == [(GrantKind.DATASOURCE, each) for each in (7, "dw")]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("keys", "kind", "given"), OF_NODE)
def test_each_key_of_a_node_that_names_an_object_is_seen(
    name: str, keys: dict[str, Any], kind: GrantKind, given: str | int
) -> None:
    assert (kind, given) in found({"type": name, **keys})


def test_a_tenant_is_seen_by_its_code_and_its_id_and_defaults_name_nothing() -> None:
    assert found({}, tenantCode="etl") == [(GrantKind.TENANT, "etl")]
    assert found({}, tenantId=9) == [(GrantKind.TENANT, 9)]
    assert found({"workerGroup": "default", "workerGroupId": -1, "environmentCode": -1}) == []
    assert found({"taskGroupId": 0, "taskGroups": [], "environmentName": ""}, tenantId=-1) == []


def test_a_number_beside_a_name_does_not_hide_the_name() -> None:
    node = {
        "name": "a",
        "type": "SQL",
        "workerGroup": "theirs",
        "workerGroupId": 1,
        "environmentName": "theirs",
        "environmentCode": 1,
        "params": {"datasourceName": "theirs", "datasource": 1},
    }
    document = {"tasks": [node], "tenantCode": "theirs", "tenantId": 1}
    without_stale_numbers(document)
    assert {each.given for each in named_objects(document)} == {"theirs"}
    assert len(list(named_objects(document))) == 4
