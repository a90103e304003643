"""SQL: statements before, one query or any number of other statements, statements after.

The keys are those of contract §1.20.4. All statements run on one connection, each by
itself (who wants a transaction writes BEGIN and COMMIT), and the first that fails ends the attempt
as a failure, be it the last one (T19). Parameters are bound, never spliced (X11); time placeholders
are put in as text, since only the author's own words can stand in them. `sqlType` 0 is a query: one
statement that returns rows, all of which go into a CSV file beside the log, and the first
`displayRows` (10) into the log. Any other statement is `sqlType` 1, several of them separated by
`;` (T19b). Nothing is mailed from here: `receivers`, `receiversCc` and `showType` mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from common.model.task_type import (
    LOCAL_PARAMS,
    RESULT,
    DatasourceUse,
    Fault,
    Key,
    Shape,
    TaskTypeSpec,
    ValueFaultError,
    read_list,
)
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.datasource import DATASOURCE_KEYS, DATASOURCE_NAMES, Target, target
from worker.launching.runner import run_by
from worker.launching.statements import Statement, statements

_QUERY: Final = "0"


def _warnings(params: Mapping[str, Any]) -> Iterator[Fault]:
    if params.get("receivers") or params.get("receiversCc"):
        yield Fault(key="receivers", problem="no mail is sent: the result is kept as a file")


def _check_udfs(_value: Any, /) -> None:
    raise ValueFaultError("functions of Hive and Spark are not supported")


SQL_TYPE: Final = Key(
    name="sqlType",
    shape=Shape.WORD,
    about="0 for a query, 1 for any other statements.",
    # Some clients stored the number, some its name.
    words=(_QUERY, "1", "QUERY", "NON_QUERY"),
    default=_QUERY,
)
DISPLAY_ROWS: Final = Key(
    name="displayRows",
    shape=Shape.NUMBER,
    about="Rows of a query that the log shows.",
    default=10,
    highest=1_000,
)
UDFS: Final = Key(name="udfs", about="Not supported.", check=_check_udfs)
SPEC: Final = TaskTypeSpec(
    name="SQL",
    about="Statements on a data source.",
    keys=(
        *DATASOURCE_KEYS,
        Key(name="sql", about="The statement, or the statements if sqlType is 1."),
        SQL_TYPE,
        Key(
            name="preStatements",
            shape=Shape.LIST,
            of_what="statements",
            about="Statements before it.",
        ),
        Key(
            name="postStatements",
            shape=Shape.LIST,
            of_what="statements",
            about="Statements after it.",
        ),
        DISPLAY_ROWS,
        Key(name="title", about="The title of the result."),
        UDFS,
        LOCAL_PARAMS,
    ),
    ignored_keys=("type", "receivers", "receiversCc", "showType", "connParams"),
    needs=(DATASOURCE_NAMES, ("sql",)),
    warnings=_warnings,
    names_are_its_own=False,
    datasources=DatasourceUse.ONE,
    artefacts=(RESULT,),
)


class SqlTask:
    """Runs `preStatements`, `sql` and `postStatements`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        to = target(context.params, context.task.datasource, data_dir=context.settings.data_dir)
        is_query = context.word(SQL_TYPE) in (_QUERY, "QUERY")
        main = _statements(context, to, "params.sql", context.text("sql"))
        if not main:
            raise TaskParameterError("params.sql is empty")
        if is_query and len(main) > 1:
            raise TaskParameterError(
                f"params.sql has {len(main)} statements; a query (sqlType 0) is one: put others"
                " into preStatements or postStatements"
            )
        if context.text(UDFS.name).strip():
            with fault_at(UDFS.name):
                _check_udfs(None)
        before = _listed(context, to, "preStatements")
        after = _listed(context, to, "postStatements")
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
                "rows_shown": context.number(DISPLAY_ROWS),
                "title": context.substitute(context.text("title"))[:200],
                "result_file": str(context.artefact(RESULT)) if is_query else None,
            },
        )


TASK_TYPE: Final = SqlTask


def _listed(context: TaskContext, to: Target, key: str) -> tuple[Statement, ...]:
    with fault_at(key):
        texts = read_list(context.params.get(key), "statements")
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
