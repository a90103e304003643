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

from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.resources import fetch_resources
from worker.launching.spark_session import launch_with_session
from worker.spark.session.statements import StatementError, split
from worker.tasks.sql import RESULT

_LIMIT = 1_000
_MOST_ROWS = 100_000
_ROWS_SHOWN = 20
_MOST_ROWS_SHOWN = 1_000

_REFERENCE = re.compile(r"\$\{([^{}\s]{1,80})\}")


class SparkSqlTask:
    """Runs `rawScript` or `file`."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        file, inline = context.text("file").strip(), context.text("rawScript")
        if file and inline.strip():
            raise TaskParameterError(
                "params.rawScript and params.file are both given; which one is meant?"
            )
        path = ""
        if file:
            path = str(context.file("file", file))
        else:
            inline = _checked(context, inline)
        limit = min(context.number("limit") or _LIMIT, _MOST_ROWS)
        shown = min(context.number("displayRows") or _ROWS_SHOWN, _MOST_ROWS_SHOWN, limit)
        return launch_with_session(
            context,
            "sql",
            {
                "script": path,
                "text": inline,
                "place": "params.file" if path else "params.rawScript",
                "limit": limit,
                "rows_shown": shown,
                "result_file": str(context.artefact(RESULT)),
            },
            # Rows are strangers' words.
            prints_outputs=False,
        )


def _checked(context: TaskContext, given: str) -> str:
    """The script with its time placeholders put in; what is wrong with it is told at once."""
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
