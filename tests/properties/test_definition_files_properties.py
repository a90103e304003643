"""Files of definitions with any content: read, or refused with places; no other error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.model.reach import Target
from operations.definition_files import (
    DefinitionDocument,
    InvalidFilesError,
    Mistake,
    Place,
    read_definition_files,
)
from operations.definition_reach import Reach
from operations.references import Catalog, number_references, wanted

TYPES = ("SHELL", "SQL", "PROCEDURE", "SUB_PROCESS", "DEPENDENT", "CONDITIONS", "SWITCH", "FLINK")
KEYS = (
    "params", "dependence", "conditionResult", "timeout", "preTasks", "workerGroupId", "retryBackoff",
    "workerGroup", "taskGroups", "runFlag", "maxRetryTimes", "waitStartTimeout", "delayTime",
)  # fmt: skip
INNER_KEYS = (
    "processDefinitionId", "processDefinitionName", "datasource", "datasourceName", "localParams",
    "resourceList", "mainJar", "rawScript", "udfs", "relation", "dependTaskList", "dependItemList",
    "definitionId", "definitionName", "definitionList", "depTasks", "dateValue", "cycle", "id",
    "res", "name", "value", "label", "enable", "interval", "successNode", "switchResult",
)  # fmt: skip
LATER_KEYS = (
    "definitionCode", "depTaskCode", "processDefinitionCode", "workflowDefinitionCode", "httpBody",
    "resourceName", "programType", "namespace", "segmentSeparator", "failurePolicy", "nextNode",
    "dependence", "conditionResult", "waitStartTimeout", "sqlResource", "failedNode", "url",
)  # fmt: skip
TASK_KEYS = (
    "flag", "taskPriority", "workerGroup", "environmentCode", "failRetryTimes", "timeoutFlag",
    "timeoutNotifyStrategy", "timeout", "delayTime", "taskGroupId", "isCache", "taskExecuteType",
    "description", "cpuQuota",
)  # fmt: skip
SCHEDULE_KEYS = (
    "crontab", "startTime", "endTime", "timezoneId", "failureStrategy", "warningGroupId",
    "workerGroup", "tenantCode", "environmentCode", "environmentName", "misfirePolicy", "deadline", "startParams",
)  # fmt: skip

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "b", "ALL", "today", "day", "OR", "[", "{}", "[[[]]]", "${x}", "42"]),
    st.text(max_size=5),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(INNER_KEYS + LATER_KEYS), inner, max_size=4),
        # An object may come as text that holds it.
        inner.map(json.dumps),
    ),
    max_leaves=12,
)
nodes = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c", ""]), "type": st.sampled_from(TYPES)},
    optional=dict.fromkeys(KEYS, values),
)
definitions = st.fixed_dictionaries(
    {"tasks": st.lists(st.one_of(nodes, nodes, nodes, leaves), max_size=4)},
    optional={"globalParams": values, "timeout": leaves, "tenantId": leaves},
)
exports = st.fixed_dictionaries(
    {
        "processDefinitionName": st.sampled_from(["x", "y"]),
        "processDefinitionJson": st.one_of(definitions, definitions.map(json.dumps)),
    },
    optional={"scheduleCrontab": leaves, "projectName": leaves, "executionType": leaves},
)
codes = st.one_of(st.integers(1, 4), st.integers(1, 4), leaves)
later_exports = st.fixed_dictionaries(
    {
        "processDefinition": st.fixed_dictionaries(
            {"name": st.sampled_from(["x", "y"])},
            optional=dict.fromkeys(("code", "globalParams", "timeout", "tenantId", "flag"), leaves),
        ),
        "taskDefinitionList": st.lists(
            st.fixed_dictionaries(
                {
                    "code": codes,
                    "name": st.sampled_from(["a", "b", "c", "d"]),
                    "taskType": st.sampled_from((*TYPES, "SPARK", "HTTP", "SUB_WORKFLOW")),
                    "taskParams": values,
                },
                optional=dict.fromkeys(TASK_KEYS, leaves),
            ),
            max_size=3,
            unique_by=(lambda task: str(task["code"]), lambda task: task["name"]),
        ),
        "processTaskRelationList": st.lists(
            st.fixed_dictionaries({"preTaskCode": st.just(0), "postTaskCode": codes}), max_size=3
        ),
    },
    optional={
        "schedule": st.one_of(leaves, st.dictionaries(st.sampled_from(SCHEDULE_KEYS), values))
    },
)


@given(documents=st.lists(st.one_of(exports, definitions, later_exports), max_size=3))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_file_is_read_or_refused_with_places(tmp_path: Path, documents: list[Any]) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(documents))
    found, mistakes = _read(path)
    assert all(mistake.row()["problem"] for mistake in mistakes)
    assert bool(found) != bool(mistakes) or documents == []
    for document in found:
        inner = json.loads(document.process_definition_json)
        names = wanted(inner)
        target = Target(id=7, project_id=1, name="")
        catalog = Catalog(
            reach=Reach(
                names=dict.fromkeys(names.definition_names, (target,)),
                ids=dict.fromkeys(names.definition_ids, target),
                codes=dict.fromkeys(names.definition_codes, target),
            ),
            datasources=dict.fromkeys(names.datasource_names, (7,)),
            datasource_ids=names.datasource_ids,
            worker_groups=dict.fromkeys(names.worker_group_names, 7),
            tenants=dict.fromkeys(names.tenant_codes, 7),
        )
        # Every reference of a document was reported, and once resolved none is left.
        assert list(number_references(inner, catalog)) == []
        assert wanted(inner).definition_names == frozenset()


def _read(path: Path) -> tuple[list[DefinitionDocument], tuple[Mistake, ...]]:
    try:
        return read_definition_files([path], resources=path.parent), ()
    except InvalidFilesError as error:
        return [], error.found


@given(text=st.text(max_size=60), node=st.text(min_size=1, max_size=20))
def test_a_mistake_of_a_task_is_taken_apart_again(text: str, node: str) -> None:
    mistake = Mistake(
        place=Place(file=Path("x.json")), text=f"task {node!r}, params.rawScript: {text}"
    )
    row = mistake.row()
    assert (row["node"], row["key"], row["problem"]) == (node, "params.rawScript", text)
