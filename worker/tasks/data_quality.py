"""DATA_QUALITY: rules on a table, a path or a query, tried in a Spark session of the task's own.

The session is chosen as PYSPARK's (`worker.launching.spark_session`). `table`, `path` (with
`format` and `options`) or `sql` names the data, `where` its rows; `rules` are those of
`worker.spark.quality.rule_reader`. Time placeholders are put into all texts, since only the
author's own words can stand in them; parameters are bound by name, `:day`, in conditions and
queries. Rules of level `block` that are broken fail the task. What was found is kept in
`t_ds_quality_result`, from which `compare` takes what former runs have measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from common.model.task_type import (
    QUALITY,
    DatasourceUse,
    Fault,
    Key,
    Shape,
    TaskKind,
    TaskTypeSpec,
    faults_from,
    is_absent,
)
from common.params import ParameterError, replace_placeholders
from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.keys import SESSION_KEYS, session_faults
from worker.launching.resources import fetch_resources
from worker.spark.quality.rule_reader import RulesError, read_rules, read_source

_SOURCE = ("table", "path", "format", "options", "sql")
# Time placeholders are put in before rules are read, so lint puts a time in as well.
_SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
_UTC: Final = ZoneInfo("UTC")


def _faults(params: Mapping[str, Any]) -> Iterator[Fault]:
    yield from session_faults(params)
    with_time = _with_time(lambda text: replace_placeholders(text, moment=_SOME_TIME, zone=_UTC))
    try:
        if not is_absent(params.get("rules")):
            read_rules(with_time(params["rules"]))
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
        dated = _with_time(context.dated)
        source = {key: dated(context.params.get(key)) for key in _SOURCE}
        for key in ("table", "path"):
            if isinstance(name := source[key], str):
                source[key] = context.substitute(name)
        rules = dated(context.params.get("rules"))
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
                "where": context.dated(context.text("where")),
                "rules": rules,
                "former": {name: list(each) for name, each in context.task.former_quality.items()},
                "quality_file": str(context.artefact(QUALITY)),
            },
            # Values of the data stand in the log.
            prints_outputs=False,
        )


TASK_TYPE: Final = DataQualityTask


def _with_time(put_in: Callable[[str], str]) -> Callable[[object], object]:
    """Return what puts the time placeholders into every text of a value."""

    def with_time(value: object) -> object:
        if isinstance(value, str):
            return put_in(value)
        if isinstance(value, list):
            return [with_time(each) for each in value]
        if isinstance(value, Mapping):
            return {key: with_time(each) for key, each in value.items()}
        return value

    return with_time
