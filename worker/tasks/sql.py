"""SQL: statements before, one query or any number of other statements, statements after.

The keys are those of contract §1.20.4. All statements run on one connection, each by
itself (who wants a transaction writes BEGIN and COMMIT), and the first that fails ends the attempt
as a failure, be it the last one (T19). `${name}` is bound, never spliced (X11); `!{name}` is
replaced by the value if that is a name (`common.statement_names`); time placeholders
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
    IsParameter,
    Key,
    Shape,
    TaskTypeSpec,
    ValueFaultError,
    faults_from,
    read_list,
    read_word,
)
from common.statement_names import name_notes, texts_of, with_names
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.datasource import DATASOURCE_KEYS, DATASOURCE_NAMES, Target, target
from worker.launching.runner import run_by
from worker.launching.statements import DIALECTS, Statement, count_statements, statements

_QUERY: Final = "0"
_QUERIES: Final = (_QUERY, "QUERY")
_MAIN: Final = "sql"
_TEXTS: Final = (_MAIN, "preStatements", "postStatements")


def _text_faults(params: Mapping[str, Any], _is_parameter: IsParameter, /) -> Iterator[Fault]:
    """Yield what is wrong with statements whatever kind of database they are for."""
    for key, faults in _by_dialect(params):
        if None not in faults.values():
            yield Fault(key=key, problem=str(next(iter(faults.values()))))


def _warnings(params: Mapping[str, Any]) -> Iterator[Fault]:
    for key, faults in _by_dialect(params):
        if None in faults.values():
            for kind, problem in faults.items():
                if problem is not None:
                    whose = f"{kind} reads them so" if kind in ("PostgreSQL", "MySQL") else ""
                    whose = whose or "databases other than PostgreSQL and MySQL read them so"
                    yield Fault(key=key, problem=f"{problem}: {whose}, and the task fails there")
    yield from name_notes(params, _TEXTS)
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
UDFS: Final = Key(name="udfs", about="Not supported.", check=_check_udfs, is_literal=True)
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
    text_faults=_text_faults,
    named_keys=_TEXTS,
    program=_MAIN,
    needs_values=True,
    names_are_its_own=False,
    datasources=DatasourceUse.ONE,
    artefacts=(RESULT,),
)


class SqlTask:
    """Runs `preStatements`, `sql` and `postStatements`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        to = target(context.params, context.task.datasource, data_dir=context.settings.data_dir)
        is_query = context.word(SQL_TYPE) in _QUERIES
        main = _statements(context, to, "params.sql", context.text(_MAIN))
        with fault_at(_MAIN):
            _check_count(len(main), is_query=is_query)
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


def _by_dialect(params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Yield each text that some kind of database can't take, with the problem of each kind."""
    try:
        is_query = (read_word(params.get(SQL_TYPE.name), SQL_TYPE.words) or _QUERY) in _QUERIES
    except ValueFaultError:
        is_query = False  # The check of the key reports it.
    for key, text in texts_of(params, _TEXTS):
        if not text.strip():
            continue
        problems = {
            kind: _problem(key, text, dialect, is_query=is_query and key == _MAIN)
            for kind, dialect in DIALECTS.items()
        }
        if any(problems.values()):
            yield key, problems


def _problem(key: str, text: str, dialect: str, *, is_query: bool) -> str | None:
    try:
        count = count_statements(text, f"params.{key}", dialect=dialect)
        if key == _MAIN:
            _check_count(count, is_query=is_query)
    except ValueFaultError as error:
        return str(error)
    except TaskParameterError as error:
        return next((each.problem for each in faults_from(str(error))), str(error))
    return None


def _check_count(count: int, *, is_query: bool) -> None:
    if count == 0:
        raise ValueFaultError("has no statement")
    if is_query and count > 1:
        raise ValueFaultError(
            f"has {count} statements; a query (sqlType 0) is one: put others into preStatements or"
            " postStatements, or set sqlType 1 if its rows are not needed"
        )


def _statements(context: TaskContext, to: Target, place: str, text: str) -> tuple[Statement, ...]:
    with fault_at(place.removeprefix("params.")):
        named = with_names(context.dated(text), context.parameters.get)
    return statements(
        named,
        place,
        parameters=context.parameters,
        types=context.types,
        dialect=to.dialect,
    )
