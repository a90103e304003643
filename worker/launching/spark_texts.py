"""Puts dates, names and values into Spark SQL that stands in a task, and checks its form.

Both read the text in the same way, so a text that `check_spark_text` accepts is refused later only
for the value of a parameter. Used by SPARK_SQL and DATA_QUALITY tasks, and by lint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from common.model.task_type import IsParameter, ValueFaultError
from common.params import DataType, with_some_date
from common.params.values import ParameterValueError
from common.statement_names import with_any_names, with_names
from worker.launching.spark_values import ValueOf, with_values
from worker.spark.session.statements import StatementError, split

if TYPE_CHECKING:
    from worker.launching.base import TaskContext


def spark_text(context: TaskContext, text: str) -> str:
    """Return a text with everything put in; `ValueFaultError` if something is wrong with it."""

    def value_of(name: str) -> tuple[DataType, str] | None:
        value = context.parameters.get(name)
        return None if value is None else (context.types.get(name, DataType.VARCHAR), value)

    def named(text: str) -> str:
        return with_names(text, context.parameters.get)

    return _read(text, context.dated, named, value_of)


def check_spark_text(text: str, is_parameter: IsParameter) -> None:
    """Raise `ValueFaultError` for a text that no values of its parameters make right."""
    _read(
        text,
        with_some_date,
        with_any_names,
        lambda name: (DataType.VARCHAR, "") if is_parameter(name) else None,
    )


def _read(
    text: str, dated: Callable[[str], str], named: Callable[[str], str], value_of: ValueOf
) -> str:
    whole = named(dated(text.replace("\r\n", "\n")))
    try:
        # Before values are put in: they can't change where statements end.
        if not split(whole):
            raise ValueFaultError("has no statement")
        return with_values(whole, value_of)
    except (StatementError, ParameterValueError) as error:
        raise ValueFaultError(str(error)) from error
