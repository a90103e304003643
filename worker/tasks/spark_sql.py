"""SPARK_SQL: statements, inline or a file, run in order in a Spark session of the task's own.

The session is one as PYSPARK's (`worker.launching.spark_session`). Statements are separated by `;`.
Parameters are bound by name, `:day`, with the types that were declared for them. In an inline
script `${day}` becomes a literal of the type (`worker.launching.spark_values`), `!{table}` the name
that is the value (`common.statement_names`), and time placeholders their dates. Nothing
is replaced in a file, which only the process of the task reads.
Up to `limit` rows of the last query go into a CSV file next to the log,
and the first `displayRows` into the log; a declared OUT parameter takes the column of its name, as
in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from common.model.dataset_views import read_views
from common.model.task_type import (
    FILE_TEXT,
    RESULT,
    DatasourceUse,
    Fault,
    IsParameter,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    ValueFaultError,
    is_absent,
    text_of,
)
from common.statement_names import name_notes
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import FILE, RAW_SCRIPT, SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources
from worker.launching.spark_texts import check_spark_text, spark_text

_REFERENCE: Final = re.compile(r"\$\{([^{}\s]{1,80})\}")


def _text_faults(params: Mapping[str, Any], is_parameter: IsParameter, /) -> Iterator[Fault]:
    script = params.get(RAW_SCRIPT.name)
    if is_absent(script):
        return
    try:
        check_spark_text(str(script), is_parameter)
    except ValueFaultError as error:
        yield Fault(key=RAW_SCRIPT.name, problem=str(error))


def _warnings(params: Mapping[str, Any]) -> Iterator[Fault]:
    yield from name_notes(params, (RAW_SCRIPT.name,))
    for name in dict.fromkeys(_REFERENCE.findall(text_of(params, FILE_TEXT.name))):
        yield Fault(
            key=FILE_TEXT.name,
            problem=f"${{{name}}} in a file is not replaced: write :{name} for a value",
        )


def _check_views(value: Any) -> None:
    read_views(value)


LIMIT: Final = Key(
    name="limit",
    shape=Shape.NUMBER,
    about="Rows of the last query that are kept.",
    default=1_000,
    highest=100_000,
)
DISPLAY_ROWS: Final = Key(
    name="displayRows",
    shape=Shape.NUMBER,
    about="Rows of the last query that the log shows.",
    default=20,
    highest=1_000,
)
DATASETS: Final = Key(
    name="datasets",
    shape=Shape.ANY,
    about="Datasets that are views of the session: objects with dataset, interval, view, time.",
    check=_check_views,
    is_literal=True,
)
SPEC: Final = TaskTypeSpec(
    name="SPARK_SQL",
    about="Statements of Spark SQL.",
    kind=TaskKind.SESSION,
    keys=(
        replace(RAW_SCRIPT, about="The statements; :name and ${name} are values of parameters."),
        replace(FILE, about="The statements' file, instead of rawScript."),
        FILE_TEXT,
        LIMIT,
        DISPLAY_ROWS,
        DATASETS,
        *SESSION_KEYS,
    ),
    needs=((RAW_SCRIPT.name, FILE.name),),
    alternatives=((RAW_SCRIPT.name, FILE.name),),
    faults=session_faults,
    text_faults=_text_faults,
    warnings=_warnings,
    named_keys=(RAW_SCRIPT.name,),
    program=RAW_SCRIPT.name,
    names_are_its_own=False,
    datasources=DatasourceUse.NAMED,
    memory_retry=True,
    artefacts=(RESULT,),
    session_work="worker.spark.session.sql",
)


class SparkSqlTask:
    """Runs `rawScript` or `file`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.spark_session import launch_with_session

        fetch_resources(context)
        file, inline = context.text("file").strip(), context.text("rawScript")
        context.text(FILE_TEXT.name)  # Refuses a value that is not text.
        if file and inline.strip():
            raise TaskParameterError(
                "params.rawScript and params.file are both given; which one is meant?"
            )
        path = ""
        if file:
            path = str(context.file("file", file))
        else:
            inline = _checked(context, inline)
        limit = context.number(LIMIT)
        shown = min(context.number(DISPLAY_ROWS), limit)
        return launch_with_session(
            context,
            SPEC,
            {
                "script": path,
                "text": inline,
                "datasets": _views(context),
                "place": "params.file" if path else "params.rawScript",
                "limit": limit,
                "rows_shown": shown,
                "result_file": str(context.artefact(RESULT)),
            },
            # Rows are of foreign origin.
            prints_outputs=False,
        )


TASK_TYPE: Final = SparkSqlTask


def _views(context: TaskContext) -> list[dict[str, str]]:
    """Return the entries of `params.datasets`, with parameters put into their intervals."""
    given = context.params.get(DATASETS.name)
    if given is None or given in ("", {}):
        return []
    with fault_at(DATASETS.name):
        entries = read_views(given)
        for entry in entries:
            if "interval" in entry:
                entry["interval"] = context.substitute(entry["interval"])
        return read_views(entries)


def _checked(context: TaskContext, given: str) -> str:
    """Return the script with its dates, names and values put in."""
    if not given.strip():
        raise TaskParameterError("params.rawScript has no statement, and there is no params.file")
    with fault_at(RAW_SCRIPT.name):
        return spark_text(context, given)
