"""Tasks of every built-in type, values for their keys, and what the launcher says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.store.worker.ports import DataSource
from tests.unit.preparing import prepared
from worker.launching.base import TaskParameterError

SOURCE = DataSource(
    id=1, name="dw", type=1, connection_params='{"url": "postgresql://u:p@h:5432/d"}'
)
RULES = [{"type": "row_count", "min": 1}]

# The built-in types, each with the params of a task that can be launched.
GOOD: dict[str, dict[str, Any]] = {
    "SHELL": {"rawScript": "true"},
    "PYTHON": {"rawScript": "1"},
    "PYSPARK": {"rawScript": "1"},
    "SPARK_SQL": {"rawScript": "select 1"},
    "DATA_QUALITY": {"table": "t", "rules": RULES},
    "SPARK": {
        "mainJar": "hdfs://h/j.jar",
        "programType": "JAVA",
        "mainClass": "M",
        "deployMode": "local",
    },
    "SQL": {"datasource": 1, "sql": "select 1"},
    "PROCEDURE": {"datasource": 1, "method": "f"},
    "HTTP": {"url": "http://localhost/"},
    "STREAM": {"supervisor": "flights"},
    "COMPACT": {"dataset": "flights", "interval": "2026-11-20/P1D"},
    "TOPOLOGY": {"topology": "words"},
}
_ITEM = {"relation": "AND", "dependTaskList": []}
FILLED: dict[str, dict[str, Any]] = {
    **{name: {"params": params} for name, params in GOOD.items()},
    "SUB_PROCESS": {"params": {"processDefinitionName": "region"}},
    "DEPENDENT": {"params": {}, "dependence": _ITEM},
    "CONDITIONS": {"params": {}, "dependence": _ITEM, "conditionResult": {"successNode": ["a"]}},
    "SWITCH": {"params": {}, "switchResult": {"dependTaskList": [], "nextNode": "a"}},
}
"""The entries of a task of each type, those of the master too, that a person fills in."""
VALUES: tuple[Any, ...] = (
    *("", " ", "x", "7", "-7", "1.5", "512M", "2G", "é", "a b", "a,b", "'open", "-x", "http://h/"),
    *("local:/x/a.jar", "file:/x/a.py", "file://h/a.py", "hdfs:/a.py", "/x/*.py"),
    *("${x}", "$[yyyyMMdd]", "GET", "post", "client", "CLUSTER", "local", "python", "0", "QUERY"),
    *(0, 1, -1, 7, 1.5, True, False, None, [], {}, ["a"], [1], [None], [""], {"a": "b"}),
    *({"a": 1}, {"a": True}, {"a": []}, {"res": "x"}, {"id": 3}, [{"res": "x"}], [{"id": 3}], [[]]),
)
# Found on the worker, by its settings or beside the attempt.
PLACES = (
    *(
        "there is no file",
        "no file on this worker matches",
        "is a directory",
        "no Spark profile",
        "may not lead out",
        "can't be had",
    ),
    *("another file has the name", "no name of a namespace", "is not for the master"),
    *(
        "must be the id of a data source; `orcaflow",
        "the project has no data source",
        "run elsewhere",
    ),
    *("could be neither followed nor stopped", "is not among those of", "stands inside"),
    *("which is not on this worker", "there is no program"),
)


def launched(home: Path, name: str, params: dict[str, Any]) -> str:
    """The message with which the launcher refuses a task; "" if it accepts it."""
    (home / "tasks/logs/1/2").mkdir(parents=True)
    try:
        prepared(home, name, params, datasource=SOURCE, datasources=(SOURCE,))
    except TaskParameterError as error:
        return str(error)
    return ""
