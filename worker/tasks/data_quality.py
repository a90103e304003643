"""DATA_QUALITY: rules on a table, a path or a query, tried in a Spark session of the task's own.

The session is chosen as PYSPARK's (`worker.launching.spark_session`). `table`, `path` (with
`format` and `options`) or `sql` names the data, `where` its rows; `rules` are those of
`worker.spark.quality.rule_reader`. Time placeholders are put into all texts, since only the
author's own words can stand in them; parameters are bound by name, `:day`, in conditions and
queries. Rules of level `block` that are broken fail the task. What was found is kept in
`t_ds_quality_result`, from which `compare` takes what former runs have measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from worker.launching.base import Launch, TaskContext, TaskParameterError
from worker.launching.resources import fetch_resources
from worker.launching.spark_session import launch_with_session
from worker.processes.quality_report import QUALITY
from worker.spark.quality.rule_reader import RulesError, read_rules, read_source

_SOURCE = ("table", "path", "format", "options", "sql")


class DataQualityTask:
    """Tries `rules` on `table`, `path` or `sql`."""

    def launch(self, context: TaskContext) -> Launch:
        fetch_resources(context)
        source: dict[str, object] = {
            key: _dated(context, context.params.get(key)) for key in _SOURCE
        }
        for key in ("table", "path"):
            if isinstance(name := source[key], str):
                source[key] = context.substitute(name)
        rules = _dated(context, context.params.get("rules"))
        try:
            read_rules(rules)
            read_source("params", source)
        except RulesError as error:
            raise TaskParameterError(str(error)) from error
        return launch_with_session(
            context,
            "data_quality",
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


def _dated(context: TaskContext, value: object) -> object:
    """The same with time placeholders put into every text."""
    if isinstance(value, str):
        return context.dated(value)
    if isinstance(value, list):
        return [_dated(context, each) for each in value]
    if isinstance(value, Mapping):
        return {key: _dated(context, each) for key, each in value.items()}
    return value
