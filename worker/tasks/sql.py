"""SQL: statements before, one query or any number of other statements, statements after.

The keys are those of the specification §1.20.4. All statements run on one connection, each by
itself (who wants a transaction writes BEGIN and COMMIT), and the first that fails ends the attempt
as a failure, be it the last one (T19). Parameters are bound, never spliced (X11); time placeholders
are put in as text, since only the author's own words can stand in them. `sqlType` 0 is a query: one
statement that returns rows, all of which go into a CSV file beside the log, and the first
`displayRows` (10) into the log. Any other statement is `sqlType` 1, several of them separated by
`;` (T19b). Nothing is mailed from here: `receivers`, `receiversCc` and `showType` mean nothing.
"""

from __future__ import annotations

from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.datasource import Target, target
from worker.launching.runner import run_by
from worker.launching.statements import Statement, statements

RESULT = "result.csv"
"""What the artefact with a query's result is called, behind the log's own name."""

_QUERY = "0"
_ROWS_SHOWN = 10
_MOST_ROWS_SHOWN = 1_000


class SqlTask:
    """Runs `preStatements`, `sql` and `postStatements`."""

    def launch(self, context: TaskContext) -> Launch:
        to = target(context.params, context.task.datasource)
        # Some clients stored the number, some its name.
        kind = context.one_of("sqlType", ("0", "1", "QUERY", "NON_QUERY"), _QUERY)
        is_query = kind in (_QUERY, "QUERY")
        main = _statements(context, to, "params.sql", context.text("sql"))
        if not main:
            raise TaskParameterError("params.sql is empty")
        if is_query and len(main) > 1:
            raise TaskParameterError(
                f"params.sql has {len(main)} statements; a query (sqlType 0) is one: put others"
                " into preStatements or postStatements"
            )
        if context.text("udfs").strip():
            raise TaskParameterError("params.udfs: functions of Hive and Spark are not supported")
        before = _listed(context, to, "preStatements")
        after = _listed(context, to, "postStatements")
        rows = min(context.number("displayRows") or _ROWS_SHOWN, _MOST_ROWS_SHOWN)
        return run_by(
            context,
            "sql",
            {
                "target": to.to_json(),
                "secrets": [*to.secrets, *context.secrets],
                "before": [each.to_json() for each in before],
                "main": [each.to_json() for each in main],
                "after": [each.to_json() for each in after],
                "is_query": is_query,
                "rows_shown": rows,
                "title": context.substitute(context.text("title"))[:200],
                "result_file": str(context.artefact(RESULT)) if is_query else None,
            },
        )


def _listed(context: TaskContext, to: Target, key: str) -> tuple[Statement, ...]:
    given = context.params.get(key) or []
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TaskParameterError(f"params.{key} must be a list of statements")
    return tuple(
        each
        for index, text in enumerate(texts)
        for each in _statements(context, to, f"params.{key}[{index}]", text)
    )


def _statements(context: TaskContext, to: Target, place: str, text: str) -> tuple[Statement, ...]:
    return statements(
        context.dated(text),
        place,
        parameters=context.parameters,
        types=context.types,
        dialect=to.dialect,
    )
