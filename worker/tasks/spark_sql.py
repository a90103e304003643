"""SPARK_SQL: statements, inline or a file, run in order in a Spark session of the task's own.

The session is one as PYSPARK's (`worker.launching.spark_session`). Statements are separated by `;`.
Parameters are bound by name, `:day`, with the types that were declared for them; no text of theirs
becomes part of a statement, so `${day}` is refused. Time placeholders are put into an inline
script, since only the author's own words can stand in them; a file is run as it is, and read by the
task's own process alone. Up to `limit` rows of the last query go into a CSV file beside the log,
and the first `displayRows` into the log; a declared OUT parameter takes the column of its name, as
in SQL.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from common.model.dataset_views import read_views
from common.model.task_type import (
    FILE_TEXT,
    RESULT,
    DatasourceUse,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    ValueFaultError,
)
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import FILE, RAW_SCRIPT, SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources
from worker.spark.session.statements import StatementError, split

_REFERENCE = re.compile(r"\$\{([^{}\s]{1,80})\}")


def _check(value: Any) -> None:
    try:
        statements = split(str(value).replace("\r\n", "\n"))
    except StatementError as error:
        raise ValueFaultError(str(error)) from error
    if not statements:
        raise ValueFaultError("has no statement")


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
)
SPEC: Final = TaskTypeSpec(
    name="SPARK_SQL",
    about="Statements of Spark SQL.",
    kind=TaskKind.SESSION,
    keys=(
        replace(RAW_SCRIPT, about="The statements; parameters are bound by name.", check=_check),
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
    """Return the script with its time placeholders put in. All that is wrong with it is raised."""
    place = "params.rawScript"
    text = context.dated(given.replace("\r\n", "\n"))
    try:
        statements = split(text)
    except StatementError as error:
        raise TaskParameterError(f"{place}, {error}") from error
    if not statements:
        raise TaskParameterError(f"{place} has no statement, and there is no params.file")
    for each in statements:
        reference = _REFERENCE.search(each.text)
        if reference is not None and reference[1] in context.parameters:
            name = reference[1]
            line = each.line + each.text.count("\n", 0, reference.start())
            raise TaskParameterError(
                f"{place}, line {line}: write :{name} for ${{{name}}}, which is never put into a"
                f" statement; in the name of a table write IDENTIFIER('sales_' || :{name})"
            )
    return text
