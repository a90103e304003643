"""PROCEDURE: calls a stored procedure or function of PostgreSQL with bound parameters.

`method` is a name, with or without its schema; nothing else is let through, so it can't carry a
statement. The local parameters are the arguments, in order: IN ones are bound by their type, OUT
ones get what comes back, are printed, and are put out for those downstream.
"""

from __future__ import annotations

import re
from typing import Any, Final

from common.model.task_type import (
    LOCAL_PARAMS,
    DatasourceUse,
    Key,
    TaskTypeSpec,
    ValueFaultError,
)
from common.params import Direct
from worker.launching.base import Launch, TaskContext, TaskParameterError, fault_at
from worker.launching.datasource import DATASOURCE_KEYS, DATASOURCE_NAMES, target
from worker.launching.runner import run_by
from worker.launching.statements import typed

_PART = r"(?:[A-Za-z_][A-Za-z0-9_$]{0,62}|\"(?:[^\"\0]|\"\"){1,63}\")"
_METHOD = re.compile(rf"(?:({_PART})\.)?({_PART})")
_CALL = re.compile(r"\s*\{?\s*call\s+(.*?)\s*(?:\([\s?,]*\))?\s*\}?\s*", re.IGNORECASE)


def _check_method(value: Any) -> None:
    _method(str(value))


SPEC: Final = TaskTypeSpec(
    name="PROCEDURE",
    about="A call of a stored procedure or function.",
    keys=(
        *DATASOURCE_KEYS,
        Key(
            name="method",
            about="The procedure's name, with or without its schema.",
            check=_check_method,
            is_literal=True,
        ),
        LOCAL_PARAMS,
    ),
    ignored_keys=("type",),
    needs=(DATASOURCE_NAMES, ("method",)),
    names_are_its_own=False,
    datasources=DatasourceUse.ONE,
)


class ProcedureTask:
    """Calls `method`."""

    spec = SPEC

    def launch(self, context: TaskContext) -> Launch:
        to = target(context.params, context.task.datasource, data_dir=context.settings.data_dir)
        if to.dialect != "postgresql":
            raise TaskParameterError(
                f"data source {to.name!r}: procedures of PostgreSQL can be called, not of"
                f" {to.dialect}; use an SQL task with sqlType 1"
            )
        method = context.text("method")
        with fault_at("method"):
            schema, name = _method(method)
        arguments: list[dict[str, object]] = []
        for each in context.local:
            argument: dict[str, object] = {"name": each.prop, "out": each.direct is Direct.OUT}
            if each.direct is Direct.IN:
                place = f"params.localParams {each.prop!r}"
                values = typed(place, each.prop, each.type, context.parameters[each.prop])
                if len(values) != 1:
                    raise TaskParameterError(f"{place}: an argument can't be a list")
                argument["value"] = values[0]
            arguments.append(argument)
        return run_by(
            context,
            "procedure",
            {
                "target": to.to_json(),
                "secrets": [*to.secrets, *context.secrets],
                "schema": schema,
                "method": name,
                "arguments": arguments,
            },
        )


TASK_TYPE: Final = ProcedureTask


def _method(text: str) -> tuple[str, str]:
    """Return schema and name as the catalogue has them; the schema is "" if none is given."""
    call = _CALL.fullmatch(text)
    match = _METHOD.fullmatch((call[1] if call else text).strip())
    if match is None:
        raise ValueFaultError("must be the name of a procedure, with or without its schema")
    return _folded(match[1] or ""), _folded(match[2])


def _folded(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()
