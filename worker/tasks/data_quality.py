"""DATA_QUALITY: rules on a table, a path or a query, tried in a Spark session of the task's own.

The session is chosen as PYSPARK's (`worker.launching.spark_session`). `table`, `path` (with
`format` and `options`) or `sql` names the data, `where` its rows; `rules` are those of
`worker.spark.quality.rule_reader`. Time placeholders are put into all texts, since only the
author's own words can stand in them; in conditions and queries parameters are bound by name,
`:day`, or put in as literals, `${day}` (`worker.launching.spark_texts`). Rules of level `block`
that are broken fail the task. What was found is kept in `t_ds_quality_result`, from which
`compare` takes what former runs have measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from common.model.task_type import (
    QUALITY,
    DatasourceUse,
    Fault,
    IsParameter,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    ValueFaultError,
    faults_from,
    is_absent,
)
from common.params import ParameterError, with_some_date
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.keys import SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources
from worker.launching.spark_texts import check_spark_text, spark_text
from worker.spark.quality.rule_reader import RulesError, read_rules, read_source

_SQL_KEYS: Final = ("sql", "where")
"""The keys, of a task and of its rules, whose texts are Spark SQL."""
_WITH_SQL: Final = (*_SQL_KEYS, "rules")
_SOURCE = ("table", "path", "format", "options", "sql")


def _faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    yield from session_faults(params)

    def dated(_key: str, _name: str, text: str) -> str:
        return with_some_date(text)

    try:
        if not is_absent(params.get("rules")):
            read_rules(_changed(params["rules"], dated))
    except RulesError as error:
        yield from faults_from(str(error))
    except ParameterError as error:
        yield Fault(key="rules", problem=str(error))
    given = [key for key in ("table", "path", "sql") if not is_absent(params.get(key))]
    try:
        if given:
            read_source("params", {key: params.get(key) for key in _SOURCE})
    except RulesError as error:
        yield from faults_from(str(error))


def _text_faults(params: Mapping[str, Any], is_parameter: IsParameter, /) -> Iterator[Fault]:
    found: list[Fault] = []

    def check(key: str, name: str, text: str) -> str:
        if _is_sql(name, text):
            try:
                check_spark_text(text, is_parameter)
            except ValueFaultError as error:
                found.append(Fault(key=key, problem=str(error)))
        return text

    _changed({key: params.get(key) for key in _WITH_SQL}, check)
    yield from found


SPEC: Final = TaskTypeSpec(
    name="DATA_QUALITY",
    about="Rules on a table, a path or a query.",
    kind=TaskKind.SESSION,
    keys=(
        Key(name="table", about="The table whose rows are looked at."),
        Key(name="path", about="The path whose rows are looked at."),
        Key(name="format", about="The format of the files at the path."),
        Key(name="options", shape=Shape.ANY, about="Options of the format, an object."),
        Key(name="sql", about="A query whose rows are looked at."),
        Key(name="where", about="A condition for the rows that are looked at."),
        Key(name="rules", shape=Shape.ANY, about="The rules, a list of objects."),
        *SESSION_KEYS,
    ),
    needs=(("rules",), ("table", "path", "sql")),
    faults=_faults,
    text_faults=_text_faults,
    named_keys=_WITH_SQL,
    names_are_its_own=False,
    datasources=DatasourceUse.NAMED,
    former_values="compare",
    memory_retry=True,
    artefacts=(QUALITY,),
    session_work="worker.spark.quality.evaluation",
)


class DataQualityTask:
    """Tries `rules` on `table`, `path` or `sql`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        # Lint needs no sessions.
        from worker.launching.spark_session import launch_with_session

        fetch_resources(context)

        def put_in(key: str, name: str, text: str) -> str:
            if not _is_sql(name, text):
                return context.dated(text)
            with fault_at(key):
                return spark_text(context, text)

        def dated(_key: str, _name: str, text: str) -> str:
            return context.dated(text)

        texts = _changed({key: context.params.get(key) for key in _WITH_SQL}, put_in)
        context.text("where")  # Refuses a value that is not text.
        source = {
            key: texts[key] if key in texts else _changed(context.params.get(key), dated)
            for key in _SOURCE
        }
        for key in ("table", "path"):
            if isinstance(name := source[key], str):
                source[key] = context.substitute(name)
        rules = texts["rules"]
        try:
            read_rules(rules)
            read_source("params", source)
        except RulesError as error:
            raise TaskParameterError(str(error)) from error
        return launch_with_session(
            context,
            SPEC,
            {
                "source": source,
                "where": texts["where"] or "",
                "rules": rules,
                "former": {name: list(each) for name, each in context.task.former_quality.items()},
                "quality_file": str(context.artefact(QUALITY)),
            },
            # Values of the data stand in the log.
            prints_outputs=False,
        )


TASK_TYPE: Final = DataQualityTask


def _is_sql(name: str, text: str) -> bool:
    return name in _SQL_KEYS and bool(text.strip())


def _changed(
    value: Any, change: Callable[[str, str, str], str], key: str = "", name: str = ""
) -> Any:
    """Return a value with every text in it changed; `change` has its place and its own key."""
    if isinstance(value, str):
        return change(key, name, value)
    if isinstance(value, list):
        return [_changed(each, change, f"{key}[{index}]") for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            own: _changed(each, change, f"{key}.{own}" if key else str(own), str(own))
            for own, each in value.items()
        }
    return value
